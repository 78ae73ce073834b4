"""An alignment of a few ids, and ways to change it."""

from pathlib import Path
from typing import Any

import numpy as np

from spectool.artifacts.alignment import Alignment, Side, alignment_arrays

from .parts import edit

# Draft: a, b, ab = 0, 1, 2 and a special token 3. Target: b, a, c = 0, 1, 2; through text.
FORTH, BACK = [1, 0, -1, -1], [1, 0, -1]
SIZES = {"draft": len(FORTH), "target": len(BACK)}
_OF_A_SIDE = ("token_bytes", "token_bytes_offsets", "risks")
ARRAYS = (
    "draft_to_target",
    "target_to_draft",
    "prefix_index",
    *(f"{side}_{name}" for side in SIZES for name in _OF_A_SIDE),
)


def ints(values: list[int]) -> Any:
    return np.array(values, np.int32)


DRAFT = Side(ints(FORTH), True, [b"a", b"b", b"ab", b""], np.array([0.5, 0, 1, np.nan], np.float16))
TARGET = Side(ints(BACK), False, [b"b", b"a", b"c"], np.zeros(3, np.float16))
PREFIXES = ints([0, 2, 1])


def write(
    path: Path,
    sides: tuple[Side, Side] = (DRAFT, TARGET),
    roles: tuple[str, ...] = ("draft", "target"),
    by_ids: tuple[Any, Any] = (True, False),
    fingerprints: dict[str, str] | None = None,
) -> Path:
    known = fingerprints or {role: role[0] * 64 for role in roles}
    sizes = dict(zip(SIZES, (len(side.counterpart) for side in sides), strict=True))
    Alignment.write(
        path,
        alignment_arrays(dict(zip(SIZES, sides, strict=True))),
        arguments={},
        tokenizers={role: {"name": role, "fingerprint": known[role], "size": sizes[role]} for role in roles},
        inputs={},
        statistics={"draft": {"by_ids": by_ids[0]}, "target": {"by_ids": by_ids[1]}},
    )
    return path


def made(tmp_path: Path) -> Path:
    """The alignment of both sides."""
    return write(tmp_path / "x.align")


def rewrite(path: Path, array: str, values: list[Any], kind: str = "") -> None:
    """Change the numbers of one array, so that only they are wrong."""
    edit(path, lambda parts: parts.set(array, values, kind))
