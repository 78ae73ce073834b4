"""Broken alignments: missing and wrong arrays are named when one is opened."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spectool import ArtifactError
from spectool.artifacts import alignment_checks
from spectool.artifacts.alignment import Alignment
from spectool.tokenization.token_bytes import Lists

from ..running import error_of, run
from .parts import edit, edit_manifest
from .small_alignment import ARRAYS, made, rewrite, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return made(tmp_path)


@pytest.mark.parametrize("array", ARRAYS)
def test_missing_arrays(path: Path, array: str) -> None:
    edit(path, lambda parts: parts.arrays.pop(array))
    with pytest.raises(ArtifactError, match=rf"x\.align: {array}: missing\. Align again"):
        Alignment(path)


def test_missing_tokenizers(tmp_path: Path) -> None:
    path = write(tmp_path / "x.align", roles=("draft",))
    with pytest.raises(ArtifactError, match=r"its manifest names no target tokenizer"):
        Alignment(path)


@pytest.mark.parametrize("by_ids", [None, 1, "yes", []])
def test_nothing_that_says_how_ids_are_joined(tmp_path: Path, by_ids: Any) -> None:
    path = write(tmp_path / "x.align", by_ids=(True, by_ids))
    with pytest.raises(ArtifactError, match=r"statistics\.target\.by_ids is .*, expected true or false"):
        Alignment(path)


@pytest.mark.parametrize("version", [3, 8, 10])
def test_other_versions(path: Path, version: int) -> None:
    edit_manifest(path, lambda manifest: manifest.update(version=version))
    with pytest.raises(
        ArtifactError, match=rf"{Alignment.format} version {version} .* reads version 9\. Align again with"
    ):
        Alignment(path)


@pytest.mark.parametrize("version", [0, 8, 10])
@pytest.mark.parametrize("tokenizers", [{}, None, [], "gone", {"draft": None}, {"draft": {"name": "d"}}])
def test_other_versions_without_their_tokenizers(path: Path, version: int, tokenizers: Any) -> None:
    edit_manifest(path, lambda manifest: manifest.update(version=version, tokenizers=tokenizers))
    if tokenizers == "gone":
        edit_manifest(path, lambda manifest: manifest.pop("tokenizers"))
    with pytest.raises(ArtifactError, match=rf"^{path}") as raised:
        Alignment(path)
    if tokenizers == {}:
        assert f"version {version} " in str(raised.value) and "align --draft DRAFT --target TARGET" in str(raised.value)
    assert str(raised.value).replace("\n", " ") in error_of(run("inspect", path)), "before any missing figure"


def test_flipped_bits_are_found(path: Path, rng: random.Random) -> None:
    """In any byte, at opening."""
    data = path.read_bytes()
    for _ in range(200):
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match=r"x\.align"):
            Alignment(path)


@pytest.mark.parametrize(
    ("array", "values", "kind", "found"),
    [
        ("draft_token_bytes_offsets", [0, 1, 2, 4], "uint32", "uint32 4, expected uint32 5"),
        ("target_token_bytes_offsets", [0, 1, 2, 3], "int64", "int64 4, expected uint32 4"),
        ("draft_to_target", [1, 0, -1], "int32", "int32 3, expected int32 4"),
        ("target_spellings_offsets", [0, 1, 2], "uint32", "uint32 3, expected uint32 4"),
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
def test_surfaces_out_of_order_are_found(path: Path, offsets: list[int]) -> None:
    assert list(Alignment(path).draft.token_bytes) == [b"a", b"b", b"ab", b""]
    rewrite(path, "draft_token_bytes_offsets", offsets)
    with pytest.raises(ArtifactError, match=r"draft_token_bytes_offsets: token bytes out of order"):
        Alignment(path)


@pytest.mark.parametrize("offsets", [[0, 2, 1, 4, 4], [1, 1, 2, 4, 4], [0, 1, 2, 4, 5], [0, 1, 2, 2, 2]])
def test_spellings_out_of_order_are_found(path: Path, offsets: list[int]) -> None:
    rewrite(path, "draft_spellings_offsets", offsets)
    with pytest.raises(ArtifactError, match=r"draft_spellings: lists out of order"):
        Alignment(path)


@pytest.mark.parametrize(
    ("array", "values", "message"),
    [
        ("draft_to_target", [1, 0, -2, -1], "ids outside -1 to 2"),
        ("draft_to_target", [1, 0, 3, -1], "ids outside -1 to 2"),
        ("target_to_draft", [1, 4, -1], "ids outside -1 to 3"),
        ("draft_to_target", [1, 2, -1, -1], "an id is shared in one direction only"),
        ("target_to_draft", [1, 0, 2], "an id is shared in one direction only"),
        ("draft_spellings", [1, 0, 3, 0], "ids outside 0 to 2"),
        ("draft_spellings", [1, -1, 1, 0], "ids outside 0 to 2"),
        ("target_spellings", [1, 4], "ids outside 0 to 3"),
        ("prefix_index", [0, 2, 4], "ids outside 0 to 3"),
        ("prefix_index", [0, -1, 1], "ids outside 0 to 3"),
    ],
)
def test_opening_finds_what_is_wrong(path: Path, array: str, values: list[Any], message: str) -> None:
    rewrite(path, array, values)
    with pytest.raises(ArtifactError, match=rf"{array}: {message}\. Align again"):
        Alignment(path)


def test_long_spellings_are_refused(path: Path) -> None:
    rewrite(path, "draft_spellings", [1] * 29 + [0, 1, 0])
    rewrite(path, "draft_spellings_offsets", [0, 29, 30, 32, 32])
    with pytest.raises(ArtifactError, match=r"draft_spellings: token 0 of 1 bytes is spelled by 29 ids"):
        Alignment(path)


def test_long_tokens_are_refused() -> None:
    tokens = [b"a", b"b" * 4096, b"c" * 4097]
    assert list(alignment_checks.token_bytes_problems("x", Lists.of(tokens))) == [
        ("x", "token 2 has 4,097 bytes, expected at most 4,096")
    ]
    assert not list(alignment_checks.token_bytes_problems("x", Lists.of(tokens[:2])))
