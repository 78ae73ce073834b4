"""The stage behind ``spectool build-dict``: text and tokenizer in, dictionary out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spectool import SpectoolError
from spectool.artifacts.dictionary import Dictionary, Entry, dictionary_arrays
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress
from spectool.build.counting import Counts
from spectool.build.dictionary.backoff import CandidateEntries
from spectool.build.dictionary.held_out import Calibration, HeldOutText
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.dictionary.size_limits import Chosen, arrays_within
from spectool.build.dictionary.smoothing import open_windows
from spectool.tokenization.tokenizer import Tokenizer

_BYTES_AN_ENTRY = 4.4  # first guess


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

        def choose(most: int) -> Chosen:
            entries = self._best_entries(most)
            self._progress(f"packing {len(entries):,} entries")
            return len(entries), *dictionary_arrays(entries)

        total = self._counts.total
        found = arrays_within(options.max_bytes, _BYTES_AN_ENTRY, choose, self._progress)
        if found is None:
            problem = f"from {total:,} tokens. Give more text"
            if self._best_entries(1):
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

    def _best_entries(self, most: int) -> list[Entry]:
        chosen = self._candidates.restated(self._candidates.best_entries(most))
        calibration = Calibration(self._held_out.predicted(chosen))
        entries: list[Entry] = []
        for length, predictions in enumerate(chosen, 1):
            rows = np.flatnonzero(predictions.kept)
            contexts = (self._counts.spelled(length, rows) - 1).tolist()
            following = (predictions.token[rows] - 1).tolist()
            stated = calibration(length, predictions.count[rows], predictions.stated[rows])
            entries += map(Entry, contexts, following, stated.tolist())
        return entries
