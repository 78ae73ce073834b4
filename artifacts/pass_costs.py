"""What passes of a model cost on this machine, as `spectool doctor` has measured it: a JSON file in the user's cache.

A file holds for one model on one machine, with one version of MLX. Its name is a digest of these, so a change of any of
them means that the file is not found and the doctor has to be run again.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_file
from spectool.artifacts.default_paths import default_path

MOST_ROWS = 64  # a file with more is not one of ours
_LARGEST_FILE = 1 << 16  # bytes
_LONGEST_PASS = 1e5  # seconds


@dataclass(frozen=True)
class PassCosts:
    """Measured passes of one model.

    Attributes:
        model: The name that the user gave it, for messages.
        machine: The device, the machine and the versions, in words.
        seconds: Seconds of a pass, by tokens in the context and then by rows (tokens in the pass).
        same_bits: Row counts at which a pass gave bit for bit the logits of passes over single tokens.
        processor_share: Processor seconds per second of a pass when nothing else is running; None if the processor is
            idle during a pass, as with a GPU, so that a busy machine cannot be told from it.
        exact: Whether drafts are kept to lengths whose passes have the same bits.
    """

    model: str
    machine: str
    seconds: dict[int, dict[int, float]]
    same_bits: tuple[int, ...]
    processor_share: float | None
    exact: bool = False

    @property
    def longest_exact(self) -> int:
        """Draft tokens up to which every pass that verifies some has the same bits; 0 if none has."""
        rows = 1
        while rows + 1 in self.same_bits:
            rows += 1
        return rows - 1

    @property
    def curve(self) -> dict[int, float]:
        """Seconds of a pass by rows, in the shortest context measured."""
        return self.seconds[min(self.seconds)]


def costs_path(key: str) -> Path:
    """Where the costs of a model with this key are kept."""
    return default_path("doctor") / f"{key}.json"


def save_costs(key: str, costs: PassCosts) -> Path:
    """Write the costs of a model in place of older ones, and return the file."""
    path = costs_path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(asdict(costs), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def load_costs(key: str) -> PassCosts | None:
    """The saved costs of a model; None if the doctor has not measured it.

    Raises:
        ArtifactError: The file is damaged.
    """
    path = costs_path(key)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ValueError(f"{path.stat().st_size:,} bytes")
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"{path}: expected measurements of `spectool doctor`, got {type(error).__name__}: {str(error)[:100]}. "
            "Run `spectool doctor` again, or remove the file"
        ) from error


def _parsed(found: Any) -> PassCosts:
    curves = found["seconds"].items()
    seconds = {int(depth): {int(rows): _number(time) for rows, time in curve.items()} for depth, curve in curves}
    rows = {rows for curve in seconds.values() for rows in curve}
    if not rows or any(1 not in curve for curve in seconds.values()) or not 1 <= min(rows) <= max(rows) <= MOST_ROWS:
        raise ValueError(f"seconds: expected 1 to {MOST_ROWS} rows, 1 among them")
    share = found["processor_share"]
    return PassCosts(
        model=str(found["model"]),
        machine=str(found["machine"]),
        seconds=seconds,
        same_bits=tuple(int(rows) for rows in found["same_bits"]),
        processor_share=None if share is None else _number(share),
        exact=found.get("exact", False) is True,
    )


def _number(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and 0 < number < _LONGEST_PASS):
        raise ValueError(f"expected a positive number, got {value!r}")
    return number
