"""The scratch directory of a count: finished tasks and what they hand on, so that a killed count goes on.

    .OUT.work/
      key.json            what the result depends on; another key starts afresh
      lock                held while a count runs
      done/TASK.json      what a finished task returned; a task that has one is never run again
      NAME.npy  NAME.arrow  NAME.text      data between tasks, each written under another name and renamed

A task is a top-level function of the directory and of small arguments; it reads files, writes files
of fixed names and returns numbers. Running one twice, or on another machine, gives the same files.
"""

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import SpectoolError
from spectool.artifacts.replacing import naming

Figures = dict[str, Any]
"""What a task returns: numbers by name, as JSON holds them."""


def work_path(out: Path) -> Path:
    """Where the work for the artifact ``out`` lies."""
    out = out.resolve()
    return out.with_name(f".{out.name}.work")


@contextmanager
def working(out: Path, key: Mapping[str, Any]) -> Iterator[Path]:
    """Give the work directory of an artifact, with what an earlier count with the same key has finished.

    It is removed when the block ends well; else it stays, if any task has finished.

    Raises:
        SpectoolError: Another count is writing there, or there is no room (`naming`).
    """
    work = work_path(out)
    work.mkdir(parents=True, exist_ok=True)
    with naming(out), (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SpectoolError(f"{out}: another count is writing there. Wait for it, or choose another -o") from error
        if read_json(work / "key.json") != key:
            for path in work.iterdir():
                if path.name != "lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            (work / "done").mkdir()
            write_json(work / "key.json", key)
        try:
            yield work
        except BaseException:
            if not any((work / "done").iterdir()):
                shutil.rmtree(work)
            raise
        shutil.rmtree(work)


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


@contextmanager
def renaming(path: Path) -> Iterator[Path]:
    """Give another name beside ``path``; the file written there gets its own name when the block ends well."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def discard(work: Path, pattern: str) -> None:
    """Remove files that no task needs any more."""
    for path in work.glob(pattern):
        path.unlink(missing_ok=True)
