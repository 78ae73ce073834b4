"""The sentence: who is slow, by how much, what helps, and when nothing can be said."""

from typing import Any

import numpy as np
import pytest

from spectool.lab.fairness.formulas import expected_speedup, ratio, slope
from spectool.lab.fairness.verdict import NO_DRAFTING, speeds, verdict


def figures(
    drafts: dict[str, dict[str, float | None]],
    dictionaries: dict[str, dict[str, float]] | None = None,
    error: float = 0.01,
    rows: int = 64,
) -> dict[str, Any]:
    tasks = next(iter(drafts.values()))
    return {
        "tasks": {task: {"bits_per_byte": 1.0, "rows": rows} for task in tasks},
        "drafts": {
            name: {
                "compared": "text" if None in by_task.values() else "one vocabulary",
                "tasks": {
                    task: {
                        "speedup": speed,
                        "speedup_error": error,
                        "rows": rows,
                        "bits_per_byte": 1.2 + 0.1 * number,
                    }
                    for number, (task, speed) in enumerate(by_task.items())
                },
            }
            for name, by_task in drafts.items()
        },
        "dictionaries": {
            name: {
                "tasks": {
                    task: {"tokens_per_pass": speed, "error": error, "built_from_it": False}
                    for task, speed in by_task.items()
                }
            }
            for name, by_task in (dictionaries or {}).items()
        },
    }


def test_a_dictionary_helps() -> None:
    found = verdict(figures({"d": {"pl": 2.0, "uk": 1.5}}, {"uk.dict": {"pl": 1.0, "uk": 1.75}}))
    assert found == {
        "sentence": "With d, the expected speed is 2.00 for pl, 1.50 for uk, where plain decoding's is 1. uk is slow: "
        "25% less than pl; what helps it most is the dictionary uk.dict, at 1.75, which closes 50% of the gap.",
        "draft": "d",
        "slow": "uk",
        "fast": "pl",
        "helps": "uk.dict",
    }


def test_the_best_of_several_helps() -> None:
    found = verdict(figures({"d": {"pl": 2.0, "uk": 1.5}, "e": {"pl": 1, "uk": 2.6}}, {"x": {"pl": 1.0, "uk": 1.75}}))
    assert found["helps"] == "e" and "the draft e, at 2.60, which closes 100% of the gap" in found["sentence"]


def test_nothing_helps() -> None:
    found = verdict(figures({"d": {"pl": 2.0, "uk": 1.5}}, {"x": {"pl": 1.0, "uk": 1.52}}))
    assert found["helps"] is None and found["sentence"].endswith("; nothing measured helps it.")
    found = verdict(figures({"d": {"pl": 2.0, "uk": 1.5}}))
    assert found["sentence"].endswith("; nothing else was measured that could help it.")


@pytest.mark.parametrize("dictionary", [0.9, 1.01])
def test_not_drafting_helps(dictionary: float) -> None:
    """A dictionary that finds nothing is no help, though it costs nothing."""
    found = verdict(figures({"d": {"pl": 1.2, "uk": 0.8}}, {"x": {"pl": 1.0, "uk": dictionary}}))
    assert found["helps"] == NO_DRAFTING and "1. Not drafting at all is faster for uk. uk is slow" in found["sentence"]
    assert found["sentence"].endswith("; nothing measured is faster for it than not drafting at all.")
    both = verdict(figures({"d": {"pl": 0.9, "uk": 0.8}}, {"x": {"pl": 1.0, "uk": 1.2}}))
    assert "1. Not drafting at all is faster for every task. uk is slow" in both["sentence"]
    assert both["sentence"].endswith(
        "what helps it most is the dictionary x, at 1.20, compared with 1.00 without drafting."
    )


def test_chance_makes_nobody_slow() -> None:
    found = verdict(figures({"d": {"pl": 2.0, "uk": 1.9}}, error=0.1))
    assert (found["slow"], found["fast"], found["helps"]) == (None, None, None)
    assert found["sentence"].endswith(" No task is slower than another beyond chance.")
    assert verdict(figures({"d": {"pl": 2.0, "uk": 1.9}}, error=0.01))["slow"] == "uk"


