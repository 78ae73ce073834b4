"""Which local files a path stands for, what their names say about them, and whether they stay what they are.

An artifact records the hash of its corpus. It is taken of the bytes that become words, while they are read. Every later
look at the same path has to find the same file.
"""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from spectool import CorpusError

COMPRESSIONS = (".gz", ".zst", ".xz")
"""Suffixes that are taken off before a file's format is looked up."""

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


class InputDescription(NamedTuple):
    """One input file as a manifest records it."""

    name: str  # file name, or path below the directory that was opened; never absolute
    size: int  # bytes on disk
    sha256: str  # of the bytes on disk, in hex


class _Version(NamedTuple):
    identity: tuple[int, ...]
    sha256: str | None  # None as long as not all of it was read


@dataclass(frozen=True, slots=True)
class FileVersions:
    """The files of a corpus as they were first seen. Mutable: reading and hashing add to it."""

    _seen: dict[Path, _Version] = field(default_factory=dict)

    def sha256(self, path: Path) -> tuple[int, str] | None:
        """Size and hash of a file that was read to its end, else None."""
        version = self._seen.get(path)
        return None if version is None or version.sha256 is None else (version.identity[2], version.sha256)

    def check(self, path: Path, found: os.stat_result, sha256: str | None = None) -> None:
        """Compare a file with what was first seen at its path: by hash where both are known.

        Raises:
            CorpusError: It is another one.
        """
        version = _Version(_identity(found), sha256)
        first = self._seen.setdefault(path, version)
        if sha256 is None or first.sha256 is None:
            if version.identity != first.identity:
                raise changed(path)
            self._seen[path] = _Version(first.identity, first.sha256 or sha256)
        elif first.sha256 != sha256:
            raise changed(path)


def require_unchanged(path: Path, before: os.stat_result, after: os.stat_result) -> None:
    """Compare an open file's state before and after it was read.

    Raises:
        CorpusError: It was written to, or another one has replaced it.
    """
    if _identity(before) != _identity(after):
        raise changed(path)


def changed(path: Path) -> CorpusError:
    """Return the error for a file that is not what it was."""
    return CorpusError(
        f"{path}: expected a file that stays as it is while it is read, got one that was replaced or written to in the "
        "meantime. Nothing was written. Give the same command again when the file is complete"
    )


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


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
