"""The stage behind ``spectool build-dict``: text and tokenizer in, dictionary out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spectool import SpectoolError
from spectool.artifacts.dictionary import Dictionary, Entry, dictionary_arrays
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress
from spectool.build.counting import Counts
from spectool.build.dictionary.backoff import CandidateEntries, Predictions
from spectool.build.dictionary.held_out import Calibration, HeldOutText
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.dictionary.size_limits import Chosen, arrays_within
from spectool.build.dictionary.smoothing import open_windows
from spectool.tokenization.tokenizer import Tokenizer

_BYTES_AN_ENTRY = 4.4  # first guess


class Prepared(NamedTuple):
    """What dictionaries of all sizes share."""

    tokenizer: Tokenizer
    counts: Counts
    candidates: CandidateEntries
    held_out: HeldOutText | None  # text that was not counted, if there is any


def prepare_backoff(
    tokenizer: Tokenizer, counts: Counts, options: BackoffOptions, progress: Progress, held_out: Sequence[str] = ()
) -> Prepared:
    """Do what does not depend on the size of a dictionary.

    Args:
        tokenizer: The target's.
        counts: Windows of up to ``max_context + 1`` of its tokens.
        options: Smoothing.
        progress: Called at the start of each step with a short description.
        held_out: Texts that were not counted, by which the stated probabilities are corrected.
    """
    windows = open_windows(counts)
    text = HeldOutText(tokenizer.encode_batch(list(held_out)), windows, counts.symbols) if held_out else None
    progress("smoothing")
    return Prepared(tokenizer, counts, CandidateEntries(windows, options.discount, counts.symbols), text)


def build_backoff(
    prepared: Prepared, inputs: Mapping[str, Any], out: Path, options: BackoffOptions, progress: Progress
) -> Manifest:
    """Build a backoff dictionary and write it to ``out`` in one step.

    Args:
        prepared: What `prepare_backoff` returned.
        inputs: What the manifest says of the text that was counted.
        out: The artifact.
        options: Its size.
        progress: Called at the start of each step with a short description.

    Raises:
        SpectoolError: There is nothing to build from.
    """
    tokenizer, counts, candidates, text = prepared

    def best_entries(most: int) -> list[Entry]:
        chosen = candidates.restated(candidates.best_entries(most))
        calibration = None if text is None else Calibration(text.predicted(chosen))
        return list(_entries(counts, chosen, calibration))

    def choose(most: int) -> Chosen:
        entries = best_entries(most)
        progress(f"packing {len(entries):,} entries")
        return len(entries), *dictionary_arrays(entries)

    found = arrays_within(options.max_bytes, _BYTES_AN_ENTRY, choose, progress)
    if found is None:
        problem = f"from {counts.total:,} tokens. Give more text"
        if best_entries(1):
            problem = f"fits in {options.max_bytes:,} bytes. Give a larger --max-bytes"
        elif not counts.total:
            ways = "Give another text or tokenizer"
            problem = f"because {tokenizer.name} knows none of this text. {ways}"
        raise SpectoolError(f"{out}: no entry to store {problem}")
    arrays, shape = found
    contexts = sum(len(each.keys) for each in candidates.windows[:-1])
    statistics: dict[str, Any] = {"tokens": counts.total, "contexts": contexts}
    if text is not None:
        statistics["held_out"] = {"tokens": text.tokens}
    return Dictionary.write(
        out,
        arrays,
        arguments={"method": "backoff", **asdict(options)},
        tokenizers={"target": tokenizer.identity},
        inputs=inputs,
        statistics=statistics | shape,
    )


def _entries(counts: Counts, chosen: Sequence[Predictions], calibration: Calibration | None) -> Iterator[Entry]:
    for length, predictions in enumerate(chosen, 1):
        rows = np.flatnonzero(predictions.kept)
        contexts = (counts.spelled(length, rows) - 1).tolist()
        following = (predictions.token[rows] - 1).tolist()
        probability = predictions.stated[rows].astype(np.float64)
        if calibration is not None:
            probability = calibration(length, predictions.count[rows], predictions.stated[rows])
        yield from map(Entry, contexts, following, probability.tolist())
