"""The bytes of a file, decompressed as a stream.

A truncated archive is an error and never a shorter text; damage is one wherever the archive
has a checksum (``.zst`` files may lack it). Memory stays bounded, whatever an archive expands to or declares.
"""

import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from spectool import CorpusError
from spectool.corpora.documents import ReadCounts
from spectool.corpora.files import FileVersions, require_unchanged

_CHUNK_BYTES = 1 << 20
_COMPRESSED_CHUNK_BYTES = 1 << 16
_MEMORY = 1 << 27  # for the window of a decompressor: xz -9 takes 65 MiB, and zstd refuses larger ones by itself


def byte_chunks(
    path: Path, compression: str, counts: ReadCounts, versions: FileVersions | None = None
) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of about 1 MiB, decompressed.

    The compression is one of `COMPRESSIONS`, or ``""``. ``counts.bytes_read`` follows the position on disk, and
    ``versions`` gets the hash of what was read.

    Raises:
        CorpusError: The file cannot be opened or read, or changes in the meantime. Or the archive is damaged, is
            followed by other data, ends before its end mark, or wants too much memory.
    """
    versions = versions or FileVersions()
    try:
        file = path.open("rb")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be opened ({error.strerror}). Check its permissions.") from error
    decompressed = position = 0
    with file:
        before = os.fstat(file.fileno())
        versions.check(path, before)
        raw = _Hashed(file)
        try:
            for chunk in _READERS[compression](raw):
                counts.bytes_read += raw.tell() - position
                position = raw.tell()
                decompressed += len(chunk)
                yield chunk
            raw.drain()
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if not compression:
                raise CorpusError(f"{path}: reading failed after {decompressed} bytes ({error})") from error
            if "emory" in str(error):
                raise CorpusError(
                    f"{path}: expected a {compression} archive that {_MEMORY >> 20} MiB of memory can decompress, got "
                    f"one that wants more ({error}). Compress it again with a lower level"
                ) from error
            raise CorpusError(
                f"{path}: expected a whole {compression} archive, got one that breaks off or is damaged "
                f"after {decompressed} bytes of text ({error}). Fetch the file again"
            ) from error
        require_unchanged(path, before, os.fstat(file.fileno()))
        versions.check(path, before, raw.digest.hexdigest())
    counts.bytes_read += before.st_size - position
    if compression and not before.st_size:
        raise CorpusError(f"{path}: expected a {compression} archive, got a file of 0 bytes. Fetch it again")


class _Hashed:
    """A file as the decompressors need it, which hashes what they read."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self.closed = False  # asked for by pyarrow
        self._file = file

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        """Leave the file open: it belongs to the caller, who reads it to the end."""
        self.closed = True

    def drain(self) -> None:
        """Read to the end what a decompressor has left."""
        while self.read(_CHUNK_BYTES):
            pass


def _plain(stream: Any) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _gzip(raw: Any) -> Iterator[bytes]:
    return _plain(gzip.GzipFile(fileobj=raw))


def _zstandard(raw: Any) -> Iterator[bytes]:
    import pyarrow

    # Not as a context manager: leaving it would close `raw`, which belongs to the caller.
    return _plain(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd"))


def _xz(raw: Any) -> Iterator[bytes]:
    # Not lzma.LZMAFile: it takes a damaged second stream for harmless padding and stops there.
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    while data := raw.read(_COMPRESSED_CHUNK_BYTES):
        while data or not (decompressor.needs_input or decompressor.eof):
            if decompressor.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
            chunk = decompressor.decompress(data, _CHUNK_BYTES)
            data = decompressor.unused_data if decompressor.eof else b""
            if chunk:
                yield chunk
    if not decompressor.eof:
        raise EOFError("the end mark is missing")


_READERS = {"": _plain, ".gz": _gzip, ".zst": _zstandard, ".xz": _xz}
