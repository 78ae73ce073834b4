"""An alignment of a few ids, and ways to change it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spectool.artifacts.alignment import Alignment, Side, Spellings, write_alignment
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.columns import write_columns

# Draft: a, b, ab = 0, 1, 2 and a special token 3. Target: b, a, c = 0, 1, 2; through text.
FORTH, BACK = [1, 0, -1, -1], [1, 0, -1]
SIZES = {"draft": len(FORTH), "target": len(BACK)}
FILES = (
    "draft_in_target.arrow",
    "draft_offsets.npy",
    "draft_risks.npy",
    "draft_token_bytes.npy",
    "draft_to_target.arrow",
    "prefix_index.arrow",
    "target_in_draft.arrow",
    "target_offsets.npy",
    "target_risks.npy",
    "target_token_bytes.npy",
    "target_to_draft.arrow",
)


def ints(values: list[int]) -> Any:
    return np.array(values, np.int32)


DRAFT = Side(
    ints(FORTH),
    Spellings([(1,), (0,), (1, 0), ()], [(1,), (0,), (1, 0), ()]),
    True,
    [b"a", b"b", b"ab", b""],
    np.array([0.5, 0, 1, np.nan], np.float16),
)
TARGET = Side(
    ints(BACK),
    Spellings([(1,), (0,), ()], [(2,), (0,), ()]),
    False,
    [b"b", b"a", b"c"],
    np.zeros(3, np.float16),
)
PREFIXES = ints([0, 2, 1])


def reseal(
    directory: Path,
    roles: tuple[str, ...] = ("draft", "target"),
    by_ids: tuple[Any, Any] = (True, False),
    fingerprints: dict[str, str] | None = None,
) -> None:
    (directory / "manifest.json").unlink(missing_ok=True)
    known = fingerprints or {role: role[0] * 64 for role in roles}
    tokenizers = {role: {"name": role, "fingerprint": known[role], "size": SIZES[role]} for role in roles}
    statistics = {"draft": {"by_ids": by_ids[0]}, "target": {"by_ids": by_ids[1]}}
    Alignment.seal(directory, {}, tokenizers, {}, statistics)


def made(tmp_path: Path) -> Path:
    """The alignment of both sides."""
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
