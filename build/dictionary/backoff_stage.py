"""The stage behind ``spectool build-dict``: token windows and tokenizer in, dictionary out."""

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spectool import SpectoolError
from spectool.artifacts.counts import Counts
from spectool.artifacts.dictionary import Dictionary, Entry
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count_text
from spectool.build.dictionary.backoff import CandidateEntries, Predictions
from spectool.build.dictionary.held_out import Calibration, HeldOutText, has_few, split_off
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.dictionary.size_limits import arrays_within
from spectool.build.dictionary.smoothing import open_windows
from spectool.corpora import Corpus
from spectool.tokenization.fingerprint import short
from spectool.tokenization.tokenizer import Tokenizer


class Prepared(NamedTuple):
    """What dictionaries of all sizes share."""

    candidates: CandidateEntries
    held_out: HeldOutText | None  # text that was not counted, if there is any


def prepare_backoff(
    tokenizer: Tokenizer, counts: Counts, options: BackoffOptions, progress: Progress, held_out: Sequence[str] = ()
) -> Prepared:
    """The part of `build_backoff` that does not depend on the size; arguments and errors are the same."""
    _check(tokenizer, counts, options)
    progress("reading counts")
    windows = open_windows(counts)[: options.max_context + 1]
    text = HeldOutText(tokenizer.encode_batch(list(held_out)), windows, counts.symbols) if held_out else None
    progress("smoothing")
    return Prepared(CandidateEntries(windows, options.discount, counts.symbols), text)


def build_backoff(
    tokenizer: Tokenizer,
    counts: Counts,
    out: Path,
    options: BackoffOptions,
    progress: Progress,
    held_out: Sequence[str] = (),
    prepared: Prepared | None = None,
) -> Manifest:
    """Build a backoff dictionary and write it to ``out`` in one step.

    Args:
        tokenizer: The target's.
        counts: Windows of its tokens, at least of order ``max_context + 1``.
        out: The artifact.
        options: Sizes and smoothing.
        progress: Called at the start of each step with a short description.
        held_out: Texts that were not counted, by which the stated probabilities are corrected.
        prepared: What `prepare_backoff` returned, to build several sizes from it.

    Raises:
        SpectoolError: The counts do not fit, or there is nothing to build from.
    """
    candidates, text = prepared or prepare_backoff(tokenizer, counts, options, progress, held_out)

    def best_entries(most: int) -> list[Entry]:
        chosen = candidates.restated(candidates.best_entries(most))
        calibration = None if text is None else Calibration(text.predicted(chosen))
        return list(_entries(counts, chosen, calibration))

    found = arrays_within(options.max_bytes, best_entries, progress)
    if found is None:
        problem = f"from {counts.total:,} tokens. Give more text"
        if best_entries(1):
            problem = f"fits in {options.max_bytes:,} bytes. Give a larger --max-bytes"
        elif not counts.total:
            ways = "Give another text or tokenizer"
            problem = f"from 0 tokens. {tokenizer.name} has only unknown or special tokens for it. {ways}"
        raise SpectoolError(f"{out}: no entry to store {problem}")
    arrays, shape = found
    contexts = sum(len(each.keys) for each in candidates.windows[:-1])
    statistics: dict[str, Any] = {"tokens": counts.total, "contexts": contexts}
    if text is not None:
        statistics["held_out"] = {"tokens": text.tokens}
    return Dictionary.write(
        out,
        arrays,
        arguments={"method": "backoff", **asdict(options), "min_count": counts.min_count},
        tokenizers={"target": tokenizer.identity},
        inputs=counts.manifest.inputs,
        statistics=statistics | shape,
    )


def count_and_build(
    tokenizer: Tokenizer, corpus: Corpus, out: Path, options: BackoffOptions, counting: CountOptions, progress: Progress
) -> Manifest:
    """Count a corpus in a temporary directory, all but a small part that is held out, and build from that.

    Args:
        tokenizer: The target's.
        corpus: Text.
        out: The artifact.
        options: See `BackoffOptions`.
        counting: Limits and minimum count; the orders are those that the longest context needs.
        progress: Called at the start of each step with a short description.

    Raises:
        CorpusError: The text cannot be read.
        SpectoolError: There is nothing to build from.
    """
    held_out: list[str] = []  # complete once all is counted: in a temporary directory no count resumes
    with tempfile.TemporaryDirectory(prefix="spectool-") as scratch:
        path = Path(scratch) / "windows.counts"
        counting = replace(counting, orders=options.max_context + 1)
        counted = split_off(corpus, held_out, has_few(corpus))
        try:
            count_text(corpus, path, counting, tokenizer, progress, counted)
        except KeyboardInterrupt as stop:
            stop.args = ()  # they say that the work is kept, but the directory is removed
            raise
        return build_backoff(tokenizer, Counts(path), out, options, progress, held_out)


def _entries(counts: Counts, chosen: Sequence[Predictions], calibration: Calibration | None) -> Iterator[Entry]:
    for length, predictions in enumerate(chosen, 1):
        rows = np.flatnonzero(predictions.kept)
        contexts = (counts.spelled(length, rows) - 1).tolist()
        following = (predictions.token[rows] - 1).tolist()
        count, probability = predictions.count[rows], predictions.stated[rows].astype(np.float64)
        if calibration is not None:
            probability = calibration(length, count, predictions.stated[rows])
        for context, token, p, n in zip(contexts, following, probability.tolist(), count.tolist(), strict=True):
            yield Entry(context, token, p, n)


def _check(tokenizer: Tokenizer, counts: Counts, options: BackoffOptions) -> None:
    advice = f"Count with `spectool count --tokenizer {shlex.quote(tokenizer.name)}`"
    if counts.fingerprint != tokenizer.fingerprint:
        raise SpectoolError(
            f"{counts.path}: counted with another tokenizer ({short(counts.fingerprint)}), expected "
            f"{tokenizer.name} ({short(tokenizer.fingerprint)}). {advice}"
        )
    if counts.orders <= options.max_context:
        raise SpectoolError(
            f"{counts.path}: windows of up to {counts.orders} tokens, expected {options.max_context + 1} for contexts "
            f"of {options.max_context}. Count with --orders {options.max_context + 1}"
        )
    counts.check()
