"""The local files of a corpus: found at a path, told apart by their suffixes, and decompressed."""

import bz2
import gzip
import hashlib
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from spectool import CorpusError, escaped_name
from spectool.corpora.documents import Reading

TABLES = (".jsonl", ".ndjson", ".parquet")
SUFFIXES = (".txt", ".md", *TABLES)
"""Files with another suffix are plain text if they are named, and are skipped in a folder."""

_CHUNK_BYTES = 1 << 20
_READ_TABLE = "python -c 'import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin{})]'"
_AS_LINES = "turn it into one object per line: {} < {{path}} > {{stem}}.jsonl"
_NOT_READ = {
    ".json": "turn it into one object per line: jq -c '.[]' {path} > {stem}.jsonl",
    ".csv": _AS_LINES.format(_READ_TABLE.format("")),
    ".tsv": _AS_LINES.format(_READ_TABLE.format(", dialect=csv.excel_tab")),
    ".pdf": "extract its text: pdftotext {path} {stem}.txt",
    **dict.fromkeys((".tar", ".tgz", ".zip"), "unpack it and name the folder"),
}
_ABOUT = ("readme.md", "license.md")  # say something about the text of a folder


@dataclass(frozen=True, slots=True)
class InputFile:
    """One local file of a corpus."""

    path: Path  # as the user named it
    name: str  # in document ids and manifests: relative to the folder that was opened, as `escaped_name` writes it
    suffix: str  # of its format, in lower case
    compression: str  # suffix of a compressed file, or ``""``
    size: int  # bytes on disk when the corpus was opened

    @property
    def is_compressed(self) -> bool:
        """Whether it holds more text than it has bytes."""
        return self.compression != "" or self.suffix == ".parquet"

    @classmethod
    def at(cls, path: Path, name: str) -> "InputFile":
        """The file at a path; a CorpusError for one of a format that is not read."""
        suffix, compression = _suffixes(path)
        if suffix in _NOT_READ:
            step = _NOT_READ[suffix].format(path=path, stem=path.stem)
            raise CorpusError(f"{path}: expected plain text or {', '.join(SUFFIXES)}, got a {suffix} file; {step}")
        if compression and suffix == ".parquet":
            raise CorpusError(f"{path}: expected a {suffix} file, got a compressed one. Decompress it")
        return cls(path, name, suffix, compression, path.stat().st_size)


class InputDescription(NamedTuple):
    """One input file as a manifest records it."""

    name: str  # file name, or path below the directory that was opened; never absolute
    size: int  # bytes on disk
    sha256: str  # of the bytes on disk, in hex


def describe_file(path: Path, name: str) -> InputDescription:
    """Name, size and SHA-256 of a file."""
    with opened(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return InputDescription(name, stream.tell(), digest)


def input_files(path: Path) -> tuple[list[InputFile], Counter[str]]:
    """The file at a path, or all files below a folder that have a known suffix and are not hidden, sorted by name.

    The counter has the numbers of other files in the folder that are not hidden, by suffix, or by name for those that
    are about the folder or have no suffix.
    """
    if path.is_fifo() or path.is_char_device():
        raise CorpusError(
            f"{path}: expected a file, got a pipe or device, which cannot be read twice. Save it to a file"
        )
    if not path.is_dir():
        return [InputFile.at(path, escaped_name(path.name))], Counter()
    found, others = list[InputFile](), Counter[str]()
    for inner, name in visible_files(path):
        suffix, compression = _suffixes(inner)
        if inner.name.lower() in _ABOUT:
            others[inner.name] += 1
        elif suffix in SUFFIXES or (compression and not suffix):
            found.append(InputFile.at(inner, name))
        else:
            others[suffix or inner.name] += 1
    if not found:
        raise CorpusError(
            f"{path}: expected files that end in {', '.join(SUFFIXES)} (or these and {', '.join(filter(None, _OPEN))}),"
            " got a folder without any. Name a file, or rename them"
        )
    return found, others


def visible_files(folder: Path) -> list[tuple[Path, str]]:
    """All files below ``folder`` that are not hidden, with their names relative to it, sorted by name."""
    found = ((inner, inner.relative_to(folder)) for inner in folder.rglob("*") if inner.is_file())
    visible = (each for each in found if not any(part[0] == "." for part in each[1].parts))
    return sorted(((inner, escaped_name(name.as_posix())) for inner, name in visible), key=lambda each: each[1])


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a file; what goes wrong meanwhile is a `CorpusError` that names it."""
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror or error}). Check permissions and name") from error


def byte_chunks(file: InputFile, reading: Reading) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of about 1 MiB, decompressed.

    ``reading.counts.bytes_read`` follows the position on disk. An archive that is damaged or breaks off is an error.
    """
    before = reading.counts.bytes_read
    with opened(file.path) as stream:
        try:
            decompressed = _OPEN[file.compression](stream)
            while chunk := decompressed.read(_CHUNK_BYTES):
                reading.counts.bytes_read = before + stream.tell()
                yield chunk
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if not file.compression:
                raise
            raise CorpusError(
                f"{file.path}: expected a whole {file.compression} archive, got one that breaks off or is damaged "
                f"({error}). Fetch it again, or rename it if it is not compressed"
            ) from error
        reading.counts.bytes_read = before + stream.seek(0, 2)


def _suffixes(path: Path) -> tuple[str, str]:
    """The suffix of a file's format, and that of its compression."""
    suffix = path.suffix.lower()
    return (Path(path.stem).suffix.lower(), suffix) if suffix in _OPEN else (suffix, "")


def _zstandard(raw: BufferedReader) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd")


_OPEN: dict[str, Callable[[BufferedReader], Any]] = {
    "": lambda raw: raw,
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".zst": _zstandard,
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
