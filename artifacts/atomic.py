"""Files and directories that are whole or not there: neither a kill nor an error leaves half of one.

What is written lies next to its place, as ``.NAME.….partial``, and is locked until it is renamed. The next run that
writes NAME removes what a killed one left.
"""

import errno
import fcntl
import glob
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spectool import ArtifactError

_NO_ROOM = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)
_SHORT = re.compile(r"\d requested and \d+ written")  # what NumPy says then, without a number


@contextmanager
def explain_full_disk(out: Path) -> Iterator[None]:
    """Turn the error of a full disk, which names no file, into an ArtifactError that names ``out``."""
    try:
        yield
    except OSError as error:
        short = error.errno is None and _SHORT.search(str(error)) is not None
        if not short and (error.filename is not None or error.errno not in _NO_ROOM):
            raise
        problem = os.strerror(error.errno or errno.ENOSPC)
        raise ArtifactError(
            f"{out}: cannot be written ({problem}). Check the free space and the limits of its disk and of the folder "
            "for temporary files (TMPDIR), and run it again"
        ) from error


@contextmanager
def atomic_file(path: Path, suffix: str = "") -> Iterator[Path]:
    """A temporary path next to ``path``; the file there is moved to ``path`` when the block ends.

    Args:
        path: The file; a link stays one, and what it points to is replaced.
        suffix: The end of the temporary name, for writers that insist on one.
    """
    path = path.resolve()
    partial = _partial(path, suffix)
    with explain_full_disk(path), partial.open("xb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield partial
            os.fsync(held.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def atomic_directory(out: Path) -> Iterator[Path]:
    """A temporary directory next to ``out``, which becomes ``out`` when the block ends; for models.

    Raises:
        ArtifactError: Something is there, or nothing can be written there.
    """
    out = out.resolve()
    require_new(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(out)
    partial.mkdir()
    held = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with explain_full_disk(out):
            yield partial
            partial.rename(out)
    finally:
        os.close(held)
        shutil.rmtree(partial, ignore_errors=True)


def require_new(out: Path) -> None:
    """Raise an ArtifactError if something is at ``out``, or nothing can be written there."""
    require_writable(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ArtifactError(f"{out}: exists already. Choose another -o, or remove it first")


def require_writable(out: Path) -> None:
    """Raise an ArtifactError if nothing can be written at ``out``: better before the work than after it."""
    out = out.resolve()
    if out == Path.cwd() or not out.name:
        raise ArtifactError(f"{out}: cannot be written (it is the current directory). Choose another -o")
    folder = next(parent for parent in out.parents if parent.exists())
    try:  # os.access says yes to root, even where nothing can be made; a file without a name outlives no kill
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ArtifactError(
            f"{out}: cannot be written ({folder} is not a writable directory). Choose another -o"
        ) from error


def _partial(out: Path, suffix: str = "") -> Path:
    """A new name next to ``out``; what killed runs left there is removed."""
    for leftover in out.parent.glob(f".{glob.escape(out.name)}.{'[0-9a-f]' * 32}.partial*"):
        with suppress(OSError):
            held = os.open(leftover, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an OSError while a run is writing it
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            finally:
                os.close(held)
    return out.with_name(f".{out.name}.{uuid.uuid4().hex}.partial{suffix}")
