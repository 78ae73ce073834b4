"""The scratch directory of a long run: finished work and what it hands on, so that a killed run goes on.

    .OUT.work/
      key.json            what the result depends on
      lock                held while a process works there
      done/TASK.json      what a finished task returned; a task that has one is never run again
      NAME.npy  NAME.arrow  NAME.text      data between tasks, each written under another name and renamed

A task is a top-level function of the directory and of small arguments; it reads files, writes files
of fixed names and returns numbers. Running one twice, or on another machine, gives the same files.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from spectool import ArtifactError
from spectool.artifacts.atomic import naming, renaming

_MOST_NAMED = 4  # differences in a message

Figures = dict[str, Any]
"""What a task returns: numbers by name, as JSON holds them."""


def work_path(out: Path) -> Path:
    """Where the work for the artifact ``out`` lies."""
    out = out.resolve()
    return out.with_name(f".{out.name}.work")


@contextmanager
def working(
    out: Path,
    key: Mapping[str, Any],
    *,
    what: str = "count",
    keep: Sequence[str] = ("done/*",),
    begin_anew: bool = True,
) -> Iterator[Path]:
    """Give the work directory of an artifact, locked, with what an earlier run with the same key has finished.

    It is removed when the block ends well; else it stays, if it has any of the files to keep.

    Args:
        out: The artifact.
        key: What the result depends on, as JSON values.
        what: The kind of run, for messages: ``another COUNT is writing there``.
        keep: Patterns of files that are kept for a later run.
        begin_anew: Discard the work of a run with another key; else that is an error.

    Raises:
        ArtifactError: Another process works there, there is no room (`naming`), or a run with another key has left
            something and ``begin_anew`` is not set.
    """
    work = work_path(out)
    work.mkdir(parents=True, exist_ok=True)
    with naming(out), _locked(work / "lock", f"{out}: another {what} is writing there"):
        there = read_json(work / "key.json")
        if there != key:
            if not begin_anew and _any(work, keep):
                raise ArtifactError(
                    f"{out}: another {what} was begun there: {differences(there or {}, key)}. Give its command again "
                    f"to go on with it, choose another -o, or remove {work} to begin anew"
                )
            for path in work.iterdir():
                if path.name != "lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            (work / "done").mkdir()
            write_json(work / "key.json", key)
        try:
            yield work
        except BaseException as error:
            if not _any(work, keep):
                shutil.rmtree(work)
            elif isinstance(error, KeyboardInterrupt) and not error.args:
                error.args = (f"Interrupted. Finished work is kept in {work}; the same command goes on from there.",)
            raise
        shutil.rmtree(work)


@contextmanager
def _locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file until the block ends.

    Raises:
        ArtifactError: Another process holds it; the message begins with ``busy``.
    """
    try:
        with FileLock(path, blocking=False):
            yield
    except Timeout as error:
        raise ArtifactError(f"{busy}. Wait for it, or choose another -o") from error


def _any(work: Path, patterns: Sequence[str]) -> bool:
    return any(True for pattern in patterns for _ in work.glob(pattern))


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the values in which two keys differ, at most a few of them."""
    one, two = _flat(there), _flat(now)
    names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    said = [f"{name} is {_short(one.get(name))} there and {_short(two.get(name))} now" for name in names[:_MOST_NAMED]]
    more = len(names) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out nested values by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flat(value) if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else {f"{name}.{key}": v for key, v in inner.items()}
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def perform(function: Callable[..., Figures], work: Path, task: str, *arguments: Any) -> Figures:
    """Run a task and record that it is finished."""
    figures = function(work, *arguments)
    write_json(work / "done" / f"{task}.json", figures)
    return figures


def finished(work: Path, task: str) -> Figures | None:
    """Return the figures of a task that is finished, or None."""
    figures: Figures | None = read_json(work / "done" / f"{task}.json")
    return figures


def save(work: Path, name: str, values: NDArray[Any]) -> None:
    """Write an array as ``NAME.npy``, in one step."""
    path = work / f"{name}.npy"
    with renaming(path) as partial, partial.open("wb") as stream:
        try:
            np.save(stream, values, allow_pickle=False)
        except OSError as error:  # NumPy's own has neither a number nor a name
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def load(work: Path, name: str, mapped: bool = False) -> NDArray[Any]:
    """Read the array of `save`, or map it into memory."""
    values: NDArray[Any] = np.load(work / f"{name}.npy", mmap_mode="r" if mapped else None, allow_pickle=False)
    return values


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, in one step."""
    with renaming(path) as partial:
        partial.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a value of `write_json`; None where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def discard(work: Path, *patterns: str) -> None:
    """Remove files that no task needs any more."""
    for pattern in patterns:
        for path in work.glob(pattern):
            path.unlink(missing_ok=True)
