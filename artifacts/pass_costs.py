"""What passes of a model cost on this machine, as `spectool doctor` has measured it: a JSON file in the user's cache.

A file holds for one model on one machine, with one version of MLX. Its name is a digest of these, so a change of any of
them means that the file is not found and the doctor has to be run again.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_file, explain_full_disk
from spectool.artifacts.default_paths import default_path


@dataclass(frozen=True)
class DraftFacts:
    """What was learnt of a draft model while it drafted for a target.

    Attributes:
        benefit: Tokens that asking it has gained on average, its cost not counted, where look-ups know nothing; None if
            not known.
        price: Tokens that could be written in the time of a proposal, on average.
        fixed: Seconds of a proposal, regardless of its length.
        per_token: Seconds of each token of it in addition.
        per_missed: Seconds of each token that the draft has yet to read.
    """

    benefit: float | None
    price: float
    fixed: float
    per_token: float
    per_missed: float


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
        drafts: What was learnt of draft models with this one as the target, by their keys and the names of the drafters
            that they were part of.
    """

    model: str
    machine: str
    seconds: dict[int, dict[int, float]]
    same_bits: tuple[int, ...]
    processor_share: float | None
    exact: bool = False
    drafts: dict[str, DraftFacts] = field(default_factory=dict)

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
    """Write the costs of a model in place of older ones, and return the file.

    Raises:
        ArtifactError: There is no room.
    """
    path = costs_path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(path), atomic_file(path) as partial:
        partial.write_text(json.dumps(asdict(costs), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def load_costs(key: str) -> PassCosts | None:
    """The saved costs of a model; None if the doctor has not measured it.

    Raises:
        ArtifactError: The file is damaged.
    """
    path = costs_path(key)
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise ValueError("something that is no regular file")
        return _costs(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except Exception as error:  # any damage: measuring again replaces the file
        raise ArtifactError(
            f"{path}: expected measurements of `spectool doctor`, got {type(error).__name__}: {str(error)[:100]}. "
            "Run `spectool doctor` again, or remove the file"
        ) from error


def _costs(
    seconds: dict[str, dict[str, float]], same_bits: list[int], drafts: dict[str, dict[str, Any]], **others: Any
) -> PassCosts:
    """Costs from JSON, whose keys are strings and whose sequences are lists."""
    curves = {int(depth): {int(rows): time for rows, time in curve.items()} for depth, curve in seconds.items()}
    if not curves or not all(1 in curve for curve in curves.values()):
        raise ValueError("no passes over one token")
    times = [*(time for curve in curves.values() for time in curve.values())]
    share = others.get("processor_share")
    if not all(type(time) in (int, float) and 0 < time < math.inf for time in times):
        raise ValueError("seconds that are no positive numbers")
    if not (share is None or (type(share) in (int, float) and 0 < share < math.inf)):
        raise ValueError(f"processor_share {str(share)[:40]}")
    if not all(type(rows) is int for rows in same_bits):
        raise ValueError("same_bits that are no whole numbers")
    names = DraftFacts.__annotations__.keys()
    facts = {key: DraftFacts(**each) for key, each in drafts.items() if each.keys() == names}  # older ones had others
    return PassCosts(seconds=curves, same_bits=tuple(same_bits), drafts=facts, **others)
