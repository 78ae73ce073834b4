"""The work directory of a long run, which keeps finished tasks so that a killed run can be resumed.

    .OUT.work/
      key.json            what the result depends on
      lock                held while a process works there
      done/TASK.json      what a finished task returned; such a task is not run again
      NAME.npy  NAME.text      data that tasks hand on, each file written atomically

A task is a top-level function of the directory and of small arguments. It reads files, writes files with fixed names,
and returns numbers; running it again gives the same files.
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
from spectool.artifacts.atomic import atomic_file

TaskResult = dict[str, Any]
"""What a task returns: JSON values by name."""
_MOST_NAMED = 4  # differences in a message


def work_path(out: Path) -> Path:
    """The work directory of the artifact ``out``."""
    out = out.resolve()
    return out.with_name(f".{out.name}.work")


@contextmanager
def resumable_work(
    out: Path,
    key: Mapping[str, Any],
    *,
    what: str = "count",
    keep: Sequence[str] = ("done/*",),
    begin_anew: bool = True,
) -> Iterator[Path]:
    """The locked work directory of the artifact ``out``, with the finished tasks of an earlier run with the same key.

    It is removed when the block ends. If the block raises, it stays if it has a file that matches a pattern in
    ``keep``.

    Args:
        out: The artifact.
        key: What the result depends on, as JSON values.
        what: The kind of run, for messages.
        keep: Patterns of files that are worth keeping.
        begin_anew: Discard the work of a run with another key, which is otherwise an error.

    Raises:
        ArtifactError: Another process works there, or there is work of a run with another key.
    """
    work = work_path(out)
    work.mkdir(parents=True, exist_ok=True)
    with _locked(work / "lock", f"{out}: another {what} is writing there"):
        there = read_json(work / "key.json")
        if there != key:
            if not begin_anew and _any(work, keep):
                raise ArtifactError(
                    f"{out}: another {what} was begun there: {differences(there or {}, key)}. Give its command again "
                    f"to go on with it, choose another -o, or remove {work} to start again"
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
                error.args = (f"Interrupted. Finished work is kept in {work}; the same command continues from there.",)
            raise
        shutil.rmtree(work)


@contextmanager
def _locked(path: Path, busy: str) -> Iterator[None]:
    try:
        with FileLock(path, blocking=False):
            yield
    except Timeout as error:
        raise ArtifactError(f"{busy}. Wait for it, or choose another -o") from error


def _any(work: Path, patterns: Sequence[str]) -> bool:
    return any(True for pattern in patterns for _ in work.glob(pattern))


def run_task(function: Callable[..., TaskResult], work: Path, task: str, *arguments: Any) -> TaskResult:
    """Run a task, record its figures, and return them."""
    figures = function(work, *arguments)
    write_json(work / "done" / f"{task}.json", figures)
    return figures


def finished_task(work: Path, task: str) -> TaskResult | None:
    """The figures of a finished task, None if it is not finished."""
    figures: TaskResult | None = read_json(work / "done" / f"{task}.json")
    return figures


def save(work: Path, name: str, values: NDArray[Any]) -> None:
    """Write an array as ``NAME.npy``, atomically."""
    path = work / f"{name}.npy"
    with atomic_file(path) as partial, partial.open("wb") as stream:
        np.save(stream, values, allow_pickle=False)


def load(work: Path, name: str, mapped: bool = False) -> NDArray[Any]:
    """An array of `save`, read or mapped into memory."""
    values: NDArray[Any] = np.load(work / f"{name}.npy", mmap_mode="r" if mapped else None, allow_pickle=False)
    return values


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, atomically."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def read_json(path: Path) -> Any:
    """A value of `write_json`, None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def discard(work: Path, *patterns: str) -> None:
    """Remove the files that match patterns."""
    for pattern in patterns:
        for path in work.glob(pattern):
            path.unlink(missing_ok=True)


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first few values in which two keys differ, in words."""
    one, two = _flat(there), _flat(now)
    names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    said = [f"{name} is {_short(one.get(name))} there and {_short(two.get(name))} now" for name in names[:_MOST_NAMED]]
    more = len(names) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flat(value) if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else {f"{name}.{key}": v for key, v in inner.items()}
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
