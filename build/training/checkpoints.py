"""A training's state in one file, written beside the last one and renamed, so that a kill leaves one whole.

The order of the text and the choice of classes depend on the seed and the step alone, so weights,
the state of the optimizer and the step are all that there is.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.optimizers import Optimizer
from mlx.utils import tree_flatten, tree_unflatten

from spectool import ArtifactError
from spectool.artifacts.replacing import renaming

CHECKPOINT = "checkpoint.safetensors"


class Position(NamedTuple):
    """How far a training is: steps done, seconds spent."""

    step: int
    seconds: float


def save(path: Path, model: Any, optimizer: Optimizer, position: Position) -> None:
    """Write a checkpoint and wait until it is on the disk."""
    arrays: Any = tree_flatten({"model": model.parameters(), "optimizer": optimizer.state}, destination={})
    with renaming(path) as partial, partial.open("wb") as file:
        mx.save_safetensors(file, arrays, {"step": str(position.step), "seconds": repr(position.seconds)})
        file.flush()
        os.fsync(file.fileno())


def load(path: Path, model: Any, optimizer: Optimizer) -> Position:
    """Put what a checkpoint holds into a model and its optimizer.

    Raises:
        ArtifactError: It is damaged.
    """
    try:
        found: Any = mx.load(str(path), return_metadata=True)
        arrays, metadata = found
        position = Position(int(metadata["step"]), float(metadata["seconds"]))
        state: Any = tree_unflatten(arrays)
        model.load_weights(tree_flatten(state["model"]))
        optimizer.state = state["optimizer"]
        optimizer.init(model.trainable_parameters())
        mx.eval(model.parameters(), optimizer.state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise ArtifactError(
            f"{path}: not a readable checkpoint ({error}). Remove {path.parent} and give the same command to begin anew"
        ) from error
    return position
