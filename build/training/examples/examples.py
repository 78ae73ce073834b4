"""Rows to train and to measure on: ids of the draft, which of them count, and the target's side of them.

They are kept in the work directory as NAME.npz, laid end to end:

    draft     ids of the draft                                 int32 [tokens]
    counted   whether the row's token after this one counts    bool [tokens], the last of a row unused
    at        place in the target's row after which it predicts the same next byte, -1 for none; int32 [tokens]
    target    ids of the target                                int32 [target tokens]
    lengths   tokens and target tokens of each row             int64 [rows, 2]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.replacing import renaming

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Example:
    """One row.

    Attributes:
        draft: Ids of the draft, int32 ``[n]``.
        counted: Whether token i + 1 counts, bool ``[n - 1]``.
        target: Ids of the target for the same text, int32 ``[m]``; empty where it is not asked.
        at: The target's place that predicts what the draft's place i does, int32 ``[n - 1]``; -1 for none.
    """

    draft: NDArray[np.int32]
    counted: NDArray[np.bool_]
    target: NDArray[np.int32]
    at: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one shape, zeros at their ends, and the places that count.

    Attributes:
        draft: Ids of the draft, int32 ``[rows, longest]``.
        target: Ids of the target, int32 ``[rows, longest]``.
        rows: Row of each place that counts, int32 ``[places]``.
        places: Its place in the draft's row, ``[places]``.
        at: Its place in the target's row, ``[places]``; -1 for none.
    """

    draft: NDArray[np.int32]
    target: NDArray[np.int32]
    rows: NDArray[np.int32]
    places: NDArray[np.int32]
    at: NDArray[np.int32]


def batch_of(examples: Sequence[Example], paired: bool) -> Batch:
    """Lay examples out.

    Args:
        examples: At least one.
        paired: Whether only places count at which the target predicts the same.
    """
    longest = max(len(example.draft) for example in examples)
    draft = np.zeros((len(examples), longest), dtype=np.int32)
    target = np.zeros((len(examples), max(len(example.target) for example in examples)), dtype=np.int32)
    counted = np.zeros((len(examples), longest - 1), dtype=bool)
    at = np.full((len(examples), longest - 1), NOWHERE, dtype=np.int32)
    for row, example in enumerate(examples):
        draft[row, : len(example.draft)] = example.draft
        target[row, : len(example.target)] = example.target
        counted[row, : len(example.counted)] = example.counted
        at[row, : len(example.at)] = example.at
    rows, places = np.nonzero(counted & (at != NOWHERE) if paired else counted)
    return Batch(draft, target, rows.astype(np.int32), places.astype(np.int32), at[rows, places])


class Draws:
    """Which examples a step takes: a function of the seed and of the step's number alone.

    In random order; none is seen twice before all have been.
    """

    def __init__(self, number: int, batch: int, seed: Sequence[int]) -> None:
        """Draw ``batch`` of ``number`` examples a step, in an order of their own for every ``seed``."""
        self._number, self._batch, self._seed = number, batch, list(seed)

    def of(self, step: int) -> NDArray[np.int64]:
        """Return the examples of a step (from 0), int64 ``[batch]``."""
        rounds, places = np.divmod(np.arange(step * self._batch, (step + 1) * self._batch), self._number)
        orders = {round_: self._order(round_) for round_ in np.unique(rounds).tolist()}
        return np.array([orders[r][p] for r, p in zip(rounds.tolist(), places.tolist(), strict=True)])

    def _order(self, round_: int) -> NDArray[np.int64]:
        return np.random.default_rng([*self._seed, round_]).permutation(self._number)


def save_examples(path: Path, examples: Sequence[Example]) -> None:
    """Write examples in one step."""
    arrays: dict[str, Any] = {
        "draft": np.concatenate([example.draft for example in examples]),
        "counted": np.concatenate([np.append(example.counted, False) for example in examples]),
        "at": np.concatenate([np.append(example.at, NOWHERE) for example in examples]).astype(np.int32),
        "target": np.concatenate([example.target for example in examples]).astype(np.int32),
        "lengths": np.array([(len(example.draft), len(example.target)) for example in examples], dtype=np.int64),
    }
    with renaming(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)


def load_examples(path: Path) -> list[Example]:
    """Read what `save_examples` wrote."""
    with np.load(path, allow_pickle=False) as found:
        cuts = np.cumsum(found["lengths"], axis=0)[:-1]
        draft, counted, at = (np.split(found[name], cuts[:, 0]) for name in ("draft", "counted", "at"))
        target = np.split(found["target"], cuts[:, 1])
    return [Example(d, c[:-1], t, a[:-1]) for d, c, t, a in zip(draft, counted, target, at, strict=True)]
