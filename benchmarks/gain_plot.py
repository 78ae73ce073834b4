"""Draw docs/figures/gain.svg, README's plot: tokens per pass with pretrained models, the published methods beside ours.

    python benchmarks/gain_plot.py

It reads what ``real_drafters.py`` and ``real_ladder.py`` have saved. These are look-ups on text that models wrote at
temperature 0.7, and drafts of a model with another tokenizer. A cycle has four draft tokens. Lines are 95% intervals.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from spectool.lab.plotting import COLOURS, STYLE

RESULTS = Path(__file__).parent / "results"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "gain.svg"
SHORT = {
    "gemma3-270m": "Gemma 3 270M",
    "qwen2.5-coder-1.5b": "Qwen2.5 1.5B",
    "smollm2-135m": "SmolLM2 135M",
    "bielik-11b-v2.5": "Bielik 11B",
    "llama-3.2": "Llama 3.2",
    "qwen2.5-coder-0.5b": "Qwen2.5 0.5B",
}
LOOKUPS = {
    "prompt look-up (vLLM)": "prompt look-up",
    "DictSpec and prompt look-up": "DictSpec's hybrid",
    "dictionary and history": "spectool, dictionary and history",
}
STRATEGIES = {
    "context": "strings, windows both ways",
    "intersection": "shared tokens",
    "+ head absorption": "spectool, anchored",
}


def bars(axes: Axes, rows: pd.DataFrame, methods: dict[str, str], title: str) -> None:
    """Draw a group of bars for each value of ``group``, in the order of ``methods``."""
    groups = list(dict.fromkeys(rows.group))
    for place, (method, label) in enumerate(methods.items()):
        values = rows[rows.method == method].set_index("group")["tokens per pass"]
        found = [(x, *values[group]) for x, group in enumerate(groups) if group in values]
        xs, means, lows, highs = map(list, zip(*found, strict=True))
        errors = [
            [m - low for m, low in zip(means, lows, strict=True)],
            [h - m for m, h in zip(means, highs, strict=True)],
        ]
        own = COLOURS[0] if label.startswith("spectool") else COLOURS[place + 1]
        axes.bar(
            [x + 0.27 * (place - 1) for x in xs], [m - 1 for m in means], 0.25, 1, yerr=errors, label=label, color=own
        )
        print(title, label, dict(zip([groups[x] for x in xs], means, strict=True)))
    axes.set_xticks(range(len(groups)), groups)
    axes.set_title(title)
    axes.legend(frameon=False)


def main() -> None:
    """Draw both panels and print what they show."""
    drafters = (
        pd.read_json(RESULTS / "real_drafters.jsonl", lines=True, precise_float=True)
        .query("temperature == 0.7")
        .sort_values("model")
    )
    model = drafters.model.map(SHORT).str.replace(" ", "\n", n=1)
    drafters["group"] = model + "\n" + drafters.language.map({"pl": "Polish", "uk": "Ukrainian"})
    ladder = pd.read_json(RESULTS / "real_ladder.jsonl", lines=True).query("k == 4")
    language = ladder.language.map({"pl": "Polish", "en": "English"})
    draft = ladder.draft.map(SHORT).str.rsplit(n=1).str[0]
    ladder["group"] = draft + "\n→ " + ladder.target.map(SHORT) + "\n" + language
    with plt.rc_context(STYLE):
        ratios = [drafters.group.nunique(), ladder.group.nunique()]
        figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained", sharey=True, width_ratios=ratios)
        bars(axes[0], drafters.rename(columns={"drafter": "method"}), LOOKUPS, "No draft model")
        bars(axes[1], ladder.rename(columns={"strategy": "method"}), STRATEGIES, "A draft model with another tokenizer")
        axes[0].set_ylabel("tokens per pass")
        axes[0].set_ylim(1, 3)  # room for the legends
        figure.savefig(FIGURE)


if __name__ == "__main__":
    main()
