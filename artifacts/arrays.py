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


def map_array(path: Path, kind: str, size: int | None = None) -> NDArray[Any]:
    """A read-only array of one axis, mapped into memory.

    Args:
        path: The file.
        kind: Expected NumPy type.
        size: Expected length, None for any.

    Raises:
        ArtifactError: It is not such an array, or its header does not describe exactly the bytes that follow.
    """
    try:
        with path.open("rb") as file:
            if read_magic(file) != (1, 0):
                raise ValueError("not version 1.0 of the format")
            shape, _, dtype = read_array_header_1_0(file, max_header_size=_MAX_HEADER_BYTES)
            offset, file_size = file.tell(), path.stat().st_size
        found = f"{dtype} {'x'.join(map(str, shape))}"
        if min(shape, default=0) < 0 or offset + prod(shape) * dtype.itemsize != file_size:
            raise ValueError(f"{file_size:,} bytes, and its header says {found} after {offset} bytes")
    except Exception as error:  # NumPy raises all kinds of errors about damaged headers
        raise ArtifactError(f"{path}: not a readable .npy file ({error}). Build the artifact again") from error
    if dtype != np.dtype(kind) or len(shape) != 1 or size not in (None, *shape):
        expected = f"{kind} {'any' if size is None else size}"
        raise ArtifactError(f"{path}: {found}, expected {expected}. Build the artifact again")
    if file_size == offset:  # nothing to map
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, shape))
