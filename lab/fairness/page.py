"""A fairness measurement on disk: all its figures, and a page that explains them.

    fairness.json              all figures
    report.html  report.md     the same for people, with plots as *.svg
    manifest.json              arguments: what was asked for; inputs: text by task; statistics: the verdict

fairness.json, with the names given on the command line, lengths in tokens and divergences in nats:

    gamma           draft tokens of a pass
    target          name, bytes (of weights)
    tasks           by task: documents, words, rows, tokens (of the rows), left_out (passages that some tokenizer does
                    not spell), bits_per_byte and nats_per_token of the target on the rows
    drafts          by draft: path, bytes, cost (of a pass, in passes of the target), cost_stated (or from bytes),
                    compared ("one vocabulary" or "shared ids"), shared_ids, unfairness, unfairness_kl, spearman (of
                    fitness and acceptance over the rows of all tasks), sure_gaps (pairs of tasks, the first with the
                    larger acceptance by Corollary 2), and by task what `places` measures and `formulas` makes of it,
                    with by_temperature (acceptance) and examples (fitness and acceptance of each row)
    dictionaries    by dictionary: path, and by task tokens_per_pass with its standard error, coverage, acceptance, and
                    whether it was built_from_it: from the text that was replayed
    fertility       reference, parallel, and by tokenizer and task: tokens, fertility, tax
    verdict         sentence, and what it rests on
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from spectool.artifacts.atomic import writing
from spectool.artifacts.manifest import Manifest, seal
from spectool.lab.fairness.texts import TaskText
from spectool.lab.fairness.verdict import PLAIN, Mean, speed_of, speeds
from spectool.lab.plotting import drawn, literal, look_of
from spectool.measure.page import NO_FIGURE, cell, page_files

FORMAT, VERSION = "spectool-fairness", 1
FIGURES = "fairness.json"
Figures = Mapping[str, Any]


def fairness_files(figures: Figures) -> dict[str, str]:
    """The files of the page by name."""
    plots = fairness_plots(figures)
    dictionaries = {name: found["tasks"] for name, found in figures["dictionaries"].items()}
    fertility = figures["fertility"]["tokenizers"]
    columns = ("documents", "words", "rows", "tokens", "left_out")
    return page_files(
        "fairness.jinja",
        "Who is served how well",
        figures=figures,
        plots={"speedup": plots["speedup"]},
        speeds=_speeds(figures),
        drafts={name: _draft(figures, name) | {"plot": plots[f"fitness-{name}"]} for name in figures["drafts"]},
        fertility=_across(figures, fertility, lambda at: f"{at['fertility']:.2f} ({at['tax']:.2f})"),
        words=_words(figures),
        dictionaries=_across(figures, dictionaries, _replayed),
        own_text=any(at["built_from_it"] for tasks in dictionaries.values() for at in tasks.values()),
        texts=pd.DataFrame(
            {c.replace("_", " "): {task: f"{at[c]:,}" for task, at in figures["tasks"].items()} for c in columns}
        ),
    )


def _across(figures: Figures, found: Mapping[str, Any], spell: Callable[[Any], str]) -> pd.DataFrame:
    """A table with a column for each task and a row for each name."""
    return pd.DataFrame({task: {name: spell(one[task]) for name, one in found.items()} for task in figures["tasks"]})


def _speeds(figures: Figures) -> pd.DataFrame:
    kinds = {PLAIN: "", **dict.fromkeys(figures["drafts"], " (draft)")}
    kinds |= dict.fromkeys(figures["dictionaries"], " (dictionary)")
    found = speeds(figures).items()
    return pd.DataFrame(
        {task: {name + kind: str(at.get(name, NO_FIGURE)) for name, kind in kinds.items()} for task, at in found}
    )


def _draft(figures: Figures, name: str) -> dict[str, Any]:
    """The tables of a draft, with a row for each task."""
    tasks = figures["drafts"][name]["tasks"]
    return {
        "bits": pd.DataFrame({task: _bits(at, figures["tasks"][task]) for task, at in tasks.items()}).T,
        "acceptance": pd.DataFrame({task: _acceptance(at) for task, at in tasks.items()}).T,
        "bounds": pd.DataFrame({task: _bounds(at) for task, at in tasks.items()}).T,
        "odd": [task for task, at in tasks.items() if at["target_misfit"] > at["draft_misfit"]],
    }


def _bits(at: Figures, of_target: Figures) -> dict[str, str]:
    return {
        "draft, bits per byte": cell(at["bits_per_byte"], ".3f"),
        "target, bits per byte": cell(of_target["bits_per_byte"], ".3f"),
        "draft / target": cell(at["bits_per_byte"] / of_target["bits_per_byte"]),
        "draft, nats per token": cell(at["nats_per_token"]),
    }


def _acceptance(at: Figures) -> dict[str, str]:
    alpha = Mean(at["acceptance"], at["acceptance_error"], at["rows"])
    return {
        "alpha": f"{alpha.value:.1%} ± {alpha.reach:.1%}",
        "D": cell(at["cross_entropy"], ".3f"),
        "KL": cell(at["kl"], ".3f"),
        "tokens a pass": cell(at["tokens_per_pass"]),
        "speed-up": str(speed_of(at)),
        "by place": cell(at["speedup_by_place"]),
        **{f"alpha at {temperature}": f"{alpha:.1%}" for temperature, alpha in at["by_temperature"].items()},
        "places": f"{at['places']:,} ({at['share']:.0%})",
    }


def _bounds(at: Figures) -> dict[str, str]:
    fitness = 1 - at["draft_misfit"]
    least = {name: cell(bound["speedup"]) for name, bound in at["bounds"].items()}
    return {
        "draft fitness": cell(fitness, ".1%"),
        "target fitness": cell(1 - at["target_misfit"], ".1%"),
        "|alpha - (1 - r_q)| ≤ r_p": f"{abs(at['acceptance'] - fitness):.1%} ≤ {at['target_misfit']:.1%}",
        "speed-up": cell(at["speedup"]),
        "at least, by KL": least.get("kl", NO_FIGURE),
        "by D": least.get("cross_entropy", NO_FIGURE),
        "by fitness": least["fitness"],
    }


def _words(figures: Figures) -> pd.DataFrame | None:
    """What a word costs; None for parallel texts, whose words are not what is compared."""
    main = figures["verdict"]["draft"]
    if figures["fertility"]["parallel"]:
        return None
    fertility = {task: at["fertility"] for task, at in figures["fertility"]["tokenizers"]["target"].items()}
    drafted = {task: cell(fertility[task] / at[main].value) for task, at in speeds(figures).items()}
    return pd.DataFrame({"plain": {task: cell(each) for task, each in fertility.items()}, "with the draft": drafted})


def _replayed(at: Figures) -> str:
    spelt = f"{at['tokens_per_pass']:.2f} ({at['coverage']:.0%}, {at['acceptance']:.0%})"
    return spelt + ("*" if at["built_from_it"] else "")


def fairness_plots(figures: Figures) -> dict[str, str]:
    """The plots as SVG by name: ``speedup``, and ``fitness-DRAFT`` for each draft."""
    found = {"speedup": _speed_plot(figures)}
    return found | {f"fitness-{name}": _fitness_plot(draft) for name, draft in figures["drafts"].items()}


def _speed_plot(figures: Figures) -> str:
    by_task, names = speeds(figures), [*figures["drafts"], *figures["dictionaries"]]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axvline(1, color="#666666", linewidth=1)
        axes.annotate(PLAIN, (1, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=8)
        for number, name in enumerate(names):
            shift = 0.5 * ((number + 0.5) / len(names) - 0.5)
            points = [(known[name], at + shift) for at, known in enumerate(by_task.values()) if name in known]
            x, arms = [speed.value for speed, _ in points], [speed.reach for speed, _ in points]
            look = {"linestyle": "none", **look_of(number)}
            axes.errorbar(x, [y for _, y in points], xerr=arms, markersize=5, label=literal(name), **look)
        axes.set_yticks(range(len(by_task)), [literal(task) for task in by_task])
        axes.set(ylim=(len(by_task) - 0.5, -0.5), xlabel="expected speed against plain decoding")
        figure.legend(loc="outside lower center", ncols=min(4, len(names)))

    return drawn(6.0, 1.3 + 0.5 * len(by_task), draw)


def _fitness_plot(draft: Figures) -> str:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
        for number, (task, at) in enumerate(draft["tasks"].items()):
            look = {"linestyle": "none", **look_of(number)}
            fitness, misfit = 1 - at["draft_misfit"], at["target_misfit"]
            ends = [max(0.0, fitness - misfit), min(1.0, fitness + misfit)]
            axes.plot([fitness, fitness], ends, color=look["color"], alpha=0.35, linewidth=4, solid_capstyle="butt")
            axes.plot(*zip(*at["examples"], strict=True), ".", color=look["color"], alpha=0.25, markersize=3)
            axes.plot(fitness, at["acceptance"], markersize=6, label=literal(task), **look)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="draft fitness 1 - r_q", ylabel="acceptance alpha")
        axes.legend()

    return drawn(4.2, 3.4, draw)


def write(
    out: Path,
    figures: Figures,
    arguments: Mapping[str, Any],
    tokenizers: Mapping[str, Mapping[str, Any]],
    texts: Mapping[str, TaskText],
) -> Manifest:
    """Write a measurement: its figures, what was asked for, identities of tokenizers by role, and texts by task.

    Raises:
        ArtifactError: ``out`` cannot be written, or something else is there.
    """
    files = {FIGURES: json.dumps(figures, ensure_ascii=False, indent=1) + "\n", **fairness_files(figures)}
    with writing(out) as folder:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return seal(folder, Manifest(FORMAT, VERSION, arguments, tokenizers, _inputs(texts), _statistics(figures)))


def _inputs(texts: Mapping[str, TaskText]) -> dict[str, Any]:
    read = {task: text.inputs for task, text in texts.items()}
    return {
        "corpus": ", ".join(f"{task}={inputs['corpus']}" for task, inputs in read.items()),
        "documents": sum(inputs["documents"] for inputs in read.values()),
        "characters": sum(inputs["characters"] for inputs in read.values()),
        "tasks": read,
    }


def _statistics(figures: Figures) -> dict[str, Any]:
    return {
        "verdict": figures["verdict"]["sentence"],
        "drafts": {
            name: {
                "compared": draft["compared"],
                "unfairness": draft["unfairness"],
                "acceptance": {task: at["acceptance"] for task, at in draft["tasks"].items()},
                "speedup": {task: at["speedup"] for task, at in draft["tasks"].items()},
            }
            for name, draft in figures["drafts"].items()
        },
        "tasks": {task: at["rows"] for task, at in figures["tasks"].items()},
        "dictionaries": list(figures["dictionaries"]),
    }
