"""Files and directories that are whole or not there: neither a kill nor an error leaves half of one.

What is written lies next to its place, as ``.NAME.….partial``, until it is renamed. A run that writes NAME removes what
a killed one left there more than a day ago.
"""

import errno
import glob
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spectool import ArtifactError

_DAY = 24 * 60 * 60  # seconds
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary path next to ``path``; the file there is moved to ``path`` when the block ends.

    If ``path`` is a link, it stays one, and what it points to is replaced.
    """
    path = path.resolve()
    with _partial(path, Path.touch) as partial:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)


@contextmanager
def atomic_directory(out: Path) -> Iterator[Path]:
    """A temporary directory next to ``out``, which becomes ``out`` when the block ends; errors as of `require_new`."""
    out = out.resolve()
    require_new(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with _partial(out, Path.mkdir) as partial:
        yield partial
        partial.rename(out)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let the system's error that a disk is full name the file that is written; by itself it names none."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(path)
        raise


def require_new(out: Path) -> None:
    """Raise an ArtifactError if something is at ``out``, or nothing can be written there."""
    require_writable(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ArtifactError(f"{out}: exists already. Choose another -o, or remove it first")


def require_writable(out: Path) -> None:
    """Raise an ArtifactError if nothing can be written at ``out``: better before the work than after it."""
    out = out.resolve()
    if out == Path.cwd() or not out.name:
        what = "the current directory" if out.name else "the root of the file system"
        raise ArtifactError(f"{out}: cannot be written (it is {what}). Choose another -o")
    folder = next(parent for parent in out.parents if parent.exists())
    try:  # os.access says yes to root, even where nothing can be made; a file without a name outlives no kill
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ArtifactError(
            f"{out}: cannot be written ({folder} is not a writable directory). Choose another place, or make it one"
        ) from error


@contextmanager
def _partial(out: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A new file or directory next to ``out``, removed at the end; what killed runs left there is removed first."""
    for leftover in out.parent.glob(f".{glob.escape(out.name)}.{'[0-9a-f]' * 32}.partial"):
        with suppress(OSError):
            if leftover.stat().st_mtime < time.time() - _DAY:  # nothing is written for so long
                _remove(leftover)
    partial = out.with_name(f".{out.name}.{uuid.uuid4().hex}.partial")
    make(partial)
    try:
        with naming(out):
            yield partial
    finally:
        _remove(partial)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
