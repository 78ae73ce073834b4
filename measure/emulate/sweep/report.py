"""From the runs of a sweep to a page of tables, and plots where matplotlib is installed.

report.md                the tables; the paper's figures beside ours where it has the pair
NAME.svg  NAME.png       the plots of `plots`
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spectool.artifacts.replacing import renaming
from spectool.measure.emulate.sweep import paper_figures as paper
from spectool.measure.emulate.sweep.results import Row
from spectool.measure.emulate.sweep.summaries import NONE, best_of, by_series, mean_of, number, pearson, size_of

REPORT = "report.md"


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


def _texts(rows: Sequence[Row]) -> str:
    lines = []
    for language in _values(rows, "language"):
        row = next(row for row in rows if row["language"] == language)
        theirs = paper.WORDS.get(language)
        build = NONE if row["build_words"] is None else f"{row['build_words']:,}"
        lines.append(
            [
                language,
                NONE if row["build_corpus"] is None else Path(row["build_corpus"]).name,
                build,
                Path(row["replay_corpus"]).name,
                f"{row['replay_words']:,}",
                " / ".join(f"{words:,}" for words in theirs) if theirs else NONE,
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
            ours = f"{found[language]:.2f}" if language in found else NONE
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
                row["order"] or NONE,
                number(size_of(row)),
                NONE if row["min_prob"] is None else f"{row['min_prob']:g}",
                number(row["entries"]),
                f"**{row['tokens_per_pass']:.3f}**",
                f"{row['coverage']:.2f}",
                f"{row['mean_accepted_length']:.2f}",
                f"{row['acceptance']:.2f}",
                ", ".join(f"{value:.2f}" for value in theirs) if theirs else NONE,
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
        lines.append([*pair, *(f"{values[order]:.3f}" if order in values else NONE for order in orders)])
    return _table(["language", "tokenizer", *orders], lines, left=(0, 1))


def _sizes(series: Sequence[Row]) -> str:
    longest = max((row["order"] or "" for row in series), default="")
    chosen = [row for row in series if (row["order"] or "") == longest]
    thresholds = _values(chosen, "min_prob")
    lines = []
    for size in sorted({size_of(row) for row in chosen}, key=lambda size: size or 0):
        of_size = [row for row in chosen if size_of(row) == size]
        cells = [mean_of(of_size, lambda row, p=p: row["min_prob"] == p) for p in thresholds]  # type: ignore[misc]
        lines.append([number(size), *(NONE if cell is None else f"{cell:.3f}" for cell in cells)])
    header = [f"size{f', {longest}' if longest else ''}"]
    return _table([*header, *(NONE if p is None else f"p_min {p:g}" for p in thresholds)], lines)


def _values(rows: Iterable[Row], column: str) -> list[Any]:
    found = {row[column] for row in rows}
    return sorted(found, key=lambda value: (value is not None, value))


def _table(header: Sequence[str], lines: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    marks = ["---" if column in left else "---:" for column in range(len(header))]
    rows = ["| " + " | ".join(line) + " |" for line in (header, *lines)]
    return "\n".join([rows[0], f"|{'|'.join(marks)}|", *rows[1:], ""])
