"""The runs of a sweep as data frames: grouped, compared, and next to the figures of the paper (`paper.toml`)."""

import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from spectool.lab.sweep.results import SCHEMA, SweepRow
from spectool.measure.page import NO_FIGURE

PAIR = ["language", "tokenizer"]


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


def by_series(rows: Iterable[SweepRow]) -> dict[str, pd.DataFrame]:
    """Runs by method, reading (the literal one first) and draft length, without those that draft nothing.

    The column ``size`` is what was asked for: a number of n-grams, or a limit in bytes. Reading and order are empty
    where a method has none.
    """
    runs = pd.DataFrame(rows, columns=SCHEMA.names).query("method != 'plain'")
    runs = runs.fillna({"reading": "", "order": ""})
    runs["size"] = pd.to_numeric(runs["entries_asked"].combine_first(runs["max_bytes"]))
    several = runs["num_draft_tokens"].nunique() > 1
    found = {}
    for (method, _, reading, length), series in runs.groupby(
        ["method", runs["reading"] != "whole", "reading", "num_draft_tokens"]
    ):
        name = f"{method}, {reading}" if reading else str(method)
        found[f"{name}, {length} draft tokens" if several else name] = series
    return found


def best_of(runs: pd.DataFrame, also: str | None = None) -> pd.DataFrame:
    """The run with most tokens per pass for each language, tokenizer and ``also``; of equal runs the smallest."""
    ordered = runs.sort_values(["tokens_per_pass", "entries"], ascending=[False, True], kind="stable")
    columns = [*PAIR, *([also] if also else [])]
    return ordered.drop_duplicates(columns).sort_values(columns, ignore_index=True)


def longest_order(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose dictionaries hold the longest n-grams; all runs where the method has no orders."""
    return runs[runs["order"] == runs["order"].max()]


def pearson(pairs: pd.DataFrame) -> tuple[float, float, float] | None:
    """Pearson's r of two columns and its 95% interval by Fisher's z; None for fewer than 4 rows or a constant."""
    if len(pairs) < 4 or (pairs.nunique() == 1).any():
        return None
    found = stats.pearsonr(pairs.iloc[:, 0], pairs.iloc[:, 1])
    return (found.statistic, *found.confidence_interval())


def number(value: float) -> str:
    """Spell a size: 10k, 1M.

    >>> number(200_000), number(1_000_000), number(1234)
    ('200k', '1M', '1,234')
    """
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if value and value % unit == 0:
            return f"{value // unit:.0f}{letter}"
    return f"{value:,.0f}"


def texts(runs: pd.DataFrame) -> pd.DataFrame:
    """What each language was built from and replayed on, in words."""
    found = runs.drop_duplicates("language").set_index("language").sort_index()
    paper = {name: " / ".join(f"{words:,}" for words in text["words"]) for name, text in figures()["languages"].items()}
    table = pd.DataFrame(index=found.index)
    table["built from"] = _spelled(found["build_corpus"], lambda path: Path(path).name)
    table["words"] = _spelled(found["build_words"], "{:,.0f}".format)
    table["replayed"] = _spelled(found["replay_corpus"], lambda path: Path(path).name)
    table["words replayed"] = _spelled(found["replay_words"], "{:,.0f}".format)
    table["paper: words built from / replayed"] = found.index.map(paper)
    return table.fillna(NO_FIGURE)


def fertility(runs: pd.DataFrame) -> pd.DataFrame:
    """Tokens per word of each tokenizer and language, with the paper's in brackets."""
    ours = runs.pivot_table(index="tokenizer", columns="language", values="fertility", aggfunc="first")
    table = _spelled(ours, "{:.2f}".format)
    for tokenizer in ours.index:
        for language, theirs in paper_figures(tokenizer, "fertility").items():
            if language in table:
                table.loc[tokenizer, language] += f" ({theirs:.2f})"
    named = table.rename(lambda name: f"{name} ({family(name)})" if family(name) else name)
    return named.rename_axis(index="tokenizer (paper's family)")


def best(runs: pd.DataFrame) -> pd.DataFrame:
    """The best run of each pair, with Table 4 of the paper."""
    found = best_of(runs)
    table = found[PAIR].copy()
    for name, column, spell in (
        ("fertility", "fertility", "{:.2f}".format),
        ("order", "order", lambda order: order or NO_FIGURE),
        ("size", "size", number),
        ("p_min", "min_prob", "{:g}".format),
        ("entries", "entries", number),
        ("tokens per pass", "tokens_per_pass", "{:.3f}".format),
        ("coverage", "coverage", "{:.2f}".format),
        ("MAL", "mean_accepted_length", "{:.2f}".format),
        ("acceptance", "acceptance", "{:.2f}".format),
    ):
        table[name] = _spelled(found[column], spell)
    theirs = [paper_figures(row.tokenizer, "best").get(row.language, ()) for row in found.itertuples()]
    table["paper: speed-up, coverage, MAL, acceptance"] = [
        ", ".join(map("{:.2f}".format, row)) or NO_FIGURE for row in theirs
    ]
    return table.set_index(PAIR)


def orders(runs: pd.DataFrame) -> pd.DataFrame:
    """The best run of each order, for each pair."""
    table = runs.pivot_table(index=PAIR, columns="order", values="tokens_per_pass", aggfunc="max")
    return _spelled(table, "{:.3f}".format)


def sizes(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean tokens per pass over all pairs by size and threshold, at the longest order."""
    longest = longest_order(runs)
    table = longest.pivot_table(index="size", columns="min_prob", values="tokens_per_pass", aggfunc="mean")
    title = ", ".join(filter(None, ("size", longest["order"].iloc[0])))
    return _spelled(table.rename(index=number, columns="p_min {:g}".format).rename_axis(index=title), "{:.3f}".format)


def _spelled(figures: Any, spell: Callable[[Any], str]) -> Any:
    """A column or a table as text, with a dash where there is no figure."""
    return figures.map(spell, na_action="ignore").astype(object).fillna(NO_FIGURE)
