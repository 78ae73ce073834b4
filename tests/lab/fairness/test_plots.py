"""Plots name what was measured, whatever its name."""

from html import unescape
from typing import Any

import pytest

from spectool.lab.fairness.page import fairness_plots

NAMES = ("$5 or $6", "_hidden", "$\\frac{$", "plain")


@pytest.fixture
def figures() -> dict[str, Any]:
    at = {"speedup": 1.5, "speedup_error": 0.1, "rows": 8, "acceptance": 0.7, "draft_misfit": 0.4, "target_misfit": 0.3}
    at |= {"examples": [[0.6, 0.7], [0.5, 0.6]]}
    dictionary = {"tokens_per_pass": 1.2, "error": 0.1, "built_from_it": False}
    return {
        "tasks": {name: {"rows": 8} for name in NAMES},
        "drafts": {
            name: {"compared": "one vocabulary", "tasks": {task: dict(at) for task in NAMES}} for name in NAMES[:2]
        },
        "dictionaries": {name: {"tasks": {task: dict(dictionary) for task in NAMES}} for name in NAMES[2:]},
    }


def test_names_are_drawn_as_they_are(figures: dict[str, Any]) -> None:
    drawn = {name: unescape(svg) for name, svg in fairness_plots(figures).items()}
    for name in NAMES:
        assert drawn["speedup"].count(f"{name}</text>") == 2, "once as a task, once as a way to draft"
        for draft in NAMES[:2]:
            assert f"{name}</text>" in drawn[f"fitness-{draft}"], "in the legend"
