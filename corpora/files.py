"""The local files of a corpus: decompressing them, and noticing when they change.

An artifact records the hash of its corpus. A file that changes between two reads is an error, so it is the hash of
what was counted.
"""

import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from spectool import CorpusError, escaped_name
from spectool.corpora.documents import Document, Reading

COMPRESSIONS = (".gz", ".zst", ".xz")
"""Suffixes of compressed files, before which stands that of the format."""

_CHUNK_BYTES = 1 << 20
_COMPRESSED_CHUNK_BYTES = 1 << 16


class Format(NamedTuple):
    """How files of one kind are read."""

    read: Callable[["InputFile", Reading], Iterator[Document]]  # the documents in their order
    has_columns: bool = False
    compressible: bool = True


@dataclass(frozen=True, slots=True)
class InputFile:
    """One local file of a corpus."""

    path: Path  # as the user named it
    name: str  # in document ids and manifests: relative to the folder that was opened, as `escaped_name` writes it
    format: Format
    compression: str  # one of `COMPRESSIONS`, or ``""``
    size: int  # bytes on disk when the corpus was opened


class InputDescription(NamedTuple):
    """One input file as a manifest records it."""

    name: str  # file name, or path below the directory that was opened; never absolute
    size: int  # bytes on disk
    sha256: str  # of the bytes on disk, in hex


def visible_files(folder: Path) -> list[tuple[Path, str]]:
    """All files below ``folder`` that are not hidden, with their names relative to it, sorted by name."""
    found = ((inner, inner.relative_to(folder)) for inner in folder.rglob("*") if inner.is_file())
    visible = (
        (inner, escaped_name(name.as_posix()))
        for inner, name in found
        if not any(part[0] == "." for part in name.parts)
    )
    return sorted(visible, key=lambda each: each[1])


@contextmanager
def opened(path: Path, reading: Reading) -> Iterator[BufferedReader]:
    """Open a file that must be the one first seen at its path, by inode, size and times, until it has been read."""
    try:
        with path.open("rb") as stream:
            _require_unchanged(path, os.fstat(stream.fileno()), reading)
            yield stream
            _require_unchanged(path, path.stat(), reading)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror or error}). Check permissions and name") from error


def _require_unchanged(path: Path, found: os.stat_result, reading: Reading) -> None:
    version = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    if reading.versions.setdefault(path, version) != version:
        raise CorpusError(
            f"{path}: expected a file that does not change while it is read, got one that was replaced or written "
            "to. Nothing was written. Run the same command again when the file is complete"
        )


def describe_file(path: Path, name: str, reading: Reading) -> InputDescription:
    """Name, size and SHA-256 of a file."""
    with opened(path, reading) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return InputDescription(name, reading.versions[path][2], digest)


def byte_chunks(path: Path, compression: str, reading: Reading) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of about 1 MiB, decompressed.

    ``reading.counts.bytes_read`` follows the position on disk. An archive that is damaged, breaks off or is followed by
    other data is an error and never a shorter text, except that a ``.zst`` file may lack the checksum that tells
    damage.
    """
    counted = 0
    with opened(path, reading) as stream:
        size = reading.versions[path][2]
        if compression and not size:
            raise CorpusError(f"{path}: expected a {compression} archive, got a file of 0 bytes. Fetch it again")
        try:
            for chunk in _DECOMPRESSORS[compression](stream):
                position = stream.tell()
                reading.counts.bytes_read += position - counted
                counted = position
                yield chunk
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if not compression:
                raise CorpusError(f"{path}: reading failed ({error})") from error
            raise CorpusError(
                f"{path}: expected a whole {compression} archive, got one that breaks off or is damaged ({error}). "
                "Fetch it again, or rename it if it is not compressed"
            ) from error
    reading.counts.bytes_read += size - counted


def _plain(stream: Any) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _gzip(raw: Any) -> Iterator[bytes]:
    return _plain(gzip.GzipFile(fileobj=raw))


def _zstandard(raw: Any) -> Iterator[bytes]:
    import pyarrow

    return _plain(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd"))


def _xz(raw: Any) -> Iterator[bytes]:
    # Not lzma.LZMAFile, which takes a damaged second stream for harmless padding and stops there.
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    while data := raw.read(_COMPRESSED_CHUNK_BYTES):
        while data or not (decompressor.needs_input or decompressor.eof):
            if decompressor.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            chunk = decompressor.decompress(data, _CHUNK_BYTES)
            data = decompressor.unused_data if decompressor.eof else b""
            if chunk:
                yield chunk
    if not decompressor.eof:
        raise EOFError("the end mark is missing")


_DECOMPRESSORS = {"": _plain, ".gz": _gzip, ".zst": _zstandard, ".xz": _xz}
