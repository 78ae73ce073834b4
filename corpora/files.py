"""Which local files a path stands for, and what their names say about them."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spectool import CorpusError
from spectool.corpora.archives import COMPRESSIONS
from spectool.corpora.documents import InputDescription
from spectool.corpora.versions import FileVersions, require_unchanged

Format = Literal["text", "jsonl", "parquet"]

FORMATS: dict[str, Format] = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Suffixes that say what is in a file; any other one is plain text when the file is named itself."""

_NOT_READ = {
    ".json": "turn it into one object a line: jq -c '.[]' {path} > {stem}.jsonl",
    ".tar": "unpack it and name the folder",
    ".tgz": "unpack it and name the folder",
    ".zip": "unpack it and name the folder",
    ".bz2": "compress it again: bzcat {path} | zstd > {stem}.zst",
}


@dataclass(frozen=True, slots=True)
class InputFile:
    """One local file of a corpus."""

    path: Path  # where it is, as the user named it; used in errors
    name: str  # its name in document ids and manifests: no folder above the one that was opened
    format: Format  # what it holds
    compression: str  # one of `COMPRESSIONS`, or ``""``
    size: int  # bytes on disk when the corpus was opened


def input_files(path: Path) -> list[InputFile]:
    """Return the files that an existing path stands for: itself, or a folder's, sorted by name.

    In a folder, files with a known suffix count, at any depth; hidden files and folders do not.

    Raises:
        CorpusError: A format that is not read, or a folder without any readable file.
    """
    if path.is_fifo() or path.is_char_device():
        raise CorpusError(
            f"{path}: expected a file, got a pipe or device, which cannot be read twice. Save it to a file"
        )
    if not path.is_dir():
        return [_input_file(path, path.name)]
    found = [_input_file(inner, name) for inner, name in visible_files(path) if _has_known_suffix(inner)]
    if not found:
        suffixes = ", ".join(FORMATS)
        raise CorpusError(
            f"{path}: expected files that end in {suffixes} (or these and {', '.join(COMPRESSIONS)}), "
            f"got a folder without any. Name a file, or rename them"
        )
    return found


def visible_files(folder: Path) -> list[tuple[Path, str]]:
    """Return all files below ``folder`` that are not hidden and in no hidden folder, sorted by their names in it."""
    found = ((inner, inner.relative_to(folder)) for inner in folder.rglob("*") if inner.is_file())
    visible = ((inner, name.as_posix()) for inner, name in found if not any(part[0] == "." for part in name.parts))
    return sorted(visible, key=lambda each: each[1])


def describe(path: Path, name: str, versions: FileVersions) -> InputDescription:
    """Name, size and SHA-256 of a file: of the bytes that were read from it, or of all of it, read as a stream.

    Raises:
        CorpusError: It cannot be read, or is another one than ``versions`` knows.
    """
    if known := versions.sha256(path):
        return InputDescription(name, *known)
    try:
        with path.open("rb") as raw:
            before = os.fstat(raw.fileno())
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
            require_unchanged(path, before, os.fstat(raw.fileno()))
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}). Check that it is still there.") from error
    versions.check(path, before, digest)
    return InputDescription(name, before.st_size, digest)


def _split_suffix(path: Path) -> tuple[str, str]:
    compression = path.suffix.lower()
    if compression in COMPRESSIONS:
        return Path(path.stem).suffix.lower(), compression
    return compression, ""


def _has_known_suffix(path: Path) -> bool:
    suffix, compression = _split_suffix(path)
    return suffix in FORMATS or (not suffix and compression != "")


def _input_file(path: Path, name: str) -> InputFile:
    suffix, compression = _split_suffix(path)
    if suffix in _NOT_READ:
        step = _NOT_READ[suffix].format(path=path, stem=path.stem)
        known = ", ".join(FORMATS)
        raise CorpusError(f"{path}: expected plain text or {known}, got a {suffix} file; {step}")
    return InputFile(path, name, FORMATS.get(suffix, "text"), compression, path.stat().st_size)
