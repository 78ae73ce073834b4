"""Where a training keeps what it has, so that the same command goes on after a kill.

    .OUT.work/
      key.json                  what the result depends on
      lock                      held while a training runs
      stream.npy  text.json     the text, encoded
      checkpoint.safetensors    weights, state of the optimizer, step and seconds
      curve.parquet             the loss curve, at least as far as the checkpoint
      model/                    OUT, while it is written

Another command finds an error there that names what differs, as it does in a finished OUT.
"""

import fcntl
import json
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from spectool import ArtifactError, __version__
from spectool.artifacts.replacing import check_replaceable, naming
from spectool.build.count_work import read_json, work_path, write_json

RECORD = "training.json"
CHECKPOINT = "checkpoint.safetensors"
_MOST_NAMED = 4  # differences in a message


def finished(out: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record of a training with the same key that is finished; None where there is nothing yet.

    Args:
        out: Directory of the model.
        key: What the result depends on, as JSON values.

    Raises:
        ArtifactError: There is something else.
    """
    if not (out / RECORD).is_file():
        check_replaceable(out, "spectool-draft")
        return None
    try:
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        there = record["arguments"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{out / RECORD}: not readable ({error}). Choose another -o, or remove {out}") from error
    if there != key:
        raise ArtifactError(
            f"{out}: has a model of another training: {_differences(there, key)}. Choose another -o, or remove {out}"
        )
    return record


@contextmanager
def working(out: Path, key: Mapping[str, Any], worth: Sequence[str] = (CHECKPOINT,)) -> Iterator[Path]:
    """Give the work directory of ``out``, with what an earlier run with the same key has left.

    It is removed when the block ends well; else it stays, if it has anything worth keeping.

    Args:
        out: Directory of the model.
        key: What the result depends on, as JSON values.
        worth: Patterns of files that are worth keeping.

    Raises:
        ArtifactError: Another training is running there, or one with another key has left something, or there is
            no room (`naming`).
    """
    work = work_path(out)
    work.mkdir(parents=True, exist_ok=True)
    with naming(out), (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ArtifactError(
                f"{out}: another training is running there. Wait for it, or choose another -o"
            ) from error
        there = read_json(work / "key.json")
        if there != key:
            if _any(work, worth):
                raise ArtifactError(
                    f"{out}: another training was begun there: {_differences(there or {}, key)}. Give its command "
                    f"again to go on with it, choose another -o, or remove {work} to begin anew"
                )
            _clear(work)
            write_json(work / "key.json", key)
        try:
            yield work
        except BaseException:
            if not _any(work, worth):
                shutil.rmtree(work)
            raise
        shutil.rmtree(work)


def _any(work: Path, patterns: Sequence[str]) -> bool:
    return any(True for pattern in patterns for _ in work.glob(pattern))


def _clear(work: Path) -> None:
    for path in work.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the values in which two keys differ."""
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


def finish(folder: Path, out: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Write the record of a run into the model's directory, and put that in its place.

    Returns:
        The record, with the files, the device and the versions of what made them.
    """
    record = {
        **record,
        "files": sorted([*(file.name for file in folder.iterdir()), RECORD]),
        "device": str(mx.default_device()),
        "versions": {
            "spectool": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("mlx", "mlx-lm", "numpy")},
        },
    }
    (folder / RECORD).write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    folder.replace(out.resolve())
    return record
