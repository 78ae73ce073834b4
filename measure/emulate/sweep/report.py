"""From the runs of a sweep to a page of tables, and plots where matplotlib is installed.

report.md                the tables; the paper's figures beside ours where it has the pair
NAME.svg  NAME.png       the plots of `build.sweep_plots`
"""

import math
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from spectool.artifacts.replacing import renaming
from spectool.measure.emulate.sweep import paper_figures as paper
from spectool.measure.emulate.sweep.results import Row

REPORT = "report.md"
_NONE = "—"


def write_report(rows: Sequence[Row], out: Path) -> list[str]:
    """Write tables and plots of ``rows`` into ``out``.

    Returns:
        Names of the files. Without matplotlib there are no plots among them.
    """
    plots: list[str] = []
    if find_spec("matplotlib") is not None:
        from spectool.measure.emulate.sweep.plots import write_plots

        plots = write_plots(rows, out)
    with renaming(out / REPORT) as partial:
        partial.write_text(markdown(rows, [name for name in plots if name.endswith(".svg")]), encoding="utf-8")
    return [REPORT, *plots]


def markdown(rows: Sequence[Row], plots: Sequence[str] = ()) -> str:
    """Lay the runs out as a page: fertility, best of the sweep, orders, sizes and thresholds."""
    parts = [
        "# Sweep\n",
        f"{len(rows):,} runs. Tokens per pass are the emulated speed-up: text replayed in the target's place.\n",
        "## Text\n",
        _texts(rows),
        "## Fertility\n",
        "Tokens per word between white space; in brackets the paper's Table 3 (measured on other text).\n",
        _fertility(rows),
    ]
    for name, series in by_series(rows).items():
        best = best_of(series)
        parts += [f"## {name}\n", "### Best of the sweep (paper: Table 4)\n", _best(best)]
        if correlation := _correlation(best):
            parts += [correlation]
        if any(row["order"] for row in series):
            parts += ["### Orders: best tokens per pass (paper: Figure 3)\n", _orders(series)]
        parts += ["### Sizes and thresholds: mean tokens per pass over all pairs (paper: Figure 2)\n", _sizes(series)]
    parts += [f"![{name.removesuffix('.svg')}]({name})\n" for name in plots]
    return "\n".join(parts)


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
    if len(pairs) < 4:
        return None
    x, y = (fmean(values) for values in zip(*pairs, strict=True))
    xx, yy = sum((a - x) ** 2 for a, _ in pairs), sum((b - y) ** 2 for _, b in pairs)
    if xx == 0 or yy == 0:
        return None
    r = sum((a - x) * (b - y) for a, b in pairs) / math.sqrt(xx * yy)
    if abs(r) >= 1:
        return r, r, r
    z, reach = math.atanh(r), 1.959964 / math.sqrt(len(pairs) - 3)
    return r, math.tanh(z - reach), math.tanh(z + reach)


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
        return _NONE
    if value and value % 1_000_000 == 0:
        return f"{value // 1_000_000}M"
    return f"{value // 1000}k" if value and value % 1000 == 0 else f"{value:,}"


def _texts(rows: Sequence[Row]) -> str:
    lines = []
    for language in _values(rows, "language"):
        row = next(row for row in rows if row["language"] == language)
        theirs = paper.WORDS.get(language)
        build = _NONE if row["build_words"] is None else f"{row['build_words']:,}"
        lines.append(
            [
                language,
                _NONE if row["build_corpus"] is None else Path(row["build_corpus"]).name,
                build,
                Path(row["replay_corpus"]).name,
                f"{row['replay_words']:,}",
                " / ".join(f"{words:,}" for words in theirs) if theirs else _NONE,
            ]
        )
    header = ["language", "built from", "words", "replayed", "words", "paper: words built from / replayed"]
    return _table(header, lines, left=(0, 1, 3))


