"""A measurement on disk: all figures, the page, and the manifest, in one step; see `artifacts.fairness`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spectool.artifacts.formats.fairness import FIGURES, FORMAT, VERSION
from spectool.artifacts.manifest import Manifest, seal
from spectool.artifacts.replacing import writing
from spectool.measure.fairness.page import fairness_files
from spectool.measure.fairness.texts import TaskText


def write(
    out: Path,
    figures: Mapping[str, Any],
    arguments: Mapping[str, Any],
    tokenizers: Mapping[str, Mapping[str, Any]],
    texts: Mapping[str, TaskText],
) -> Manifest:
    """Write a measurement.

    Args:
        out: Directory to make or replace.
        figures: As `artifacts.fairness` describes them.
        arguments: What was asked for.
        tokenizers: Identities by role.
        texts: By task.

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


def _statistics(figures: Mapping[str, Any]) -> dict[str, Any]:
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
