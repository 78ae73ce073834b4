"""The local files of a corpus: found at a path, told apart by their suffixes, and decompressed."""

import bz2
import gzip
import hashlib
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from spectool import CorpusError, escaped_name, require_extra

TABLES = (".jsonl", ".ndjson", ".parquet")
SUFFIXES = (".txt", ".md", *TABLES)
"""Files with another suffix are plain text if they are named, and are skipped in a folder."""

_CHUNK = 1 << 20  # bytes
_NOT_READ = {  # what to do instead
    ".json": "Write one object per line: jq -c '.[]' FILE > NEW.jsonl",
    **dict.fromkeys((".csv", ".tsv"), "Write each row as a JSON object on a line of its own, into a .jsonl file"),
    ".pdf": "Extract its text: pdftotext FILE NEW.txt",
    **dict.fromkeys((".tar", ".tgz", ".zip"), "Unpack it and name the folder"),
}
_ABOUT = ("readme.md", "license.md")  # say something about the text of a folder


@dataclass(frozen=True, slots=True)
class InputFile:
    """One local file of a corpus."""

    path: Path  # as the user named it
    name: str  # in manifests: relative to the folder that was opened, as `escaped_name` writes it
    suffix: str  # of its format, in lower case
    compression: str  # suffix of a compressed file, or ``""``
    size: int  # bytes on disk when the corpus was opened

    @classmethod
    def at(cls, path: Path, name: str) -> "InputFile":
        """The file at a path; a CorpusError for one of a format that is not read."""
        suffix, compression = _suffixes(path)
        if suffix in _NOT_READ:
            raise CorpusError(
                f"{path}: expected plain text or {', '.join(SUFFIXES)}, got a {suffix} file. {_NOT_READ[suffix]}"
            )
        return cls(path, name, suffix, compression, path.stat().st_size)

    def described(self) -> dict[str, Any]:
        """What a manifest says of it: name, size on disk, and SHA-256 of the bytes on disk."""
        with opened_on_disk(self.path) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"name": self.name, "size": stream.tell(), "sha256": digest}


def input_files(path: Path) -> tuple[list[InputFile], Counter[str]]:
    """The file at a path, or all files below a folder that have a known suffix and are not hidden, sorted by name.

    The counter has the numbers of other files in the folder that are not hidden, by suffix, or by name for those that
    are about the folder or have no suffix; and the folders in it that are links or may not be read, by name.
    """
    if path.is_fifo() or path.is_char_device():
        raise CorpusError(
            f"{path}: expected a file, got a pipe or device, which cannot be read twice. Save it to a file"
        )
    if not path.is_dir():
        return [InputFile.at(path, escaped_name(path.name))], Counter()
    os.scandir(path).close()  # what rglob leaves out is an error here: that it may not be read
    found, others = list[InputFile](), Counter[str]()
    for inner in path.rglob("*"):
        name, (suffix, compression) = inner.relative_to(path), _suffixes(inner)
        if any(part[0] == "." for part in name.parts):
            continue
        if inner.is_dir():
            if inner.is_symlink() or not os.access(inner, os.R_OK | os.X_OK):
                others[f"{name.as_posix()}/"] += 1
        elif not inner.is_file():
            continue
        elif inner.name.lower() in _ABOUT:
            others[inner.name] += 1
        elif suffix in SUFFIXES or (compression and not suffix):
            found.append(InputFile.at(inner, escaped_name(name.as_posix())))
        else:
            others[suffix or inner.name] += 1
    if not found:
        raise CorpusError(
            f"{path}: expected files that end in {', '.join(SUFFIXES)} (or these and {', '.join(filter(None, _OPEN))}),"
            " got a folder without any. Name a file or a linked folder, or rename them"
        )
    return sorted(found, key=lambda file: file.name), others


@contextmanager
def opened_on_disk(path: Path) -> Iterator[BufferedReader]:
    """Open a file; what goes wrong meanwhile is a `CorpusError` that names it."""
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror or error}). Check permissions and name") from error


@contextmanager
def opened(file: InputFile) -> Iterator[tuple[BufferedReader, BufferedReader]]:
    """Open a file: as it is on disk, and its content, decompressed; errors as for `opened_on_disk`.

    An archive that is damaged or breaks off is an error, too.
    """
    with opened_on_disk(file.path) as on_disk:
        try:
            yield on_disk, BufferedReader(_OPEN[file.compression](on_disk), _CHUNK)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if not file.compression:
                raise
            raise CorpusError(
                f"{file.path}: expected a whole {file.compression} archive, got one that breaks off, is damaged or "
                f"needs another program ({error}). Fetch it again, unpack it, or rename it if it is not compressed"
            ) from error


def _suffixes(path: Path) -> tuple[str, str]:
    """The suffix of a file's format, and that of its compression."""
    suffix = path.suffix.lower()
    return (Path(path.stem).suffix.lower(), suffix) if suffix in _OPEN else (suffix, "")


def _zstandard(raw: BufferedReader) -> Any:
    require_extra("parquet", str(raw.name))
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd")


_OPEN: dict[str, Callable[[BufferedReader], Any]] = {
    "": lambda raw: raw,
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".zst": _zstandard,
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
