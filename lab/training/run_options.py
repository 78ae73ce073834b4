"""What both trainings are asked: corpora by name, steps, how often to measure and to save, the seed."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from spectool.artifacts.default_paths import slug
from spectool.artifacts.options import option


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Arguments of any training; the help of each says what it is."""

    steps: int = option(click.IntRange(1), "Steps to train for.", metavar="N")
    measure_every: int | None = option(
        click.IntRange(1),
        "Steps between two measurements on held-out text; by default a tenth of all.",
        None,
        metavar="N",
    )
    checkpoint_every: int | None = option(
        click.IntRange(1), "Steps between two checkpoints; by default a twentieth of all.", None, metavar="N"
    )
    seed: int = option(click.IntRange(0), "Another seed, another model.", 0)

    @property
    def intervals(self) -> tuple[int, int]:
        """Steps between two measurements, and between two checkpoints."""
        tenth, twentieth = max(1, self.steps // 10), max(1, self.steps // 20)
        return self.measure_every or tenth, self.checkpoint_every or twentieth

    def key(self, **more: Any) -> dict[str, Any]:
        """Return what a result depends on, as JSON values: these arguments but for the checkpoints, and ``more``."""
        chosen = {**asdict(self), "measure_every": self.intervals[0], **more}
        del chosen["checkpoint_every"]
        plain: dict[str, Any] = json.loads(json.dumps(chosen))
        return plain


def named(given: Sequence[str], option: str = "--corpus") -> dict[str, str]:
    """Return what ``option`` was given, ``NAME=SPEC`` or ``SPEC`` each, by these names or by its own.

    Raises:
        click.UsageError: Two have one name.
    """
    found: dict[str, str] = {}
    for text in given:
        parts = re.fullmatch(r"(\w[\w.-]*)=(.+)", text)
        name, spec = parts.groups() if parts else (slug(text) or text, text)
        if name in found:
            raise click.UsageError(f"{option}: two are called {name}; give them names, as in NAME={spec}")
        found[name] = spec
    return found
