"""The figures of the DictSpec paper, to compare with; the data is in `paper.toml`."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def figures() -> dict[str, Any]:
    """The contents of `paper.toml`."""
    return tomllib.loads(files(__package__).joinpath("paper.toml").read_text(encoding="utf-8"))


def family(tokenizer: str) -> str | None:
    """The paper's name for a tokenizer, or None.

    >>> family("bielik-11b-v2.5"), family("gpt2")
    ('Mistral 7B', None)
    """
    families = figures()["families"].items()
    return next((name for name, facts in families if tokenizer.lower().startswith(tuple(facts["prefixes"]))), None)


def paper_figures(tokenizer: str, table: str) -> dict[str, Any]:
    """The paper's ``fertility``, or the ``best`` of its sweep, by language; empty for tokenizers it does not have."""
    found: dict[str, Any] = figures()["families"].get(family(tokenizer), {}).get(table, {})
    return found
