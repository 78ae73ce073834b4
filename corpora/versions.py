"""Which bytes were read: a file that is replaced or written to in the meantime is noticed.

An artifact records the hash of its corpus. So the hash is taken of the bytes that become words, while they are read,
and every later look at the same path has to find the same file.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spectool import CorpusError


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
