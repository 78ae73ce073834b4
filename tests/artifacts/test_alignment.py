"""The alignment format: what is written is read, and broken ones are named."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spectool import ArtifactError
from spectool.artifacts import Alignment, Manifest
from spectool.artifacts.alignment import FORMAT, VERSION, write_alignment
from spectool.artifacts.columns import write_columns
from spectool.artifacts.manifest import seal
from spectool.artifacts.replacing import writing

FORTH, BACK = [2, -1, 0, 1], [2, 3, 0]


def reseal(directory: Path, roles: tuple[str, ...] = ("draft", "target")) -> None:
    (directory / "manifest.json").unlink(missing_ok=True)
    sizes = {"draft": len(FORTH), "target": len(BACK)}
    tokenizers = {role: {"name": role, "fingerprint": role[0] * 64, "size": sizes[role]} for role in roles}
    seal(directory, Manifest(FORMAT, VERSION, {}, tokenizers, {}, {}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with writing(tmp_path / "x.align") as directory:
        write_alignment(directory, np.array(FORTH, np.int32), np.array(BACK, np.int32))
        reseal(directory)
    return tmp_path / "x.align"


def column(path: Path, direction: str, values: list[int | None], kind: pa.DataType | None = None) -> None:
    name = {"draft_to_target": "target", "target_to_draft": "draft"}[direction]
    write_columns(path / f"{direction}.arrow", {name: pa.array(values, type=kind or pa.int32())})
    reseal(path)


def test_what_is_written_is_read(path: Path) -> None:
    alignment = Alignment(path)
    assert alignment.draft_to_target.tolist() == FORTH
    assert alignment.target_to_draft.tolist() == BACK
    assert alignment.draft_to_target.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        alignment.draft_to_target[0] = 1
    alignment.verify()


@pytest.mark.parametrize("direction", ["draft_to_target", "target_to_draft"])
def test_sizes_and_types(path: Path, direction: str) -> None:
    values = FORTH if direction == "draft_to_target" else BACK
    role = direction.split("_")[0]
    column(path, direction, [*values, -1])
    with pytest.raises(ArtifactError, match=rf"{direction}\.arrow: {len(values) + 1} ids, the {role} tokenizer has"):
        Alignment(path)
    column(path, direction, [*values], pa.int64())
    with pytest.raises(ArtifactError, match=rf"{direction}\.arrow: columns .*: int64, expected .*: int32"):
        Alignment(path)
    column(path, direction, [*values[:-1], None])
    with pytest.raises(ArtifactError, match=rf"{direction}\.arrow: column .* has missing values"):
        Alignment(path)


@pytest.mark.parametrize("direction", ["draft_to_target", "target_to_draft"])
@pytest.mark.parametrize("wrong", [-2, 4])
def test_verify_finds_ids_outside_the_other_vocabulary(path: Path, direction: str, wrong: int) -> None:
    values = FORTH if direction == "draft_to_target" else BACK
    column(path, direction, [wrong, *values[1:]])
    with pytest.raises(ArtifactError, match=rf"{direction}\.arrow: ids outside the other vocabulary"):
        Alignment(path).verify()


def test_verify_finds_ids_shared_in_one_direction(path: Path) -> None:
    column(path, "target_to_draft", [2, 3, -1])
    with pytest.raises(ArtifactError, match=r"draft_to_target\.arrow: an id is shared in one direction only"):
        Alignment(path).verify()


@pytest.mark.parametrize(
    "damage", [lambda data, rng: rng.randbytes(len(data)), lambda data, rng: data[: rng.randrange(len(data))]]
)
def test_cut_and_random_files_are_named(path: Path, damage: Callable[[bytes, random.Random], bytes]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    data = (path / "draft_to_target.arrow").read_bytes()
    for _ in range(20):
        (path / "draft_to_target.arrow").write_bytes(damage(data, rng))
        reseal(path)
        with pytest.raises(ArtifactError, match=r"x\.align/draft_to_target\.arrow: not a readable Arrow file .*again"):
            Alignment(path)


def test_missing_parts(path: Path) -> None:
    (path / "target_to_draft.arrow").unlink()
    reseal(path)
    with pytest.raises(ArtifactError, match=r"the manifest does not name target_to_draft\.arrow"):
        Alignment(path)
    reseal(path, ("draft",))
    with pytest.raises(ArtifactError, match=r"manifest\.json: names no target tokenizer"):
        Alignment(path)
