"""What a finished training says of itself: ``training.json`` beside the model."""

import json
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from spectool import ArtifactError, __version__
from spectool.artifacts.formats.draft import FORMAT, RECORD
from spectool.artifacts.manifest import file_entries
from spectool.artifacts.replacing import check_replaceable
from spectool.artifacts.work import differences, work_path, write_json
from spectool.build.inputs import Progress


def finished(out: Path, key: Mapping[str, Any], progress: Progress) -> dict[str, Any] | None:
    """Return the record of a training with the same key that is finished; None where there is nothing yet.

    Args:
        out: Directory of the model.
        key: What the result depends on, as JSON values.
        progress: Is told of it.

    Raises:
        ArtifactError: There is something else.
    """
    if not (out / RECORD).is_file():
        check_replaceable(out, FORMAT)
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
    shutil.rmtree(work_path(out), ignore_errors=True)
    progress(f"{out} is finished already; remove it to train it again")
    return record


def finish(folder: Path, out: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Write the record of a run into the model's directory, and put that in its place.

    Returns:
        The record, with sizes and hashes of the files, the device and the versions of what made them.
    """
    record = {
        **record,
        "files": file_entries(folder),
        "device": str(mx.default_device()),
        "versions": {
            "spectool": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("mlx", "mlx-lm", "numpy")},
        },
    }
    write_json(folder / RECORD, record)
    folder.replace(out.resolve())
    return record
