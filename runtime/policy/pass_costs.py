"""What passes of a model cost on this machine, as it was measured: a JSON file in the user's cache.

Its name is a digest of model, machine and version of MLX: where one of them changes, passes are measured again.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_file
from spectool.artifacts.default_paths import default_path

ALIKE = 1.25  # times as much as another measurement says: what varies less is noise


@dataclass(frozen=True)
class PassCosts:
    """Measured passes of one model."""

    model: str  # the name that the user gave it, for messages
    machine: str  # the device, the machine and the versions, in words
    seconds: dict[int, dict[int, float]]  # of a pass, by tokens in the context and then by rows (tokens in the pass)
    plain: dict[int, float]  # of a plain pass that begins before the token of the one before it is read, by context
    same_bits: tuple[int, ...]  # rows at which a pass gave bit for bit the logits of passes over single tokens
    exact: bool = False  # whether drafts are kept to lengths whose passes have the same bits
    final: bool = True  # whether two measurements agree; if not, passes are measured again at the next start

    def __post_init__(self) -> None:
        curves = self.seconds.values()
        times = [time for curve in (self.plain, *curves) for time in curve.values()]
        if not curves or self.seconds.keys() != self.plain.keys() or any(1 not in each for each in curves):
            raise ValueError("expected seconds of a pass over 1 token, and of a plain one, for each context")
        if not all(isinstance(time, int | float) and 0 < time < math.inf for time in times):
            raise ValueError("expected seconds above 0")
        for value, kind in ((self.model, str), (self.machine, str), (self.exact, bool), (self.final, bool)):
            if not isinstance(value, kind):
                raise ValueError(f"expected a {kind.__name__}, found {value!r:.40}")

    @property
    def longest_exact(self) -> int:
        """Draft tokens up to which every pass that verifies some has the same bits; 0 if none has."""
        return next(rows - 1 for rows in count(1) if rows + 1 not in self.same_bits)

    @property
    def curve(self) -> dict[int, float]:
        """Seconds of a pass by rows, in the shortest context measured."""
        return self.seconds[min(self.seconds)]

    @property
    def whole(self) -> bool:
        """Whether enough sizes were timed to say what long drafts cost."""
        return max(self.curve) > 2

    def with_another(self, other: "PassCosts") -> "PassCosts":
        """The least times of this and ``other`` measurements of the same model; final if both say about the same."""
        if not self.whole:
            return replace(self, seconds=other.seconds, plain=other.plain, final=False)
        seconds = {
            depth: _least(self.seconds.get(depth, {}), other.seconds.get(depth, {}))
            for depth in sorted(self.seconds | other.seconds)
        }
        plain = {depth: min(each.plain.get(depth, math.inf) for each in (self, other)) for depth in seconds}
        shares = [
            time / self.plain[depth] * other.plain[depth] / other.seconds[depth][rows]
            for depth in self.seconds.keys() & other.seconds
            for rows, time in self.seconds[depth].items()
            if rows in other.seconds[depth]
        ]
        final = other.whole and all(1 / ALIKE <= share <= ALIKE for share in shares)
        return replace(self, seconds=seconds, plain=plain, final=final)


def _least(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    """The least times by rows; one that nothing confirms, and that is longer than that of more rows, is left out."""
    least = {rows: min(times[rows] for times in (one, other) if rows in times) for rows in sorted(one | other)}
    sure = one.keys() & other.keys() if one and other else least.keys()
    longer = {rows: min(least[each] for each in least if each >= rows) for rows in least}
    return {rows: time for rows, time in least.items() if rows in sure or time <= longer[rows]}


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
    """The saved costs of a model; None if they were not measured.

    Raises:
        ArtifactError: The file is damaged, no file, or cannot be read.
    """
    path = costs_path(key)
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise ValueError("no regular file")
        return _costs(**json.loads(path.read_text(encoding="utf-8")))
    except Exception as error:  # any damage: measuring again replaces the file
        raise ArtifactError(
            f"{path}: expected measurements of `spectool doctor`, got {type(error).__name__}: {str(error)[:100]}. "
            "Run `spectool doctor` again, or remove the file"
        ) from error


def _costs(
    seconds: dict[str, Any], plain: dict[str, float], same_bits: list[int], *, final: bool = False, **others: Any
) -> PassCosts:
    """Costs from JSON, whose keys are strings and whose sequences are lists; older files do not say if it is final."""
    curves = {int(depth): {int(rows): time for rows, time in curve.items()} for depth, curve in seconds.items()}
    contexts = {int(depth): time for depth, time in plain.items()}
    return PassCosts(seconds=curves, plain=contexts, same_bits=tuple(map(int, same_bits)), final=final, **others)
