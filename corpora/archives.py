"""The bytes of a file, decompressed as a stream.

A truncated archive is an error and never a shorter text; damage is one wherever the archive
has a checksum (``.zst`` files may lack it). Memory stays bounded whatever an archive expands to.
"""

import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from spectool import CorpusError
from spectool.corpora.documents import ReadCounts

COMPRESSIONS = (".gz", ".zst", ".xz")
"""Suffixes that are taken off before a file's format is looked up."""

_CHUNK_BYTES = 1 << 20
_COMPRESSED_CHUNK_BYTES = 1 << 16


def byte_chunks(path: Path, compression: str, counts: ReadCounts) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of about 1 MiB, decompressed.

    The compression is one of `COMPRESSIONS`, or ``""``. ``counts.bytes_read`` follows the position on disk.

    Raises:
        CorpusError: The file cannot be opened or read, or the archive is damaged, is followed by
            other data, or ends before its end mark.
    """
    try:
        raw = path.open("rb")
        size = os.fstat(raw.fileno()).st_size
    except OSError as error:
        raise CorpusError(f"{path}: cannot be opened ({error.strerror}). Check its permissions.") from error
    decompressed = position = 0
    with raw:
        try:
            for chunk in _READERS[compression](raw):
                counts.bytes_read += raw.tell() - position
                position = raw.tell()
                decompressed += len(chunk)
                yield chunk
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if not compression:
                raise CorpusError(f"{path}: reading failed after {decompressed} bytes ({error})") from error
            raise CorpusError(
                f"{path}: expected a whole {compression} archive, got one that breaks off or is damaged "
                f"after {decompressed} bytes of text ({error}). Fetch the file again"
            ) from error
    counts.bytes_read += size - position
    if compression and not size:
        raise CorpusError(f"{path}: expected a {compression} archive, got a file of 0 bytes. Fetch it again")


def _plain(stream: Any) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _gzip(raw: BinaryIO) -> Iterator[bytes]:
    return _plain(gzip.GzipFile(fileobj=raw))


def _zstandard(raw: BinaryIO) -> Iterator[bytes]:
    import pyarrow

    # Not as a context manager: leaving it would close `raw`, which belongs to the caller.
    return _plain(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd"))


def _xz(raw: BinaryIO) -> Iterator[bytes]:
    # Not lzma.LZMAFile: it takes a damaged second stream for harmless padding and stops there.
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


_READERS = {"": _plain, ".gz": _gzip, ".zst": _zstandard, ".xz": _xz}
