"""Values of an option that may have names, such as ``--corpus pl=wiki-pl``."""

import re
from collections.abc import Sequence

import click

from spectool.artifacts.default_paths import slug


def named(given: Sequence[str], option: str) -> dict[str, str]:
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
