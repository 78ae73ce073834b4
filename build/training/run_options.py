"""What both trainings ask on the command line: corpora by name, how often to measure and to save, the seed."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--measure-every",
        type=click.IntRange(1),
        metavar="N",
        help="Steps between two measurements on held-out text; by default a tenth of all.",
    ),
    click.option(
        "--checkpoint-every",
        type=click.IntRange(1),
        metavar="N",
        help="Steps between two checkpoints; by default a twentieth of all.",
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Another seed, another model."),
)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a run."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def named(given: Sequence[str], option: str = "--corpus") -> dict[str, str]:
    """Return corpora or models, by the names that they are given, or by their own.

    Args:
        given: ``NAME=SPEC`` or ``SPEC`` each.
        option: What gives them.

    Raises:
        click.UsageError: Two have one name.
    """
    from spectool.artifacts.default_paths import slug

    found: dict[str, str] = {}
    for text in given:
        parts = re.fullmatch(r"(\w[\w.-]*)=(.+)", text)
        name, spec = parts.groups() if parts else (slug(text) or text, text)
        if name in found:
            raise click.UsageError(f"{option}: two are called {name}; give them names, as in NAME={spec}")
        found[name] = spec
    return found
