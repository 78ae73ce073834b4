"""``--corpus [NAME=]SPEC``, given several times: corpora by name."""

import re
from collections.abc import Sequence

import click


def named(given: Sequence[str]) -> dict[str, str]:
    """Return what names corpora, by the names that they are given, or by their own.

    Args:
        given: ``NAME=SPEC`` or ``SPEC`` each.

    Raises:
        click.UsageError: Two have one name.
    """
    from spectool.build.default_paths import slug

    found: dict[str, str] = {}
    for text in given:
        parts = re.fullmatch(r"(\w[\w.-]*)=(.+)", text)
        name, spec = parts.groups() if parts else (slug(text) or text, text)
        if name in found:
            raise click.UsageError(f"--corpus: two are called {name}; give them names, as in NAME={spec}")
        found[name] = spec
    return found
