"""What every step is trained on, as a function of the seed and the step's number alone.

Rows of the first two thirds of the steps are half as long as the others, since attention is dear
and a model learns the nearest words first. They are drawn from the first two thirds of the text,
the long ones from the rest, in random order and from a random place on, so that no text is seen
twice before all of its part has been.
"""

import numpy as np
from numpy.typing import NDArray

from spectool import CorpusError


def tokens_needed(steps: int, step_tokens: int, length: int) -> int:
    """Return how many tokens of text a run sees none of twice."""
    return steps * step_tokens + 3 * (step_tokens + 2 * length)


class Feed:
    """Rows of tokens for every step of a run."""

    def __init__(self, stream: NDArray[np.int32], steps: int, step_tokens: int, length: int, seed: int) -> None:
        """Lay out the text.

        Args:
            stream: Tokens of the text, int32 ``[tokens]``.
            steps: Steps of the whole run.
            step_tokens: Tokens that a step predicts, a multiple of ``length``.
            length: Tokens that a long row predicts; even.
            seed: Another seed gives another order.

        Raises:
            CorpusError: The text is too short for a step.
        """
        self.short_steps = steps * 2 // 3
        cut = len(stream) * 2 // 3
        lengths = (length // 2, length)
        self._parts = tuple(
            _Part(part, row, step_tokens // row, [seed, number])
            for number, (part, row) in enumerate(zip((stream[:cut], stream[cut:]), lengths, strict=True))
        )
        if any(part.steps < 1 for part in self._parts):
            raise CorpusError(
                f"the training text has {len(stream):,} tokens: expected {3 * (step_tokens + 2 * length):,} and more "
                f"for steps of {step_tokens:,}. Give more text, or fewer --step-tokens"
            )

    def rows(self, step: int) -> NDArray[np.int32]:
        """Return the rows of a step (from 0), ``[rows, length + 1]``: each token but the last predicts the next."""
        short = step < self.short_steps
        return self._parts[0].rows(step) if short else self._parts[1].rows(step - self.short_steps)


class _Part:
    """Rows of one length, from one part of the text."""

    def __init__(self, stream: NDArray[np.int32], length: int, rows: int, seed: list[int]) -> None:
        self._stream, self._length, self._rows, self._seed = stream, length, rows, seed
        self._count = max(0, len(stream) - length) // length  # from any place on, there are as many
        self.steps = self._count // rows
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, dtype=np.int64))

    def rows(self, step: int) -> NDArray[np.int32]:
        round_, place = divmod(step, self.steps)
        if self._order[0] != round_:
            rng = np.random.default_rng([*self._seed, round_])
            first = rng.integers(self._length)
            self._order = (round_, first + self._length * rng.permutation(self._count))
        starts = self._order[1][place * self._rows : (place + 1) * self._rows]
        return np.stack([self._stream[start : start + self._length + 1] for start in starts])