def _fertility(rows: Sequence[Row]) -> str:
    languages = _values(rows, "language")
    lines = []
    for tokenizer in _values(rows, "tokenizer"):
        known = paper.family(tokenizer)
        found = {row["language"]: row["fertility"] for row in rows if row["tokenizer"] == tokenizer}
        line = [tokenizer if known is None else f"{tokenizer} ({known})"]
        for language in languages:
            theirs = paper.FERTILITY.get(known or "", {}).get(language)
            ours = f"{found[language]:.2f}" if language in found else _NONE
            line.append(ours if theirs is None else f"{ours} ({theirs:.2f})")
        lines.append(line)
    return _table(["tokenizer (paper's family)", *languages], lines)


def _best(best: Sequence[Row]) -> str:
    lines = []
    for row in best:
        theirs = paper.BEST.get(paper.family(row["tokenizer"]) or "", {}).get(row["language"])
        lines.append(
            [
                row["language"],
                row["tokenizer"],
                f"{row['fertility']:.2f}",
                row["order"] or _NONE,
                number(size_of(row)),
                _NONE if row["min_prob"] is None else f"{row['min_prob']:g}",
                number(row["entries"]),
                f"**{row['tokens_per_pass']:.3f}**",
                f"{row['coverage']:.2f}",
                f"{row['mean_accepted_length']:.2f}",
                f"{row['acceptance']:.2f}",
                ", ".join(f"{value:.2f}" for value in theirs) if theirs else _NONE,
            ]
        )
    header = ["language", "tokenizer", "fertility", "order", "size", "p_min", "entries", "tokens per pass", "coverage"]
    return _table([*header, "MAL", "acceptance", "paper: speed-up, coverage, MAL, acceptance"], lines, left=(0, 1, 3))


def _correlation(best: Sequence[Row]) -> str:
    found = pearson([(row["fertility"], row["tokens_per_pass"]) for row in best])
    if found is None:
        return ""
    r, low, high = found
    return (
        f"Fertility and best tokens per pass: Pearson r = {r:.2f} (95% interval {low:.2f} to {high:.2f}, "
        f"n = {len(best)}); paper: {paper.PEARSON} (n = 15).\n"
    )


def _orders(series: Sequence[Row]) -> str:
    orders = _values(series, "order")
    found = {order: best_of(row for row in series if row["order"] == order) for order in orders}
    pairs = sorted({(row["language"], row["tokenizer"]) for row in series})
    lines = []
    for pair in pairs:
        values = {o: r["tokens_per_pass"] for o in orders for r in found[o] if (r["language"], r["tokenizer"]) == pair}
        lines.append([*pair, *(f"{values[order]:.3f}" if order in values else _NONE for order in orders)])
    return _table(["language", "tokenizer", *orders], lines, left=(0, 1))


def _sizes(series: Sequence[Row]) -> str:
    longest = max((row["order"] or "" for row in series), default="")
    chosen = [row for row in series if (row["order"] or "") == longest]
    thresholds = _values(chosen, "min_prob")
    lines = []
    for size in sorted({size_of(row) for row in chosen}, key=lambda size: size or 0):
        of_size = [row for row in chosen if size_of(row) == size]
        cells = [mean_of(of_size, lambda row, p=p: row["min_prob"] == p) for p in thresholds]  # type: ignore[misc]
        lines.append([number(size), *(_NONE if cell is None else f"{cell:.3f}" for cell in cells)])
    header = [f"size{f', {longest}' if longest else ''}"]
    return _table([*header, *(_NONE if p is None else f"p_min {p:g}" for p in thresholds)], lines)


def mean_of(rows: Iterable[Row], chosen: Callable[[Row], bool]) -> float | None:
    """Return the mean tokens per pass of the chosen rows."""
    values = [row["tokens_per_pass"] for row in rows if chosen(row)]
    return fmean(values) if values else None


def _values(rows: Iterable[Row], column: str) -> list[Any]:
    found = {row[column] for row in rows}
    return sorted(found, key=lambda value: (value is not None, value))


def _table(header: Sequence[str], lines: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    marks = ["---" if column in left else "---:" for column in range(len(header))]
    rows = ["| " + " | ".join(line) + " |" for line in (header, *lines)]
    return "\n".join([rows[0], f"|{'|'.join(marks)}|", *rows[1:], ""])
