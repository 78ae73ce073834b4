"""The stage behind ``spectool build-dict``: text and tokenizer in, dictionary out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import SpectoolError
from spectool.artifacts.dictionary import Dictionary, dictionary_arrays
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress
from spectool.build.counting import Counts
from spectool.build.dictionary.backoff import LEAST_GAIN, CandidateEntries, Predictions, number_of
from spectool.build.dictionary.held_out import HeldOutText, corrections
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.dictionary.size_limits import largest_within
from spectool.build.dictionary.smoothing import open_windows
from spectool.tokenization.tokenizer import Tokenizer

_BYTES_AN_ENTRY = 4.4  # about
_FEWEST_BYTES = 2.0  # of an entry: more than fit with these are not packed to see that they do not fit
Arrays = tuple[dict[str, NDArray[Any]], dict[str, Any]]  # and what a manifest's statistics say of them


class BackoffBuilder:
    """Counts that are smoothed once, and what dictionaries of all sizes are built from."""

    def __init__(
        self, tokenizer: Tokenizer, counts: Counts, options: BackoffOptions, progress: Progress, held_out: Sequence[str]
    ) -> None:
        """Smooth counts of windows of up to ``max_context + 1`` tokens.

        The stated probabilities are corrected by ``held_out``, texts that were not counted.
        """
        windows = open_windows(counts)
        self._tokenizer, self._counts, self._progress = tokenizer, counts, progress
        self._contexts = sum(len(window.keys) for window in windows[:-1])
        self._held_out = HeldOutText(tokenizer.encode_batch(list(held_out)), windows, counts.symbols)
        progress("smoothing")
        self._candidates = CandidateEntries(windows, options.discount, counts.symbols)

    def build(self, inputs: Mapping[str, Any], out: Path, options: BackoffOptions) -> Manifest:
        """Write a dictionary of the size in ``options`` to ``out`` in one step.

        The manifest says ``inputs`` of the text that was counted.

        Raises:
            SpectoolError: There is nothing to build from.
        """

        def make(reach: float) -> tuple[float, Arrays | None]:
            chosen = self._candidates.entries_gaining(1 / reach)
            number = number_of(chosen)
            if not number or number * _FEWEST_BYTES > options.max_bytes:
                return number * _BYTES_AN_ENTRY, None
            self._progress(f"packing {number:,} entries")
            found = self._arrays(chosen)
            return sum(values.nbytes for values in found[0].values()), found

        most, total = 1 / LEAST_GAIN, self._counts.total
        self._progress("choosing entries")
        found = largest_within(options.max_bytes, most, most, make)
        if found is None:
            problem = f"from {total:,} tokens. Give more text"
            if number_of(self._candidates.entries_gaining(LEAST_GAIN)):
                problem = f"fits in {options.max_bytes:,} bytes. Give a larger --max-bytes"
            elif not total:
                problem = f"because {self._tokenizer.name} knows none of this text. Give another text or tokenizer"
            raise SpectoolError(f"{out}: no entry to store {problem}")
        arrays, shape = found
        statistics: dict[str, Any] = {"tokens": total, "contexts": self._contexts}
        if self._held_out.tokens:
            statistics["held_out"] = {"tokens": self._held_out.tokens}
        return Dictionary.write(
            out,
            arrays,
            arguments={"method": "backoff", **asdict(options)},
            tokenizers={"target": self._tokenizer.identity},
            inputs=inputs,
            statistics=statistics | shape,
        )

    def _arrays(self, chosen: Sequence[Predictions]) -> Arrays:
        chosen = self._candidates.restated(chosen)
        factors = corrections(self._held_out.predicted(chosen))
        contexts, following, probability = list[NDArray[Any]](), list[NDArray[Any]](), list[NDArray[Any]]()
        for length, predictions in enumerate(chosen, 1):
            rows = np.flatnonzero(predictions.kept)
            newest_first = self._counts.spelled(length, rows)[:, ::-1] - 1
            contexts.append(np.pad(newest_first, ((0, 0), (0, len(chosen) - length)), constant_values=-1))
            following.append(predictions.token[rows] - 1)
            probability.append(np.minimum(1, predictions.stated[rows] * factors[predictions.group[rows]]))
        return dictionary_arrays(np.concatenate(contexts), np.concatenate(following), np.concatenate(probability))
