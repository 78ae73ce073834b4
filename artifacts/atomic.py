"""Getting an artifact into its place, so that no kill and no error leaves half of one.

Everything is written to a sibling ``.OUT.<pid>.partial`` and renamed. Whenever the process is killed, OUT is absent,
the old artifact, or the whole new one. An old artifact waits as ``.OUT.previous`` between the two renames of a
replacement; the next build puts it back.
"""

import errno
import glob
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.manifest import MANIFEST, parse_manifest, previous_path

_NO_ROOM = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)


@contextmanager
def naming(out: Path) -> Iterator[None]:
    """Name what was being written in an error of a full disk, which names no file itself.

    Raises:
        ArtifactError: There is no room.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:
            raise
        raise ArtifactError(
            f"{out}: cannot be written ({os.strerror(error.errno)}). Check the room and the limits of its disk, and of "
            "the folder for temporary files (TMPDIR), and run it again"
        ) from error


@contextmanager
def writing(out: Path) -> Iterator[Path]:
    """Give a scratch directory that becomes ``out`` when the block ends well.

    The block writes its data files into the directory and calls `seal` as its last act. If it
    raises, nothing of it remains and ``out`` is untouched.

    Raises:
        ArtifactError: ``out`` cannot be replaced (`check_replaceable`), or no directory can be made there, or
            there is no room (`naming`).
    """
    out = out.resolve()  # behind a link lies the artifact to replace, not the link
    previous = previous_path(out)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    _recover(out, previous, partial)
    check_replaceable(out)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written there ({error.strerror}). Choose another -o") from error
    try:
        with naming(out):
            yield partial
        if not (partial / MANIFEST).is_file():
            raise ArtifactError(f"{out}: the build ended without a manifest; this is a defect of the stage")
        sealed = parse_manifest(partial / MANIFEST)
        check_replaceable(out, sealed.format, {role: side["fingerprint"] for role, side in sealed.tokenizers.items()})
        if out.exists():  # a directory cannot replace a non-empty one in one step
            out.rename(previous)
        partial.rename(out)
        _discard(previous, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def renaming(path: Path, suffix: str = ".partial") -> Iterator[Path]:
    """Give another name beside ``path``; the file written there gets its own name when the block ends well."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_replaceable(
    out: Path, format_name: str | None = None, fingerprints: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """Check, before any work, that ``out`` can be written and that nothing but its like would be lost.

    Args:
        out: Directory of an artifact to write.
        format_name: The format that will be written; an artifact of another one is not replaced.
        fingerprints: Those of its tokenizers by role; an artifact of other ones is not replaced.

    Returns:
        Arguments and inputs of the artifact that is to be replaced; None where there is none.

    Raises:
        ArtifactError: Something else is there, or nothing can be written there.
    """
    above = out.resolve().parents or (out.resolve(),)  # nothing is above the root
    folder = next(parent for parent in above if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"{out}: cannot be written there ({folder} is no writable directory). Choose another -o")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not out.is_dir() or not (out / MANIFEST).is_file():
        raise ArtifactError(f"{out}: exists and is not a spectool artifact. Choose another -o, or remove it first")
    try:
        found = parse_manifest(out / MANIFEST)  # a manifest of something else is refused as well
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
    """Remove ``previous`` under another name: one that is there is whole, even if this is killed."""
    if previous.exists():
        previous.rename(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


def _recover(out: Path, previous: Path, scratch: Path) -> None:
    """Undo what a killed build left: an old artifact moved aside, and scratch directories of dead processes."""
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
    except (ProcessLookupError, OverflowError):  # no process has a number as large as that
        return False
    return True
