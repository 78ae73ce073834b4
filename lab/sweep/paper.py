"""The grid of the DictSpec paper, and its figures to compare with; the data is in `paper.toml`."""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from spectool import SpectoolError
from spectool.artifacts.console import say
from spectool.build.dictionary.options import Reading
from spectool.lab.sweep.grid import DictSpecAxes, Grid, Language

PAPER = "paper"
_OWN = "Name yours in a grid of your own: spectool lab sweep GRID.toml, with [tokenizers] and [languages]"


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


def figures_of(tokenizer: str, table: str) -> dict[str, Any]:
    """The paper's ``fertility``, or the ``best`` of its sweep, by language; empty for tokenizers it does not have."""
    found: dict[str, Any] = figures()["families"].get(family(tokenizer), {}).get(table, {})
    return found


def paper_grid(tokenizers: Path, corpora: Path, readings: tuple[Reading, ...] = ()) -> Grid:
    """The paper's grid over folders of tokenizers and corpora; notes on stderr which tokenizers stand in for others.

    Args:
        tokenizers: Has a folder for each tokenizer of the paper's Table 3.
        corpora: Has ``uk.train.*``, ``uk.valid.*``, ``crh.train.*`` and ``crh.valid.*``.
        readings: Of the minimum probability; the paper's literal one if none is given.

    Raises:
        SpectoolError: Something is missing there.
    """
    found = {}
    for name, there in figures()["families"].items():
        folder = next((folder for folder in there["folders"] + there["like"] if (tokenizers / folder).exists()), None)
        if folder is None:
            expected = " or ".join(there["folders"])
            raise SpectoolError(f"{tokenizers}: expected a folder {expected} with {name}'s tokenizer, got none. {_OWN}")
        if folder in there["like"]:
            say(f"{folder} stands in for {name}, which has another vocabulary")
        found[folder] = str(tokenizers / folder)
    languages = {
        name: Language(
            build=_only(corpora, f"{text['code']}.train.*"),
            replay=_only(corpora, f"{text['code']}.valid.*"),
            script=text.get("script"),
        )
        for name, text in figures()["languages"].items()
    }
    axes = DictSpecAxes(readings=readings) if readings else DictSpecAxes()
    return Grid(tokenizers=found, languages=languages, dictspec=axes)


def _only(folder: Path, pattern: str) -> str:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        got = ", ".join(path.name for path in found) or "none"
        raise SpectoolError(f"{folder}: expected one file {pattern}, got {got}. {_OWN}")
    return str(found[0])
