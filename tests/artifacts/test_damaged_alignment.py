"""Broken alignments: missing and wrong arrays are named when one is opened."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spectool import ArtifactError
from spectool.artifacts.alignment import Alignment, require_checked

from .parts import edit
from .small_alignment import ARRAYS, made, rewrite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return made(tmp_path)


@pytest.mark.parametrize("array", ARRAYS)
def test_missing_arrays(path: Path, array: str) -> None:
    edit(path, lambda parts: parts.arrays.pop(array))
    with pytest.raises(ArtifactError, match=rf"x\.align: {array}: missing\. Align again"):
        Alignment(path)


@pytest.mark.parametrize(
    ("array", "values", "kind", "found"),
    [
        ("draft_token_bytes_offsets", [0, 1, 2, 4], "uint32", "uint32 4, expected uint32 5"),
        ("target_token_bytes_offsets", [0, 1, 2, 3], "int64", "int64 4, expected uint32 4"),
        ("draft_to_target", [1, 0, -1], "int32", "int32 3, expected int32 4"),
        ("prefix_index", [0, 2, 1, 0, 1], "int32", "5 rows, expected at most 4"),
        ("target_risks", [0, 0.5], "float16", "float16 2, expected float16 3"),
        ("target_risks", [0, 0.5, 1.5], "float16", "risks outside 0 to 1"),
        ("draft_risks", [0, 0.5, -np.inf, 1], "float16", "risks outside 0 to 1"),
    ],
)
def test_wrong_arrays(path: Path, array: str, values: list[Any], kind: str, found: str) -> None:
    rewrite(path, array, values, kind)
    with pytest.raises(ArtifactError, match=f"{array}: {found}"):
        Alignment(path)


@pytest.mark.parametrize("offsets", [[0, 2, 1, 4, 4], [1, 1, 2, 4, 4], [0, 1, 2, 4, 5]])
def test_lists_out_of_order_are_found(path: Path, offsets: list[int]) -> None:
    rewrite(path, "draft_token_bytes_offsets", offsets)
    with pytest.raises(ArtifactError, match="draft_token_bytes: lists out of order"):
        Alignment(path)


@pytest.mark.parametrize(
    ("array", "values", "message"),
    [
        ("draft_to_target", [1, 0, -2, -1], "ids outside -1 to 2"),
        ("draft_to_target", [1, 0, 3, -1], "ids outside -1 to 2"),
        ("target_to_draft", [1, 4, -1], "ids outside -1 to 3"),
        ("draft_to_target", [1, 2, -1, -1], "an id is shared in one direction only"),
        ("target_to_draft", [1, 0, 2], "an id is shared in one direction only"),
        ("prefix_index", [0, 2, 4], "ids outside 0 to 3"),
        ("prefix_index", [0, -1, 1], "ids outside 0 to 3"),
    ],
)
def test_opening_finds_what_is_wrong(path: Path, array: str, values: list[Any], message: str) -> None:
    rewrite(path, array, values)
    with pytest.raises(ArtifactError, match=rf"{array}: {message}\. Align again"):
        Alignment(path)


@pytest.mark.parametrize("different", [math.inf, 10**400, 10, -1, "many"])
def test_figures_of_a_check_that_cannot_be(path: Path, different: Any) -> None:
    side = {"check": {"places": 9, "different": different, "example": ""}}
    counts = {"other_tokens": 0, "different_tokens": 0}
    manifest = replace(
        Alignment(path).manifest,
        statistics={"draft": side, "target": side, "target_to_draft": counts, "draft_to_target": counts},
    )
    with pytest.raises(ArtifactError, match=r"lacks a figure or has a wrong one .*Align again"):
        require_checked(path, manifest)
