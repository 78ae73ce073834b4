"""The record of a pruned draft model, next to its weights: how it was made, and what it has shown."""

from pathlib import Path
from typing import Any

from spectool.artifacts.manifest import Manifest

RECORD, FORMAT, VERSION = "pruning.json", "spectool-pruned-draft", 2
_FEWEST = 300  # places at which it has guessed, below which its honesty is not known


def read_record(model: Path) -> Manifest | None:
    """What is recorded of a model in a directory; None where nothing is, or nothing that can be read."""
    try:
        return Manifest.from_json((model / RECORD).read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def honesty_of(model: Path) -> float | None:
    """How often guesses of a pruned draft model were right, as a share of what it said of them; None if not known."""
    record = read_record(model)
    found: Any = record.statistics.get("guesses") if record else None
    try:
        places, said, right = (float(found[name]) for name in ("places", "said", "right"))
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return min(1.0, right / said) if places >= _FEWEST and right > 0.0 and said > 0.0 else None
