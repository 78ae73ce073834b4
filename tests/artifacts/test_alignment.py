"""The alignment format: what is written is read, and broken ones are named."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Backend

from spectool import ArtifactError, FingerprintMismatch
from spectool.artifacts import Manifest, alignment_checks
from spectool.artifacts.alignment import Alignment, JoinTables, Side, Spellings, engine_of, write_alignment
from spectool.artifacts.arrays import save_array
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.columns import read_columns, write_columns
from spectool.artifacts.manifest import seal
from spectool.tokenization import Tokenizer
from spectool.tokenization.incremental.boundaries import JOIN, BoundaryTable
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.incremental.merges import MergeTable
from spectool.tokenization.roles import Roles
from spectool.tokenization.token_bytes import TokenBytes

from ..running import error_of, run

# Draft: a, b, ab = 0, 1, 2 and a special token 3. Target: b, a, c = 0, 1, 2; no lemma for it.
FORTH, BACK = [1, 0, -1, -1], [1, 0, -1]
SIZES = {"draft": len(FORTH), "target": len(BACK)}
FILES = (
    "draft_boundaries.arrow",
    "draft_characters.arrow",
    "draft_in_target.arrow",
    "draft_merges.arrow",
    "draft_offsets.npy",
    "draft_risks.npy",
    "draft_token_bytes.npy",
    "draft_to_target.arrow",
    "draft_tokens.arrow",
    "prefix_index.arrow",
    "target_in_draft.arrow",
    "target_offsets.npy",
    "target_risks.npy",
    "target_token_bytes.npy",
    "target_to_draft.arrow",
)


def ints(values: list[int]) -> Any:
    return np.array(values, np.int32)


MERGES = MergeTable(
    ints([-1, -1, 0, -2]), ints([-1, -1, 1, -2]), ints([-1, -1, 0, -1]), np.array([1], np.int64), ints([0]), ints([2])
)
BOUNDARIES = BoundaryTable("\0a", np.full((3, 2, 2), JOIN, np.uint8))
DRAFT = Side(
    ints(FORTH),
    Spellings([(1,), (0,), (1, 0), ()], [(1,), (0,), (1, 0), ()]),
    JoinTables(MERGES, BOUNDARIES),
    [b"a", b"b", b"ab", b""],
    np.array([0.5, 0, 1, np.nan], np.float16),
)
TARGET = Side(
    ints(BACK),
    Spellings([(1,), (0,), ()], [(2,), (0,), ()]),
    None,
    [b"b", b"a", b"c"],
    np.zeros(3, np.float16),
)
PREFIXES = ints([0, 2, 1])


def reseal(
    directory: Path,
    roles: tuple[str, ...] = ("draft", "target"),
    lemma: tuple[bool, bool] = (True, False),
    fingerprints: dict[str, str] | None = None,
) -> None:
    (directory / "manifest.json").unlink(missing_ok=True)
    known = fingerprints or {role: role[0] * 64 for role in roles}
    tokenizers = {role: {"name": role, "fingerprint": known[role], "size": SIZES[role]} for role in roles}
    statistics = {"draft": {"lemma": lemma[0]}, "target": {"lemma": lemma[1]}}
    Alignment.seal(directory, {}, tokenizers, {}, statistics)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with atomic_directory(tmp_path / "x.align") as directory:
        write_alignment(directory, DRAFT, TARGET, PREFIXES)
        reseal(directory)
    return tmp_path / "x.align"


def rewrite(path: Path, file: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the columns of one file, and seal the artifact so that only the content is wrong."""
    with pa.ipc.open_file(str(path / file)) as reader:
        batch = reader.get_batch(0)
    columns = {name: batch.column(name) for name in batch.schema.names}
    write_columns(path / file, change(columns))
    reseal(path)


