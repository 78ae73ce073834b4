"""Artifacts taken apart and put together again byte by byte: the readable twin of `container`."""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

DTYPES = {"uint8": "U8", "uint16": "U16", "uint32": "U32", "int32": "I32", "int64": "I64", "float16": "F16"}
_KINDS = {name: kind for kind, name in DTYPES.items()}
ZEROS = b"0" * 64


@dataclass
class Parts:
    """What an artifact holds; the arrays are by name, each its NumPy type and its bytes."""

    manifest: dict[str, Any]
    arrays: dict[str, tuple[str, bytes]]

    @classmethod
    def of(cls, path: Path) -> "Parts":
        data = path.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + size])
        manifest = json.loads(header.pop("__metadata__")["manifest"])
        arrays = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            arrays[name] = _KINDS[entry["dtype"]], data[8 + size :][begin:end]
        return cls(manifest, arrays)

    def values(self, name: str) -> np.ndarray:
        kind, data = self.arrays[name]
        return np.frombuffer(data, kind)

    def set(self, name: str, values: ArrayLike, kind: str = "") -> None:
        kind = kind or self.arrays[name][0]
        self.arrays[name] = kind, np.asarray(values, kind).tobytes()

    def to_bytes(self, manifest: str | None = None) -> bytes:
        """The file, all sizes right, and the hash; ``manifest`` in place of the manifest as JSON."""
        header: dict[str, Any] = {}
        data = b""
        for name, (kind, content) in sorted(self.arrays.items(), key=lambda each: -_alignment(*each[1])):
            rows = len(content) // np.dtype(kind).itemsize
            content = content[: rows * np.dtype(kind).itemsize]
            header[name] = {"dtype": DTYPES[kind], "shape": [rows]}
            header[name]["data_offsets"] = [len(data), len(data) + len(content)]
            data += content
        said = json.dumps(self.manifest) if manifest is None else manifest
        return whole({"__metadata__": {"manifest": said, "sha256": ZEROS.decode()}, **header}, data)


def _alignment(kind: str, content: bytes) -> int:
    return np.dtype(kind).itemsize if len(content) % 8 else 8


def whole(header: Mapping[str, Any] | bytes, data: bytes = b"") -> bytes:
    """A file with this header and data; its hash is right if the header leaves room for one."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    before = struct.pack("<Q", len(text)) + text
    return before.replace(ZEROS, hashlib.sha256(before + data).hexdigest().encode(), 1) + data


def edit(path: Path, change: Callable[[Parts], object]) -> None:
    """Change what an artifact holds, so that nothing else is wrong with it."""
    parts = Parts.of(path)
    change(parts)
    path.write_bytes(parts.to_bytes())


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of an artifact, so that nothing else is wrong with it."""
    edit(path, lambda parts: change(parts.manifest))
