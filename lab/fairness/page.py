"""A measurement on disk: its figures, and a page that lays them out for a reader who sees them for the first time."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from spectool.artifacts.atomic import writing
from spectool.artifacts.manifest import Manifest, seal
from spectool.lab.fairness.plots import draw_all
from spectool.lab.fairness.saved import FIGURES, FORMAT, VERSION
from spectool.lab.fairness.texts import TaskText
from spectool.lab.fairness.verdict import PLAIN, Mean, speed_of, speeds
from spectool.measure.page import NONE, cell, page_files

Figures = Mapping[str, Any]
TITLE = "Who is served how well"


def fairness_files(figures: Figures) -> dict[str, str]:
    """Return the page's files by name, from figures as `artifacts.formats.fairness` has them."""
    plots = draw_all(figures)
    dictionaries = {name: found["tasks"] for name, found in figures["dictionaries"].items()}
    fertility = figures["fertility"]["tokenizers"]
    columns = ("documents", "words", "rows", "tokens", "left_out")
    return page_files(
        "fairness.jinja",
        TITLE,
        figures=figures,
        plots={"speedup": plots.get("speedup")},
        speeds=_speeds(figures),
        drafts={name: _draft(figures, name) | {"plot": plots.get(f"fitness-{name}")} for name in figures["drafts"]},
        fertility=_across(figures, fertility, lambda at: f"{at['fertility']:.2f} ({at['tax']:.2f})"),
        words=_words(figures),
        dictionaries=_across(figures, dictionaries, _replayed),
        own_text=any(at["built_from_it"] for tasks in dictionaries.values() for at in tasks.values()),
        texts=pd.DataFrame(
            {c.replace("_", " "): {task: f"{at[c]:,}" for task, at in figures["tasks"].items()} for c in columns}
        ),
    )


def _across(figures: Figures, found: Mapping[str, Any], spell: Callable[[Any], str]) -> pd.DataFrame:
    """Return a table of tasks across, from the figures of each name and task."""
    return pd.DataFrame({task: {name: spell(one[task]) for name, one in found.items()} for task in figures["tasks"]})


def _speeds(figures: Figures) -> pd.DataFrame:
    kinds = {PLAIN: "", **dict.fromkeys(figures["drafts"], " (draft)")}
    kinds |= dict.fromkeys(figures["dictionaries"], " (dictionary)")
    found = speeds(figures).items()
    return pd.DataFrame(
        {task: {name + kind: str(at.get(name, NONE)) for name, kind in kinds.items()} for task, at in found}
    )


def _draft(figures: Figures, name: str) -> dict[str, Any]:
    """Return the tables of a draft, tasks down; those of acceptance only where it could be compared."""
    draft, tasks = figures["drafts"][name], figures["drafts"][name]["tasks"]
    bits = {task: _bits(at, figures["tasks"][task]) for task, at in tasks.items()}
    found: dict[str, Any] = {"bits": pd.DataFrame(bits).T}
    if draft["compared"] != "text":
        found["acceptance"] = pd.DataFrame({task: _acceptance(at) for task, at in tasks.items()}).T
        found["bounds"] = pd.DataFrame({task: _bounds(at) for task, at in tasks.items()}).T
        found["odd"] = [task for task, at in tasks.items() if at["target_misfit"] > at["draft_misfit"]]
    return found


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
        "at least, by KL": least.get("kl", NONE),
        "by D": least.get("cross_entropy", NONE),
        "by fitness": least["fitness"],
    }


def _words(figures: Figures) -> pd.DataFrame | None:
    """Return what a word costs; None where drafting's speed is not known, or words are not what is compared."""
    main = figures["verdict"]["draft"]
    if figures["drafts"][main]["compared"] == "text" or figures["fertility"]["parallel"]:
        return None
    fertility = {task: at["fertility"] for task, at in figures["fertility"]["tokenizers"]["target"].items()}
    drafted = {task: cell(fertility[task] / at[main].value) for task, at in speeds(figures).items()}
    return pd.DataFrame({"plain": {task: cell(each) for task, each in fertility.items()}, "with the draft": drafted})


def _replayed(at: Figures) -> str:
    spelt = f"{at['tokens_per_pass']:.2f} ({at['coverage']:.0%}, {at['acceptance']:.0%})"
    return spelt + ("*" if at["built_from_it"] else "")


def write(
    out: Path,
    figures: Figures,
    arguments: Mapping[str, Any],
    tokenizers: Mapping[str, Mapping[str, Any]],
    texts: Mapping[str, TaskText],
) -> Manifest:
    """Write a measurement, with what was asked for, identities of tokenizers by role, and texts by task.

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
