"""Text held out of the counts, by which the probabilities that entries state are corrected."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.build.dictionary.backoff import GROUPS, Predictions
from spectool.build.dictionary.smoothing import Windows
from spectool.corpora import Document

STRETCH = 64  # lines of text whose documents are held out together: neighbours are about the same things
EVERY = 50  # of this many stretches, one is held out
FEW_EVERY = 20  # of the documents of a text that is too small for this, one is held out
_PRIOR = 5.0  # right answers that are added with a factor of one


def has_few(documents: Iterable[Document]) -> bool:
    """Whether there are too few documents for stretches of them to be held out; at most 3,200 are read."""
    return sum(1 for _ in islice(documents, STRETCH * EVERY)) < STRETCH * EVERY


def split_off(documents: Iterable[Document], held_out: list[str], few: bool = False) -> Iterator[Document]:
    """Yield documents, but put the texts of some into ``held_out`` instead.

    Of a long text, these are the documents that begin in one stretch of 64 lines in fifty. A text of fewer than 3,200
    documents has too few such stretches. Of so ``few``, one document in twenty is held out.
    """
    line = 0
    for number, document in enumerate(documents):
        if number % FEW_EVERY == FEW_EVERY - 1 if few else line // STRETCH % EVERY == EVERY - 1:
            held_out.append(document.text)
        else:
            yield document
        line += document.text.count("\n") + 1


class Guesses(NamedTuple):
    """What was proposed for each token of a text, ``[tokens]`` each."""

    proposed: NDArray[np.bool_]  # whether something was
    right: NDArray[np.bool_]  # whether that was the token itself
    stated: NDArray[np.float32]  # probability that the entry states
    group: NDArray[np.int64]  # of the entry, as in `Predictions`


class HeldOutText:
    """Encoded text with the counted windows that end at each of its tokens."""

    def __init__(self, documents: Iterable[Sequence[int]], windows: Sequence[Windows], symbols: int) -> None:
        """Find the windows of order 1 to N that end at each token id; the highest symbol is ``symbols``."""
        # A break is symbol 0, which no window contains.
        self.symbols = np.array([s for ids in documents for s in (*(i + 1 for i in ids), 0)], dtype=np.int64)
        self.tokens = int(np.count_nonzero(self.symbols))
        self._rows = [windows[0].find(self.symbols)]
        for window in windows[1:-1]:
            before = np.concatenate([[-1], self._rows[-1][:-1]])
            rows = window.find(np.maximum(before, 0) * (symbols + 1) + self.symbols)
            self._rows.append(np.where(before >= 0, rows, -1))

    def predicted(self, chosen: Sequence[Predictions]) -> Guesses:
        """What is proposed for each token, given the true tokens before it."""
        size = len(self.symbols)
        guess, group = np.full(size, -1, dtype=np.int64), np.zeros(size, np.int64)
        stated = np.zeros(size, np.float32)
        for predictions, rows in zip(chosen, self._rows, strict=False):
            places = np.flatnonzero(rows[:-1] >= 0)  # tokens after a known context
            context = rows[places]
            guess[places + 1] = predictions.token[context]
            stated[places + 1] = predictions.stated[context]
            group[places + 1] = predictions.group[context]
        proposed = (guess >= 0) & (self.symbols > 0)
        return Guesses(proposed, proposed & (guess == self.symbols), stated, group)


def corrections(guesses: Guesses) -> NDArray[np.float64]:
    """Factors that correct stated probabilities, ``[groups]``, from what entries stated for a text and what was right.

    Entries are right less often in new text than in the counted text, above all those of rare and long contexts. But
    what is drafted is decided by thresholds on products of probabilities, so these have to be comparable. A factor is
    how often entries were right in the held-out text, over how often they stated that they would be.
    """
    right = np.bincount(guesses.group[guesses.right], minlength=GROUPS)
    stated = np.bincount(guesses.group[guesses.proposed], guesses.stated[guesses.proposed], minlength=GROUPS)
    factors: NDArray[np.float64] = (right + _PRIOR) / (stated + _PRIOR)
    return factors