def with_value(column: str, values: list[Any], kind: Any = None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda columns: columns | {column: pa.array(values, kind or columns[column].type)}


def test_what_is_written_is_read(path: Path) -> None:
    alignment = Alignment(path)
    assert sorted(alignment.manifest.files) == sorted(FILES)
    assert alignment.draft.counterpart.tolist() == FORTH
    assert alignment.target.counterpart.tolist() == BACK
    for side, written in ((alignment.draft, DRAFT), (alignment.target, TARGET)):
        for name in ("inside", "text_start"):
            assert list(getattr(side.spellings, name)) == getattr(written.spellings, name)
        assert np.array_equal(side.risks, written.risks, equal_nan=True)
    assert alignment.draft.tables is not None
    for name in ("left", "right", "rank", "pairs", "ranks", "results"):
        assert np.array_equal(getattr(alignment.draft.tables.merges, name), getattr(MERGES, name)), name
    assert np.array_equal(alignment.draft.tables.boundaries.verdicts, BOUNDARIES.verdicts)
    assert alignment.draft.tables.boundaries.characters == "\0a"
    assert alignment.target.tables is None
    assert alignment.prefix_index.tolist() == PREFIXES.tolist()
    alignment.verify()


def test_what_is_read_cannot_be_changed(path: Path) -> None:
    alignment = Alignment(path)
    assert alignment.draft.tables is not None
    for array in (alignment.draft.counterpart, alignment.draft.tables.merges.pairs, alignment.prefix_index):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_equal_contents_are_equal_bytes(path: Path, tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "y.align") as directory:
        write_alignment(directory, DRAFT, TARGET, PREFIXES)
        reseal(directory)
    for file in (*FILES, "manifest.json"):
        assert (path / file).read_bytes() == (tmp_path / "y.align" / file).read_bytes(), file


def test_each_side_has_its_engine(path: Path, byte_level: Backend) -> None:
    tokenizer = Tokenizer("made", byte_level, Roles())
    table = MergeTable(*(np.full(tokenizer.size, -1, np.int32) for _ in range(3)), MERGES.pairs[:0], *[ints([])] * 2)
    assert isinstance(engine_of(tokenizer, JoinTables(table, BOUNDARIES)), IncrementalBPE)
    assert isinstance(engine_of(tokenizer, Alignment(path).target.tables), TailReencoder)


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


def test_a_lemma_without_its_files(path: Path) -> None:
    reseal(path, lemma=(True, True))
    with pytest.raises(ArtifactError, match=r"the manifest does not name target_tokens\.arrow"):
        Alignment(path)


@pytest.mark.parametrize("version", [3, 4, 5, 7])
def test_other_versions(path: Path, version: int) -> None:
    manifest = Alignment(path).manifest
    (path / "manifest.json").unlink()
    seal(path, Manifest(Alignment.format, version, {}, manifest.tokenizers, {}, manifest.statistics))
    with pytest.raises(
        ArtifactError, match=rf"{Alignment.format} version {version} .* reads version 6\. Align again with"
    ):
        Alignment(path)


@pytest.mark.parametrize("version", [0, 5, 7])
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
    if file not in ("prefix_index.arrow", "draft_merges.arrow", "draft_characters.arrow"):  # as many rows as there are
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
        ("draft_tokens.arrow", "left", [-1, -1, 4, -2], "ids outside -2 to 3"),
        ("draft_tokens.arrow", "right", [-3, -1, 1, -2], "ids outside -2 to 3"),
        ("draft_merges.arrow", "result", [4], "ids outside 0 to 3"),
        ("draft_tokens.arrow", "right", [-1, -1, -1, -2], "a token has one part only"),
        ("draft_tokens.arrow", "right", [-1, -1, 2, -2], "token 2 is not its parts side by side"),
        ("draft_tokens.arrow", "left", [-1, -1, 1, -2], "token 2 is not its parts side by side"),
        ("draft_tokens.arrow", "left", [-1, -1, 3, -2], "token 2 is not its parts side by side"),
        ("draft_tokens.arrow", "rank", [-1, -1, -2, -1], "ids outside -1 to 2147483646"),
        ("draft_merges.arrow", "pair", [2**62], "ids outside 0 to 3"),
        ("draft_merges.arrow", "pair", [-1], "ids outside 0 to 3"),
        ("draft_merges.arrow", "rank", [2**31 - 1], "ids outside 0 to 2147483646"),
        ("draft_in_target.arrow", "inside", [[1] * 29, [0], [1], []], "token 0 of 1 bytes is spelled by 29 ids"),
        ("draft_boundaries.arrow", "verdict", [2] * 11 + [3], "verdicts above 2"),
        ("draft_characters.arrow", "character", [97, 97], "expected 1 to 100 different characters"),
        ("draft_characters.arrow", "character", [97, 0xD800], "a class without a character"),
        ("draft_characters.arrow", "character", [97, 0x110000], "a class without a character"),
        ("prefix_index.arrow", "draft", [0, 2, 4], "ids outside 0 to 3"),
        ("prefix_index.arrow", "draft", [0, -1, 1], "ids outside 0 to 3"),
    ],
)
def test_opening_finds_what_is_wrong(path: Path, file: str, column: str, values: list[Any], message: str) -> None:
    rewrite(path, file, with_value(column, values))
    with pytest.raises(ArtifactError, match=rf"{file}: {message}\. Align again"):
        Alignment(path)


def test_opening_finds_merges_out_of_order(path: Path) -> None:
    def twice(columns: dict[str, Any]) -> dict[str, Any]:
        return {name: pa.concat_arrays([column, column]) for name, column in columns.items()}

    rewrite(path, "draft_merges.arrow", twice)
    with pytest.raises(ArtifactError, match=r"draft_merges\.arrow: pairs out of order"):
        Alignment(path)


