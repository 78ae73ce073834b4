"""Draw docs/figures/gain.svg, README's plot: tokens per pass by language, our dictionaries beside DictSpec's.

    python benchmarks/gain_plot.py

It reads the saved sweeps (`spectool emulate --sweep`, see docs/results.md): the best DictSpec dictionary of any
size and order in its two readings of the minimum probability, and ours of at most 5 MB, with the drafting
threshold of `generate` and with none. Bars are means of five tokenizers, dots the tokenizers.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from spectool.artifacts.plot_style import COLOURS, STYLE

RESULTS = Path(__file__).parent / "results"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "gain.svg"
LANGUAGES = {"uk": "Ukrainian", "crh-cyrl": "Crimean Tatar\n(Cyrillic)", "crh-latn": "Crimean Tatar\n(Latin)"}
BYTES = 5_000_000
DRAFTED = 0.2  # the least probability that `generate` drafts


def best() -> dict[str, pd.Series]:
    """Return tokens per pass by language and tokenizer, for each kind of dictionary."""
    paper = pd.read_parquet(RESULTS / "sweep_paper.parquet")
    ours = pd.read_parquet(RESULTS / "sweep_backoff.parquet").query("max_bytes == @BYTES")
    kinds = {
        "DictSpec paper, threshold on the whole": paper.query("reading == 'whole'"),
        "DictSpec paper, threshold on the path": paper.query("reading == 'path'"),
        f"spectool, 5 MB, threshold {DRAFTED} as in generate": ours.query("min_prob == @DRAFTED"),
        "spectool, 5 MB, no threshold": ours.query("min_prob == 0"),
    }
    return {name: rows.groupby(["language", "tokenizer"])["tokens_per_pass"].max() for name, rows in kinds.items()}


def main() -> None:
    """Draw the bars and print what they show."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        width = 0.2
        for place, (name, values) in enumerate(best().items()):
            for number, language in enumerate(LANGUAGES):
                at, points = number + (place - 1.5) * width, values[language]
                label = name if number == 0 else None
                axes.bar(at, points.mean() - 1, width * 0.92, bottom=1, color=COLOURS[place], label=label)
                axes.plot([at] * len(points), points, ".", color="black", markersize=3)
                axes.text(at, 1.005, f"{points.mean():.2f}", ha="center", va="bottom", fontsize=7, color="white")
                print(f"{language:<9} {name:<32} {points.mean():.3f}  ({points.min():.3f} to {points.max():.3f})")
        axes.set_xticks(range(len(LANGUAGES)), list(LANGUAGES.values()))
        axes.set_ylabel("tokens per pass (plain: 1.0)")
        figure.legend(loc="outside upper center", ncols=2)
        figure.savefig(FIGURE)
    print(FIGURE)


if __name__ == "__main__":
    main()
