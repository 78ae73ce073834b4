"""The stage behind ``spectool build-dict --method backoff``: token windows and tokenizer in, dictionary out."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spectool import SpectoolError
from spectool.artifacts.counts import Counts
from spectool.artifacts.dictionary import FORMAT, MIN_PROBABILITY, VERSION, Entry
from spectool.artifacts.manifest import Manifest, seal
from spectool.artifacts.replacing import writing
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.dictionary.backoff import CandidateEntries, Predictions
from spectool.build.dictionary.held_out import Calibration, HeldOutText, split_off
from spectool.build.dictionary.options import BackoffOptions, Limits
from spectool.build.dictionary.size_limits import write_within
from spectool.build.dictionary.smoothing import open_windows
from spectool.build.inputs import Progress
from spectool.corpora import Corpus
from spectool.tokenization.fingerprint import short
from spectool.tokenization.tokenizer import Tokenizer

_DRAFT_LENGTH = 8  # at which dictionaries are compared on the held-out text


class Prepared(NamedTuple):
    """What dictionaries of all sizes share."""

    candidates: CandidateEntries
    held_out: HeldOutText | None  # text that was not counted, if there is any


def prepare(
    tokenizer: Tokenizer, counts: Counts, options: BackoffOptions, progress: Progress, held_out: Sequence[str] = ()
) -> Prepared:
    """Do what does not depend on the size; arguments and errors as for `build_backoff`."""
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
        out: Directory of the artifact.
        options: What is asked.
        progress: Called with a phrase when a step begins.
        held_out: Texts that were not counted, to set the stated probabilities right on.
        prepared: What `prepare` made of the same, for several sizes.

    Raises:
        SpectoolError: The counts do not fit, or there is nothing to build from.
    """
    with writing(out) as directory:
        candidates, text = prepared or prepare(tokenizer, counts, options, progress, held_out)
        chosen: list[Predictions] = []
        calibration: Calibration | None = None

        def choose(most: int) -> list[Entry]:
            nonlocal calibration
            chosen[:] = candidates.restated(candidates.best_entries(most))
            calibration = None if text is None else Calibration(text.predicted(chosen))
            return list(_entries(chosen, counts, calibration))

        shape = write_within(directory, Limits(options.entries, options.max_bytes), choose, True, progress)
        if shape is None:
            allowed = "" if options.max_bytes is None else f" in {options.max_bytes:,} bytes"
            raise SpectoolError(
                f"{counts.path}: no entry to store from {counts.total:,} tokens{allowed}. "
                "Give more text, or a larger --max-bytes"
            )
        contexts = sum(len(each.keys) for each in candidates.windows[:-1])
        statistics: dict[str, Any] = {"tokens": counts.total, "contexts": contexts}
        if text is not None:
            default = text.tokens_per_pass(chosen, _DRAFT_LENGTH, MIN_PROBABILITY, calibration)
            statistics["held_out"] = {
                "tokens": text.tokens,
                "tokens_per_pass": round(text.tokens_per_pass(chosen, _DRAFT_LENGTH), 4),
                "min_probability": MIN_PROBABILITY,
                "tokens_per_pass_at_min_probability": round(default, 4),
            }
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            arguments={"method": "backoff", **asdict(options), "min_count": counts.min_count},
            tokenizers={"target": tokenizer.identity},
            inputs=counts.manifest.inputs,
            statistics=statistics | shape,
        )
        return seal(directory, manifest)


def count_and_build(
    tokenizer: Tokenizer, corpus: Corpus, out: Path, options: BackoffOptions, limits: CountOptions, progress: Progress
) -> Manifest:
    """Count a corpus in a temporary directory, all but a held-out fiftieth, and build from that.

    Args:
        tokenizer: The target's.
        corpus: Text.
        out: Directory of the artifact.
        options: What is asked of the dictionary.
        limits: What is asked of the counting: memory, workers, minimum count.
        progress: Called with a phrase when a step begins.

    Raises:
        CorpusError: The text cannot be read.
        SpectoolError: There is nothing to build from.
    """
    held_out: list[str] = []
    with tempfile.TemporaryDirectory(prefix="spectool-") as scratch:
        path = Path(scratch) / "windows.counts"
        limits = replace(limits, orders=options.max_context + 1)
        count(corpus, path, limits, tokenizer, progress, partial(split_off, held_out=held_out))
        return build_backoff(tokenizer, Counts(path), out, options, progress, held_out)


def _check(tokenizer: Tokenizer, counts: Counts, options: BackoffOptions) -> None:
    advice = f"Count with `spectool count --tokenizer {tokenizer.name}`"
    if counts.kind != "windows":
        raise SpectoolError(f"{counts.path}: counts of {counts.kind}, expected of token windows. {advice}")
    if counts.fingerprint != tokenizer.fingerprint:
        raise SpectoolError(
            f"{counts.path}: counted with another tokenizer ({short(counts.fingerprint or '')}), expected "
            f"{tokenizer.name} ({short(tokenizer.fingerprint)}). {advice}"
        )
    if counts.orders <= options.max_context:
        raise SpectoolError(
            f"{counts.path}: windows of up to {counts.orders} tokens, expected {options.max_context + 1} for contexts "
            f"of {options.max_context}. Count with --orders {options.max_context + 1}, or give a lower --max-context"
        )
    counts.check()


def _entries(chosen: Sequence[Predictions], counts: Counts, calibration: Calibration | None) -> Iterator[Entry]:
    for length, predictions in enumerate(chosen, 1):
        rows = np.flatnonzero(predictions.kept)
        contexts = (counts.spelled(length, rows) - 1).tolist()
        following = (predictions.token[rows] - 1).tolist()
        count, stated = predictions.count[rows], predictions.stated[rows]
        probability = stated if calibration is None else calibration(length, count, stated)
        for context, token, p, n in zip(contexts, following, probability.tolist(), count.tolist(), strict=True):
            yield Entry(context, (token,), p, n)
