"""Atomic directories and files: neither a kill nor an error leaves half of an artifact.

An artifact is written to ``.OUT.<pid>.partial`` next to it and then renamed, so that OUT is always absent, the old
artifact, or the whole new one. Replacing takes two renames, between which the old artifact is ``.OUT.previous``. If the
process is killed there, the next build puts it back.
"""

import errno
import glob
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.manifest import MANIFEST, parse_manifest, previous_path

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
def atomic_directory(out: Path) -> Iterator[Path]:
    """A scratch directory that becomes ``out`` when the block ends.

    The block writes data files into the directory and finally calls `seal`. If it raises, the directory is removed and
    ``out`` is untouched.

    Raises:
        ArtifactError: ``out`` may not be replaced (`check_replaceable`) or cannot be written.
    """
    out = out.resolve()  # the artifact that a link points to is replaced, not the link
    previous = previous_path(out)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    _recover(out, previous, partial)
    check_replaceable(out)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written ({error.strerror}). Choose another -o") from error
    try:
        with explain_full_disk(out):
            yield partial
        if not (partial / MANIFEST).is_file():
            raise ArtifactError(f"{out}: the build ended without a manifest; this is a bug of the stage")
        sealed = parse_manifest(partial / MANIFEST)
        check_replaceable(out, sealed.format, {role: side["fingerprint"] for role, side in sealed.tokenizers.items()})
        if out.exists():  # a directory cannot replace a non-empty one in one step
            out.rename(previous)
        partial.rename(out)
        _discard(previous, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def atomic_file(path: Path, suffix: str = ".partial") -> Iterator[Path]:
    """A temporary path next to ``path``, to which the file is moved when the block ends."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_replaceable(
    out: Path, format_name: str | None = None, fingerprints: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """The arguments and inputs of the artifact at ``out`` that will be replaced, None if nothing is there.

    Args:
        out: Directory of the artifact to write.
        format_name: Its format, if an artifact of another one must not be replaced.
        fingerprints: Fingerprints of its tokenizers by role, likewise.

    Raises:
        ArtifactError: Something else is there, or nothing can be written there.
    """
    above = out.resolve().parents or (out.resolve(),)  # the root has no parents
    folder = next(parent for parent in above if parent.exists())
    try:  # os.access says yes to root, even where nothing can be made
        Path(tempfile.mkdtemp(prefix=".", dir=folder)).rmdir()
    except OSError as error:
        raise ArtifactError(
            f"{out}: cannot be written ({folder} is not a writable directory). Choose another -o"
        ) from error
    if out.resolve() == Path.cwd():  # which would then be a directory that is no longer anywhere
        raise ArtifactError(f"{out}: is the current directory, expected another one. Choose another -o")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not out.is_dir() or not (out / MANIFEST).is_file():
        raise ArtifactError(f"{out}: exists and is not a spectool artifact. Choose another -o, or remove it first")
    try:
        found = parse_manifest(out / MANIFEST)  # refuses the manifest of something else
    except ArtifactError as error:
        raise ArtifactError(f"{error}. It is not replaced: choose another -o, or remove it first") from error
    if format_name is not None and found.format != format_name:
        raise ArtifactError(
            f"{out}: is a {found.format}, not replaced by a {format_name}. Choose another -o, or remove it"
        )
    there = {role: str(side["fingerprint"]) for role, side in found.tokenizers.items()}
    if fingerprints is not None and there != fingerprints:
        raise ArtifactError(
            f"{out}: is a {found.format} of {_sides(there)}, not replaced by one of {_sides(fingerprints)}. "
            "Choose another -o, or remove it"
        )
    return {**found.arguments, **found.inputs}


def _sides(fingerprints: Mapping[str, str]) -> str:
    sides = [f"{role} tokenizer {fingerprint[:8]}…" for role, fingerprint in fingerprints.items()]
    return " and ".join(sides) or "no tokenizer"


def _discard(previous: Path, scratch: Path) -> None:
    """Remove ``previous`` under another name, so that it is whole as long as it has its own."""
    if previous.exists():
        previous.rename(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


def _recover(out: Path, previous: Path, scratch: Path) -> None:
    """Clean up after killed builds: put an old artifact back, and remove scratch directories of dead processes."""
    if previous.exists():
        if out.exists():
            _discard(previous, scratch)
        else:
            previous.rename(out)
    for leftover in out.parent.glob(f".{glob.escape(out.name)}.*.partial"):
        pid = leftover.name[len(out.name) + 2 : -len(".partial")]
        if pid.isdecimal() and not _alive(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):  # the number is too large for a process
        return False
    return True