def test_compressed_columns_are_refused(path: Path) -> None:
    """A few bytes may declare gigabytes, so nothing is decompressed."""
    file = path / "draft_merges.arrow"
    with pa.ipc.open_file(str(file)) as reader:
        batch = reader.get_batch(0)
    with pa.ipc.new_file(str(file), batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    reseal(path)
    with pytest.raises(
        ArtifactError, match=r"draft_merges\.arrow: not a readable Arrow file \(the columns are compressed"
    ):
        Alignment(path)


def chain(depth: int) -> tuple[MergeTable, TokenBytes]:
    """``a``, ``aa``, ``aaa`` … up to ``depth`` merges, one letter at a time."""
    left = ints([-1, *range(depth)])
    right = ints([-1] + [0] * depth)
    pairs = np.array([token << 32 for token in range(depth)], np.int64)
    ranks = ints(list(range(depth)))
    table = MergeTable(left, right, ints([-1, *range(depth)]), pairs, ranks, ints(list(range(1, depth + 1))))
    return table, TokenBytes.of([b"a" * (token + 1) for token in range(depth + 1)])


def test_deep_trees_are_refused() -> None:
    for depth, problems in ((512, []), (513, ["a token of more than 512 merges down one edge"])):
        found = alignment_checks.merge_problems("tokens", "merges", *chain(depth))
        assert [problem for _, problem in found] == problems, depth


def test_merges_that_make_text_longer_are_refused() -> None:
    table, token_bytes = chain(3)
    found = alignment_checks.merge_problems("tokens", "merges", replace(table, results=ints([3, 2, 3])), token_bytes)
    assert list(found) == [("merges", "a merge makes bytes that its parts have not")]


def test_long_tokens_are_refused() -> None:
    offsets = np.array([0, 1, 4097, 8194], np.uint32)
    assert list(alignment_checks.token_bytes_problems("x", offsets, 8194)) == [
        ("x", "token 2 has 4,097 bytes, expected at most 4,096")
    ]
    assert not list(alignment_checks.token_bytes_problems("x", offsets[:3], 4097))


def test_verify_finds_files_of_strangers(path: Path) -> None:
    (path / "more.arrow").write_bytes(b"x")
    with pytest.raises(ArtifactError, match=r"more\.arrow: not named"):
        Alignment(path).verify()


def side_of(tokenizer: Tokenizer) -> Side:
    """A side that shares nothing, spells nothing and is joined through text."""
    nothing: list[tuple[int, ...]] = [()] * tokenizer.size
    unknown = np.full(tokenizer.size, np.nan)
    spelled = Spellings(nothing, nothing)
    return Side(np.full(tokenizer.size, -1), spelled, None, tokenizer.token_bytes, unknown)


@pytest.fixture
def pair(
    tmp_path: Path, byte_level: Backend, sentence_piece: Backend, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Tokenizer, Tokenizer]:
    """An alignment of two tokenizers that exist."""
    draft, target = Tokenizer("d", byte_level, Roles()), Tokenizer("t", sentence_piece, Roles())
    monkeypatch.setitem(SIZES, "draft", draft.size)
    monkeypatch.setitem(SIZES, "target", target.size)
    with atomic_directory(tmp_path / "x.align") as directory:
        write_alignment(directory, side_of(draft), side_of(target), ints([]))
        reseal(directory, lemma=(False, False), fingerprints=fingerprints_of(draft, target))
    return tmp_path / "x.align", draft, target


def fingerprints_of(draft: Tokenizer, target: Tokenizer) -> dict[str, str]:
    return {"draft": draft.fingerprint, "target": target.fingerprint}


def test_it_is_for_two_tokenizers_and_one_direction(pair: tuple[Path, Tokenizer, Tokenizer]) -> None:
    path, draft, target = pair
    alignment = Alignment(path)
    alignment.require(draft, target)
    with pytest.raises(
        FingerprintMismatch,
        match=r"x\.align: aligned in the other direction, .*spectool align --draft t --target d -o .*",
    ):
        alignment.require(target, draft)
    for sides in ((draft, draft), (target, target)):
        with pytest.raises(FingerprintMismatch, match=r"x\.align: built for tokenizer .*Rebuild it: spectool align"):
            alignment.require(*sides)
    # Swapped fingerprints in the manifest are an alignment for the other direction.
    reseal(path, lemma=(False, False), fingerprints=fingerprints_of(target, draft))
    with pytest.raises(FingerprintMismatch, match="aligned in the other direction"):
        Alignment(path).require(draft, target)
    with pytest.raises(FingerprintMismatch, match=r"built for tokenizer \w+… with 261 ids, t is \w+… with 267"):
        Alignment(path).require(target, draft)


def test_a_token_that_stands_for_a_byte_has_one(pair: tuple[Path, Tokenizer, Tokenizer]) -> None:
    path, draft, target = pair
    byte = min(target.byte_tokens)
    offsets = np.load(path / "target_offsets.npy")
    offsets[byte + 1] = offsets[byte]
    save_array(path / "target_offsets.npy", offsets, "uint32")
    reseal(path, lemma=(False, False), fingerprints=fingerprints_of(draft, target))
    with pytest.raises(ArtifactError, match=rf"target_offsets\.npy: token {byte} stands for a byte, and has not one"):
        Alignment(path).require(draft, target)


def test_columns_are_read_without_copying(path: Path) -> None:
    before = pa.total_allocated_bytes()
    kept = read_columns(path / "draft_merges.arrow", {"pair": pa.int64(), "rank": pa.int32(), "result": pa.int32()})
    assert len(kept) == 3
    assert pa.total_allocated_bytes() - before < 4096