def test_one_task() -> None:
    found = verdict(figures({"d": {"uk": 1.5}}, {"x": {"uk": 1.9}}))
    assert found["sentence"] == (
        "With d, the expected speed is 1.50 for uk, where plain decoding's is 1. One task alone was measured; what "
        "helps it most is the dictionary x, at 1.90."
    )


def test_a_dictionary_of_the_same_text_does_not_count() -> None:
    made = figures({"d": {"pl": 2.0, "uk": 1.5}}, {"x": {"pl": 5.0, "uk": 5.0}})
    made["dictionaries"]["x"]["tasks"]["uk"]["built_from_it"] = True
    assert "x" not in speeds(made)["uk"] and "x" in speeds(made)["pl"]
    assert verdict(made)["helps"] is None


@pytest.mark.parametrize("slow", ["pl", "uk"])
def test_the_order_of_tasks_does_not_matter(slow: str) -> None:
    other = "uk" if slow == "pl" else "pl"
    assert verdict(figures({"d": {slow: 1.1, other: 1.6}}))["slow"] == slow
    assert verdict(figures({"d": {other: 1.6, slow: 1.1}}))["slow"] == slow


def drawn(rng: np.random.Generator, rows: int, tasks: int, drafts: int) -> dict[str, Any]:
    """Figures of drafts that serve all tasks alike, from rows that differ in length and acceptance."""
    made = figures({f"d{draft}": {f"t{task}": 1.0 for task in range(tasks)} for draft in range(drafts)}, rows=rows)
    for at in (at for draft in made["drafts"].values() for at in draft["tasks"].values()):
        lengths = rng.integers(20, 128, size=rows)
        acceptance, error = ratio(rng.binomial(lengths, rng.beta(4, 4, size=rows)).tolist(), lengths.tolist())
        at |= {"speedup": expected_speedup(acceptance, 5, 0.1), "speedup_error": slope(acceptance, 5) * error / 1.5}
    return made


@pytest.mark.parametrize("rows", [4, 64])
@pytest.mark.parametrize("tasks", [2, 4, 8])
def test_false_alarms_of_equal_tasks(tasks: int, rows: int) -> None:
    """However many tasks there are to choose the slowest of, and however few rows."""
    rng = np.random.default_rng(tasks)
    alarms = sum(verdict(drawn(rng, rows, tasks, 1))["slow"] is not None for _ in range(300))
    assert alarms / 300 <= 0.06


@pytest.mark.parametrize("rows", [4, 64])
@pytest.mark.parametrize("drafters", [1, 8])
def test_false_alarms_of_equal_drafters(drafters: int, rows: int) -> None:
    rng = np.random.default_rng(drafters)
    alarms = sum(verdict(drawn(rng, rows, 1, 1 + drafters))["helps"] is not None for _ in range(300))
    assert alarms / 300 <= 0.05


def test_a_task_of_wide_error_hides_no_other() -> None:
    made = figures({"d": {"pl": 2.0, "uk": 1.5, "crh": 1.4}}, {"x": {"pl": 1.0, "uk": 1.9, "crh": 1.0}})
    made["drafts"]["d"]["tasks"]["crh"]["speedup_error"] = 0.9
    found = verdict(made)
    assert (found["slow"], found["fast"], found["helps"]) == ("uk", "pl", "x")
    made["drafts"] |= figures({"e": dict.fromkeys(made["tasks"], 2.5)}, error=0.9)["drafts"]
    assert verdict(made)["helps"] == "x", "e may be faster, but may be by chance"


def test_few_rows_need_a_wider_gap() -> None:
    """The gap is 2.1 standard errors, beyond 1.96; three rows do not tell so much."""
    apart = {"d": {"pl": 2.0, "uk": 1.97}}
    assert verdict(figures(apart, rows=64))["slow"] == "uk"
    assert verdict(figures(apart, rows=3))["slow"] is None
