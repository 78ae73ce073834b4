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

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from spectool import ArtifactError, __version__
from spectool.artifacts.replacing import check_replaceable
from spectool.artifacts.work import differences

RECORD = "training.json"
CHECKPOINT = "checkpoint.safetensors"


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
            f"{out}: has a model of another training: {differences(there, key)}. Choose another -o, or remove {out}"
        )
    return record


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
