"""Arrays of numbers in ``.npy`` files, memory-mapped."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_magic, write_array
from numpy.typing import ArrayLike, NDArray

from spectool import ArtifactError

_MAX_HEADER_BYTES = 256  # NumPy parses a header as Python source; ours have 118 bytes


def save_array(path: Path, values: ArrayLike, kind: str) -> None:
    """Write an array of a NumPy type such as ``uint16``. The bytes depend only on the numbers."""
    with path.open("wb") as file:
        write_array(file, np.ascontiguousarray(values, dtype=kind), version=(1, 0), allow_pickle=False)


def map_array(path: Path, kind: str, *shape: int | None) -> NDArray[Any]:
    """A read-only array, mapped into memory.

    Args:
        path: The file.
        kind: Expected NumPy type.
        shape: Expected length of each axis, None for any; by default one axis of any length.

    Raises:
        ArtifactError: It is not such an array, or its header does not describe exactly the bytes that follow.
    """
    try:
        with path.open("rb") as file:
            if read_magic(file) != (1, 0):
                raise ValueError("not version 1.0 of the format")
            found, by_columns, dtype = read_array_header_1_0(file, max_header_size=_MAX_HEADER_BYTES)
            offset, size = file.tell(), path.stat().st_size
        if min(found, default=0) < 0 or offset + prod(found) * dtype.itemsize != size:
            raise ValueError(f"{size:,} bytes, and its header says {dtype} {_show(found)} after {offset} bytes")
    except Exception as error:  # NumPy raises all kinds of errors about damaged headers
        raise ArtifactError(f"{path}: not a readable .npy file ({error}). Build the artifact again") from error
    expected = shape or (None,)
    fits = len(found) == len(expected) and all(n in (None, m) for n, m in zip(expected, found, strict=True))
    if dtype != np.dtype(kind) or not fits or (by_columns and len(found) > 1):
        raise ArtifactError(
            f"{path}: {dtype} {_show(found)}, expected {kind} {_show(expected)}. Build the artifact again"
        )
    if size == offset:  # nothing to map
        return np.zeros(found, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, found))


def _show(shape: tuple[int | None, ...]) -> str:
    return "x".join("any" if n is None else str(n) for n in shape)
