"""Options that commands of the laboratory share."""

import re
from collections.abc import Sequence
from functools import partial

import click

from spectool.artifacts.default_paths import slug
from spectool.commands.shared.options import Finite, Whole, option, option_group

count_option = partial(option, type=Whole(1), metavar="N", show_default=True)
"""A whole number of 1 or more."""

rate_option = partial(option, "--rate", type=Finite(0, min_open=True), metavar="R", show_default=True)
"""The peak learning rate."""

corpora_option = partial(option, "--corpus", "corpora", required=True, multiple=True, metavar="[NAME=]SPEC")
"""Texts, each with a name if it is given one."""

seed_option = partial(option, "--seed", type=Whole(0), default=0, show_default=True)
"""The seed of what is random."""


run_options = option_group(
    count_option("--steps", required=True, help="Number of training steps."),
    count_option("--measure-every", help="Steps between two measurements of held-out text; by default a tenth."),
    count_option("--checkpoint-every", help="Steps between two checkpoints; by default a twentieth of all."),
    seed_option(help="Seed of the training."),
)
"""Options of any training: steps, intervals, and seed."""


def by_name(given: Sequence[str], option: str) -> dict[str, str]:
    """The values of ``option``, each ``NAME=SPEC`` or ``SPEC``, by name; without a name, by a name made of the value.

    Raises:
        click.UsageError: Two values have the same name.
    """
    found: dict[str, str] = {}
    for text in given:
        parts = re.fullmatch(r"(\w[\w.-]*)=(.+)", text)
        name, spec = parts.groups() if parts else (slug(text) or text, text)
        if name in found:
            raise click.UsageError(f"{option}: two are called {name}; give them names, as in NAME={spec}")
        found[name] = spec
    return found
