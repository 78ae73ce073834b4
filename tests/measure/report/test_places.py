"""Where drafts are accepted, against counting cycle by cycle."""

from collections import Counter
from pathlib import Path

import pytest

from spectool.artifacts.benchmark import Benchmark, Row
from spectool.measure.report.summary import verdicts
from spectool.measure.report.tables import by_place, by_position, by_temperature
from spectool.measure.report.trials import read_trials
from spectool.tests.measure.report.runs import rows_of, write_run


@pytest.fixture(scope="module")
def drawn() -> tuple[list[Row], list[Row]]:
    return rows_of(prompts=4, lengths=(2, 4))


def labels(generations: list[Row]) -> dict[tuple[int, int], str]:
    return {
        (row["block"], row["order"]): ", ".join(filter(None, (row["drafter"], row["strategy"])))
        + f", k = {row['num_draft_tokens']}"
        for row in generations
    }


def test_places_in_the_draft(tmp_path: Path, drawn: tuple[list[Row], list[Row]]) -> None:
    generations, cycles = drawn
    looked, kept, names = Counter[tuple[str, int]](), Counter[tuple[str, int]](), labels(generations)
    for cycle in cycles:
        name = names[cycle["block"], cycle["order"]]
        for place in range(cycle["proposed"]):
            if place <= cycle["accepted"]:
                looked[name, place] += 1
            kept[name, place] += place < cycle["accepted"]
    (table,) = by_place(read_trials(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))).values()
    assert list(table) == [f"token {place}" for place in range(1, 5)] and len(table) == 6
    for name, row in table.iterrows():
        for place, cell in enumerate(row):
            many = looked[name, place] >= 20
            assert cell == (f"{kept[name, place] / looked[name, place]:.0%}" if many else "—"), (name, place)


def test_positions_in_the_text(tmp_path: Path, drawn: tuple[list[Row], list[Row]]) -> None:
    generations, cycles = drawn
    proposed, accepted, names = Counter[tuple[str, int]](), Counter[tuple[str, int]](), labels(generations)
    for cycle in cycles:
        place = next(number for number, end in enumerate((16, 32, 64)) if cycle["position"] < end)
        proposed[names[cycle["block"], cycle["order"]], place] += cycle["proposed"]
        accepted[names[cycle["block"], cycle["order"]], place] += cycle["accepted"]
    (table,) = by_position(read_trials(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))).values()
    assert list(table) == ["0 to 15", "16 to 31", "32 to 63"]
    for name, row in table.iterrows():
        assert list(row) == [f"{accepted[name, place] / proposed[name, place]:.0%}" for place in range(3)]


def test_temperatures_side_by_side(tmp_path: Path, drawn: tuple[list[Row], list[Row]]) -> None:
    generations, cycles = drawn
    warm, warm_cycles = rows_of(prompts=4, seed=1)
    warm = [{**row, "block": row["block"] + 1000, "temperature": 0.7} for row in warm]
    warm_cycles = [{**cycle, "block": cycle["block"] + 1000} for cycle in warm_cycles]
    alone = read_trials(Benchmark(write_run(tmp_path / "x.bench", generations, cycles)))
    both = read_trials(Benchmark(write_run(tmp_path / "y.bench", generations + warm, cycles + warm_cycles)))
    assert by_temperature(alone) == {}
    assert [verdict.scope for verdict in verdicts(both)] == [
        f"target, {language}, temperature {temperature}" for language in ("pl", "uk") for temperature in ("0", "0.7")
    ]
    assert {len(verdict.every) for verdict in verdicts(both)} == {6}
    polish = by_temperature(both)[" Here: language pl."]
    assert list(polish.index) == list(alone.drafted.label.unique()) and len(polish.columns) == 6
    for label, row in polish.iterrows():
        for name, rows in (("0", generations), ("0.7", warm)):
            seen = [row for row in rows if row["language"] == "pl"]
            seen = [row for row in seen if labels(rows)[row["block"], row["order"]] == label]
            tokens, passes, kept, made = (
                sum(row[name] for row in seen) for name in ("tokens", "passes", "accepted", "proposed")
            )
            assert row[f"{name}: accepted"] == f"{kept / made:.0%}"
            assert row[f"{name}: tokens per pass"] == f"{tokens / passes:.2f}"
