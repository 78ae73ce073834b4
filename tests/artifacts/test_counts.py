"""The counts format: what is written is read, and one broken artifact for each invariant."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spectool import ArtifactError
from spectool.artifacts.artifact import verify_artifact
from spectool.artifacts.counts import Counts, Level, count_arrays
from spectool.cli import main

Columns = tuple[list[int], list[int], list[int]]
ROWS: dict[int, Columns] = {
    1: ([0, 0, 0], [1, 2, 3], [9, 7, 2]),
    2: ([0, 0, 1, 2], [2, 3, 1, 1], [4, 2, 5, 2]),
    3: ([0, 2], [1, 2], [3, 2]),
}
TOKENIZERS = {"target": {"name": "t", "fingerprint": "0" * 64, "size": 3}}
INPUTS = {"corpus": "small.txt", "documents": 1, "characters": 99, "repaired": {}, "language": None}


def write(
    out: Path,
    levels: dict[int, Columns] = ROWS,
    arguments: dict[str, Any] | None = None,
    tokenizers: dict[str, Any] | None = None,
    **statistics: Any,
) -> Path:
    """Write counts, right or wrong."""
    kinds = (np.int32, np.int32, np.int64)
    made = {
        order: Level(*(np.array(values, dtype=kind) for values, kind in zip(columns, kinds, strict=True)))
        for order, columns in levels.items()
    }
    orders = {str(order): {"kept": len(counts)} for order, (_, _, counts) in levels.items()}
    Counts.write(
        out,
        count_arrays(made),
        arguments={"kind": "windows", "orders": max(levels), "min_count": 2, **(arguments or {})},
        tokenizers=TOKENIZERS if tokenizers is None else tokenizers,
        inputs=INPUTS,
        statistics={"total": 20, "orders": orders, **statistics},
    )
    return out


def test_what_is_written_is_read(tmp_path: Path) -> None:
    counts = Counts(write(tmp_path / "x"))
    verify_artifact(counts.path)
    assert (counts.orders, counts.min_count, counts.total, counts.symbols) == (3, 2, 20, 3)
    assert counts.fingerprint == TOKENIZERS["target"]["fingerprint"]
    for order, columns in ROWS.items():
        assert tuple(column.tolist() for column in counts.level(order)) == columns
    assert counts.spelled(3, np.array([1, 0])).tolist() == [[2, 1, 2], [1, 2, 1]]
    assert counts.spelled(2, np.arange(4)).tolist() == [[1, 2], [1, 3], [2, 1], [3, 1]]


def changed(order: int, column: int, row: int, value: int) -> dict[int, Columns]:
    levels = {n: tuple(list(values) for values in columns) for n, columns in ROWS.items()}
    levels[order][column][row] = value
    return levels  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        (changed(1, 0, 1, 1), "n1_prefix: a prefix is no row of the order before"),
        (changed(2, 0, 3, 3), "n2_prefix: a prefix is no row of the order before"),
        (changed(3, 0, 0, -1), "n3_prefix: a prefix is no row of the order before"),
        (changed(2, 1, 0, 0), "n2_symbol: a symbol is none of the vocabulary"),
        (changed(2, 1, 3, 4), "n2_symbol: a symbol is none of the vocabulary"),
        (changed(2, 1, 0, 3), "n2_prefix: rows are not in order"),
        (changed(3, 0, 0, 3), "n3_prefix: rows are not in order"),
        (changed(3, 2, 0, 1), "n3_count: a count is below the minimum of 2"),
        (changed(2, 2, 0, 10), "n2_count: an n-gram occurs more often than its prefix"),
        (changed(1, 2, 0, 21), "n1_count: an n-gram occurs more often than its prefix"),
    ],
)
def test_verify_finds_what_is_wrong(levels: dict[int, Columns], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=problem):
        verify_artifact(write(tmp_path / "x", levels))


@pytest.mark.parametrize(
    ("arguments", "statistics", "problem"),
    [
        ({"kind": "words"}, {}, "kind is 'words', expected 'windows'"),
        ({}, {"tokenizers": {}}, "names no target tokenizer"),
        ({"orders": 17}, {}, "orders is 17"),
        ({"orders": "3"}, {}, "orders is '3'"),
        ({"orders": 4}, {}, "no number of kept n-grams of order 4"),
        ({"min_count": 0}, {}, "min_count is 0"),
        ({}, {"total": None}, "total is None"),
        ({}, {"orders": {}}, "no number of kept n-grams of order 1"),
        ({}, {"orders": {"1": {"kept": 4}}}, "n1_prefix: int32 3, expected int32 4"),
    ],
)
def test_manifests_that_do_not_fit_are_refused(
    arguments: dict[str, Any], statistics: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    write(tmp_path / "x", arguments=arguments, **statistics)
    with pytest.raises(ArtifactError, match=problem):
        Counts(tmp_path / "x")


def test_inspect_and_verify_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "x")
    main(["verify", str(tmp_path / "x")], standalone_mode=False)
    assert "whole (spectool-counts 3, " in capsys.readouterr().out
    main(["inspect", str(tmp_path / "x")], standalone_mode=False)
    shown = capsys.readouterr().out
    assert re.search(r"^ +total 20$", shown, re.MULTILINE)
    assert "small.txt" in shown and "documents 1" in shown and "characters 99" in shown
    main(["inspect", str(tmp_path / "x"), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["statistics"]["orders"]["2"]["kept"] == 4
