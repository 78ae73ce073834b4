"""Broken alignments: missing, damaged and wrong files are named when one is opened."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spectool import ArtifactError
from spectool.artifacts import alignment_checks
from spectool.artifacts.alignment import Alignment
from spectool.artifacts.arrays import save_array
from spectool.artifacts.formats import verify_artifact
from spectool.artifacts.manifest import Manifest, seal

from ..running import error_of, run
from .small_alignment import (
    FILES,
    made,
    reseal,
    rewrite,
    with_value,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return made(tmp_path)


@pytest.mark.parametrize("file", FILES)
def test_missing_files(path: Path, file: str) -> None:
    (path / file).unlink()
    with pytest.raises(ArtifactError, match=rf"{file}: missing, but the manifest names it"):
        Alignment(path)
    reseal(path)
    with pytest.raises(ArtifactError, match=rf"the manifest does not name {file}"):
        Alignment(path)


def test_missing_tokenizers(path: Path) -> None:
    reseal(path, ("draft",))
    with pytest.raises(ArtifactError, match=r"manifest\.json: names no target tokenizer"):
        Alignment(path)


@pytest.mark.parametrize("by_ids", [None, 1, "yes", []])
def test_nothing_that_says_how_ids_are_joined(path: Path, by_ids: Any) -> None:
    reseal(path, by_ids=(True, by_ids))
    with pytest.raises(ArtifactError, match=r"statistics\.target\.by_ids is .*, expected true or false"):
        Alignment(path)


@pytest.mark.parametrize("version", [3, 4, 5, 6, 8])
def test_other_versions(path: Path, version: int) -> None:
    manifest = Alignment(path).manifest
    (path / "manifest.json").unlink()
    seal(path, Manifest(Alignment.format, version, {}, manifest.tokenizers, {}, manifest.statistics))
    with pytest.raises(
        ArtifactError, match=rf"{Alignment.format} version {version} .* reads version 7\. Align again with"
    ):
        Alignment(path)


@pytest.mark.parametrize("version", [0, 6, 8])
@pytest.mark.parametrize("tokenizers", [{}, None, [], "gone", {"draft": None}, {"draft": {"name": "d"}}])
def test_other_versions_without_their_tokenizers(path: Path, version: int, tokenizers: Any) -> None:
    value = json.loads((path / "manifest.json").read_text()) | {"version": version, "tokenizers": tokenizers}
    if tokenizers == "gone":
        del value["tokenizers"]
    (path / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(ArtifactError, match=rf"^{path}") as raised:
        Alignment(path)
    if tokenizers == {}:
        assert f"version {version} " in str(raised.value) and "align --draft DRAFT --target TARGET" in str(raised.value)
    for command in ("inspect", "verify"):
        assert str(raised.value).replace("\n", " ") in error_of(run(command, path)), "before any missing figure"


@pytest.mark.parametrize(
    "damage", [lambda data, rng: rng.randbytes(len(data)), lambda data, rng: data[: rng.randrange(len(data))]]
)
@pytest.mark.parametrize("file", FILES)
def test_cut_and_random_files_are_named(
    path: Path, file: str, damage: Callable[[bytes, random.Random], bytes], rng: random.Random
) -> None:
    data = (path / file).read_bytes()
    for _ in range(10):
        (path / file).write_bytes(damage(data, rng))
        reseal(path)
        with pytest.raises(ArtifactError, match=rf"x\.align/{file}: not a readable (Arrow|.npy) file .*again"):
            Alignment(path)


@pytest.mark.parametrize("file", FILES)
def test_a_file_cut_short_on_disk(path: Path, file: str) -> None:
    (path / file).write_bytes((path / file).read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=rf"{file}: \d+ bytes, the manifest says \d+"):
        Alignment(path)


@pytest.mark.parametrize("file", FILES)
def test_flipped_bits_are_found(path: Path, file: str, rng: random.Random) -> None:
    """In any byte, at opening, by a named error."""
    data = (path / file).read_bytes()
    for _ in range(30):
        at = rng.randrange(len(data))
        (path / file).write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match=file):
            Alignment(path)


@pytest.mark.parametrize(
    ("file", "values", "kind", "found"),
    [
        ("draft_offsets.npy", [0, 1, 2, 4], "uint32", "uint32 4, expected uint32 5"),
        ("target_offsets.npy", [0, 1, 2, 3], "int64", "int64 4, expected uint32 4"),
        ("draft_token_bytes.npy", [[97, 98]], "uint8", "uint8 1x2, expected uint8 any"),
        ("target_risks.npy", [0, 0.5], "float16", "float16 2, expected float16 3"),
        ("target_risks.npy", [0, 0.5, 1.5], "float16", "risks outside 0 to 1"),
        ("draft_risks.npy", [0, 0.5, -np.inf, 1], "float16", "risks outside 0 to 1"),
    ],
)
def test_wrong_arrays(path: Path, file: str, values: list[Any], kind: str, found: str) -> None:
    save_array(path / file, values, kind)
    reseal(path)
    with pytest.raises(ArtifactError, match=f"{file}: {found}"):
        Alignment(path)


@pytest.mark.parametrize("offsets", [[0, 2, 1, 4, 4], [1, 1, 2, 4, 4], [0, 1, 2, 4, 5]])
def test_surfaces_out_of_order_are_found(path: Path, offsets: list[int]) -> None:
    assert list(Alignment(path).draft.token_bytes) == [b"a", b"b", b"ab", b""]
    save_array(path / "draft_offsets.npy", offsets, "uint32")
    reseal(path)
    with pytest.raises(ArtifactError, match=r"draft_offsets\.npy: token bytes out of order"):
        Alignment(path)


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".arrow")])
def test_wrong_types_columns_and_rows(path: Path, tmp_path: Path, file: str) -> None:
    def columns_of(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        rewrite(copy, file, change)
        return copy

    copy = columns_of(lambda columns: {name: pa.array(["x"] * len(column)) for name, column in columns.items()})
    with pytest.raises(ArtifactError, match=rf"{file}: columns .*: string.*, expected "):
        Alignment(copy)
    copy = columns_of(lambda columns: columns | {"stranger": next(iter(columns.values()))})
    with pytest.raises(ArtifactError, match=rf"{file}: columns .*stranger.*, expected "):
        Alignment(copy)
    copy = columns_of(
        lambda columns: {
            name: pa.array([*column.to_pylist()[:-1], None], column.type) for name, column in columns.items()
        }
    )
    with pytest.raises(ArtifactError, match=rf"{file}: column \w+ has missing values"):
        Alignment(copy)
    if file != "prefix_index.arrow":  # as many rows as there are
        copy = columns_of(lambda columns: {name: column.slice(1) for name, column in columns.items()})
        with pytest.raises(ArtifactError, match=rf"{file}: \d+ rows, expected \d+"):
            Alignment(copy)


@pytest.mark.parametrize(
    ("file", "column", "values", "message"),
    [
        ("draft_to_target.arrow", "target", [1, 0, -2, -1], "ids outside -1 to 2"),
        ("draft_to_target.arrow", "target", [1, 0, 3, -1], "ids outside -1 to 2"),
        ("target_to_draft.arrow", "draft", [1, 4, -1], "ids outside -1 to 3"),
        ("draft_to_target.arrow", "target", [1, 2, -1, -1], "an id is shared in one direction only"),
        ("target_to_draft.arrow", "draft", [1, 0, 2], "an id is shared in one direction only"),
        ("draft_in_target.arrow", "inside", [[1], [0], [3], []], "ids outside 0 to 2"),
        ("draft_in_target.arrow", "text_start", [[1], [-1], [1], []], "ids outside 0 to 2"),
        ("target_in_draft.arrow", "text_start", [[1], [4], []], "ids outside 0 to 3"),
        ("draft_in_target.arrow", "inside", [[1] * 29, [0], [1], []], "token 0 of 1 bytes is spelled by 29 ids"),
        ("prefix_index.arrow", "draft", [0, 2, 4], "ids outside 0 to 3"),
        ("prefix_index.arrow", "draft", [0, -1, 1], "ids outside 0 to 3"),
    ],
)
def test_opening_finds_what_is_wrong(path: Path, file: str, column: str, values: list[Any], message: str) -> None:
    rewrite(path, file, with_value(column, values))
    with pytest.raises(ArtifactError, match=rf"{file}: {message}\. Align again"):
        Alignment(path)


def test_compressed_columns_are_refused(path: Path) -> None:
    """A few bytes may declare gigabytes, so nothing is decompressed."""
    file = path / "draft_to_target.arrow"
    with pa.ipc.open_file(str(file)) as reader:
        batch = reader.get_batch(0)
    with pa.ipc.new_file(str(file), batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    reseal(path)
    with pytest.raises(
        ArtifactError, match=r"draft_to_target\.arrow: not a readable Arrow file \(the columns are compressed"
    ):
        Alignment(path)


def test_long_tokens_are_refused() -> None:
    offsets = np.array([0, 1, 4097, 8194], np.uint32)
    assert list(alignment_checks.token_bytes_problems("x", offsets, 8194)) == [
        ("x", "token 2 has 4,097 bytes, expected at most 4,096")
    ]
    assert not list(alignment_checks.token_bytes_problems("x", offsets[:3], 4097))


def test_verify_finds_files_of_strangers(path: Path) -> None:
    (path / "more.arrow").write_bytes(b"x")
    with pytest.raises(ArtifactError, match=r"more\.arrow: not named"):
        verify_artifact(path)
