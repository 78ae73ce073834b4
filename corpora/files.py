"""The local files of a corpus: finding, decompressing and describing them."""

import bz2
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from spectool import CorpusError, escaped_name
from spectool.corpora.documents import Document, Reading

COMPRESSIONS = (".gz", ".zst", ".xz", ".bz2")
"""Suffixes of compressed files, before which stands that of the format."""

_CHUNK_BYTES = 1 << 20


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
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a file; what goes wrong meanwhile is a `CorpusError` that names it."""
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror or error}). Check permissions and name") from error


def describe_file(path: Path, name: str) -> InputDescription:
    """Name, size and SHA-256 of a file."""
    with opened(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return InputDescription(name, stream.tell(), digest)


def byte_chunks(file: InputFile, reading: Reading) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of about 1 MiB, decompressed.

    ``reading.counts.bytes_read`` follows the position on disk. An archive that is damaged or breaks off is an error.
    """
    counted = 0
    with opened(file.path) as stream:
        try:
            decompressed = _DECOMPRESSORS[file.compression](stream)
            while chunk := decompressed.read(_CHUNK_BYTES):
                position = stream.tell()
                reading.counts.bytes_read += position - counted
                counted = position
                yield chunk
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if not file.compression:
                raise CorpusError(f"{file.path}: reading failed ({error})") from error
            raise CorpusError(
                f"{file.path}: expected a whole {file.compression} archive, got one that breaks off or is damaged "
                f"({error}). Fetch it again, or rename it if it is not compressed"
            ) from error
        reading.counts.bytes_read += stream.seek(0, 2) - counted


def _zstandard(raw: BufferedReader) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd")


_DECOMPRESSORS: dict[str, Callable[[BufferedReader], Any]] = {
    "": lambda raw: raw,
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".zst": _zstandard,
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
