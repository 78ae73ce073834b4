"""The file that every artifact is: arrays of numbers with a header, in the safetensors format (docs/formats.md).

Every array has one axis and begins at a multiple of the size of its numbers, so that it can be used where the file is
mapped. The manifest is JSON in the header's JSON, because safetensors keeps only text there. The library's own writer
is not used: it orders metadata differently from run to run, and equal inputs have to give equal bytes.
"""

import hashlib
import json
import mmap
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from spectool import ArtifactError

MOST_HEADER = 4 << 20  # bytes
_DTYPES = {"U8": "uint8", "U16": "uint16", "U32": "uint32", "I32": "int32", "I64": "int64", "F16": "float16"}
_NAMES = {np.dtype(kind): name for name, kind in _DTYPES.items()}
_SIZE = 8  # bytes of the size, and what the data is aligned to
_ZEROS = "0" * 64
_BLOCK = 16 << 20  # bytes that are hashed between two chances to interrupt


@dataclass(frozen=True)
class Container:
    """An open file, memory-mapped and read-only."""

    path: Path
    manifest: str  # JSON
    sha256: str  # that the header states
    arrays: Mapping[str, NDArray[Any]]  # by name
    data: NDArray[np.uint8]  # all bytes of the file
    start: int  # of the arrays in it

    def verify(self) -> None:
        """Compare the file with the SHA-256 that its header states; an ArtifactError if it differs."""
        header = self.data[: self.start].tobytes().replace(self.sha256.encode(), _ZEROS.encode())
        if (found := _digest(header, [self.data[self.start :]])) != self.sha256:
            raise ArtifactError(
                f"{self.path}: SHA-256 is {found[:12]}…, the header says {self.sha256[:12]}…. The file was changed or "
                "damaged: copy or build it again"
            )


def write_container(path: Path, arrays: Mapping[str, NDArray[Any]], manifest: str) -> None:
    """Write a file. Its bytes depend only on the arguments, and on the order of the arrays.

    Arrays are contiguous, and those with wider numbers come first. ``manifest`` is JSON; too long a one is an
    ArtifactError.
    """
    header: dict[str, Any] = {"__metadata__": {"manifest": manifest, "sha256": _ZEROS}}
    end = 0
    for name, values in arrays.items():
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": _NAMES[values.dtype], "shape": [len(values)], "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > MOST_HEADER:
        raise ArtifactError(f"{path}: its header has {len(text):,} bytes, expected at most {MOST_HEADER:,}")
    text += b" " * (-len(text) % _SIZE)
    before = len(text).to_bytes(_SIZE, "little") + text
    content = [values.view(np.uint8) for values in arrays.values()]
    digest = _digest(before, content)
    with path.open("wb") as file:
        file.write(before.replace(f'"sha256":"{_ZEROS}"'.encode(), f'"sha256":"{digest}"'.encode()))
        for each in content:
            file.write(each.data)


def open_container(path: Path) -> Container:
    """Open a file, which may come from anyone; the header is checked, and the content is not read.

    Raises:
        ArtifactError: The file is missing, is something else, or does not keep to the format.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise ArtifactError(f"{path}: is not a plain file, expected an artifact of spectool. Name another file")
        with path.open("rb") as file:
            size = int.from_bytes(file.read(_SIZE), "little")
            if size > MOST_HEADER or file.read(1) != b"{":
                raise ArtifactError(f"{path}: is no artifact of spectool. `spectool --help` says what writes artifacts")
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        entries, texts, start = read_header(path)
        arrays = {name: _array(entry, data, start) for name, entry in entries.items()}
        if len(texts.get("sha256", "")) != len(_ZEROS) or "manifest" not in texts:
            raise ValueError("no manifest or SHA-256 in its header")
        return Container(path, texts["manifest"], texts["sha256"], arrays, data, start)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file. `spectool --help` says what writes artifacts") from error
    except ValueError as error:
        raise ArtifactError(f"{path}: damaged ({error}). Copy or build it again") from error


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, str], int]:
    """The header of any safetensors file: its entries by tensor, and its texts; and where the data begins.

    Raises:
        ArtifactError: The library finds that types, sizes, offsets or text are wrong.
    """
    try:
        with safe_open(path, "np"), path.open("rb") as file:
            size = int.from_bytes(file.read(_SIZE), "little")
            entries = json.loads(file.read(size))
    except SafetensorError as error:
        raise ArtifactError(f"{path}: damaged ({str(error)[:200]}). Copy, download or build it again") from error
    return entries, entries.pop("__metadata__", None) or {}, _SIZE + size


def _array(entry: Mapping[str, Any], data: NDArray[np.uint8], start: int) -> NDArray[Any]:
    """The array that an entry of a checked header describes, mapped."""
    kind, axes, (begin, end) = entry["dtype"], len(entry["shape"]), entry["data_offsets"]
    if kind not in _DTYPES or axes != 1 or (start + begin) % np.dtype(_DTYPES[kind]).itemsize:
        raise ValueError(f"{kind} of {axes} axes at byte {start + begin:,} is no array of an artifact")
    return data[start + begin : start + end].view(_DTYPES[kind])


def _digest(header: bytes, content: Iterable[NDArray[np.uint8]]) -> str:
    digest = hashlib.sha256(header)
    for part in content:
        for begin in range(0, len(part), _BLOCK):
            digest.update(part[begin : begin + _BLOCK].data)
    return digest.hexdigest()
