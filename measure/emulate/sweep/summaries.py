"""Runs of a sweep grouped, compared and spelled, for the page and for the plots."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from statistics import fmean

from scipy import stats

from spectool.measure.emulate.sweep.results import Row

NONE = "—"


def by_series(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group runs by method, reading (the literal one first) and draft length, as far as these differ.

    Runs that draft nothing are left out.
    """
    drafting = [row for row in rows if row["method"] != "plain"]
    lengths = {row["num_draft_tokens"] for row in drafting}
    found: dict[str, list[Row]] = {}
    for row in sorted(drafting, key=lambda r: (r["method"], r["reading"] != "whole", r["num_draft_tokens"])):
        reading = f", {row['reading']}" if row["reading"] else ""
        length = f", {row['num_draft_tokens']} draft tokens" if len(lengths) > 1 else ""
        found.setdefault(f"{row['method']}{reading}{length}", []).append(row)
    return found


def best_of(rows: Iterable[Row]) -> list[Row]:
    """Return the run with the most tokens per pass of every language and tokenizer; of equals the smallest."""

    def pair(row: Row) -> tuple[str, str]:
        return row["language"], row["tokenizer"]

    def worse(row: Row) -> tuple[float, int]:
        return -row["tokens_per_pass"], row["entries"] or 0

    return [min(runs, key=worse) for _, runs in groupby(sorted(rows, key=pair), pair)]


def pearson(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Return Pearson's r and the ends of its 95% interval by Fisher's z; None for fewer than 4 or constant values."""
    xs, ys = {x for x, _ in pairs}, {y for _, y in pairs}
    if len(pairs) < 4 or len(xs) == 1 or len(ys) == 1:
        return None
    found = stats.pearsonr(*zip(*pairs, strict=True))
    low, high = found.confidence_interval()
    return float(found.statistic), float(low), float(high)


def size_of(row: Row) -> int | None:
    """Return the size that was asked for: n-grams, or bytes where a method counts these."""
    size: int | None = row["entries_asked"] or row["max_bytes"]
    return size


def number(value: int | None) -> str:
    """Spell a size: 10k, 1M.

    >>> number(200_000), number(1_000_000), number(1234), number(None)
    ('200k', '1M', '1,234', '—')
    """
    if value is None:
        return NONE
    if value and value % 1_000_000 == 0:
        return f"{value // 1_000_000}M"
    return f"{value // 1000}k" if value and value % 1000 == 0 else f"{value:,}"


def mean_of(rows: Iterable[Row], chosen: Callable[[Row], bool]) -> float | None:
    """Return the mean tokens per pass of the chosen rows."""
    values = [row["tokens_per_pass"] for row in rows if chosen(row)]
    return fmean(values) if values else None
