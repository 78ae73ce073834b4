"""The methods of a sweep: how drafters are made from text, many settings at a time.

A method is two functions. ``plan`` gives the settings of its runs, in groups that are made in one go;
``measure`` takes such settings and yields for each of them a candidate: how many entries there are,
and how to replay them. Groups run in processes of their own.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.formats.counts import Counts
from spectool.artifacts.formats.dictionary import Dictionary
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.build.counting.stage import CountOptions, count
from spectool.build.dictionary.backoff_stage import MAX_CONTEXT, BackoffOptions, build_backoff, prepare
from spectool.build.dictionary.held_out import split_off
from spectool.build.dictionary.nested_dictspec import Drafts, NestedDictSpec
from spectool.measure.emulate.replay import replay
from spectool.measure.emulate.sweep.text import SweptText
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.lookup import LookupDrafter

_BATCH = 1 << 14  # n-grams encoded at once
Documents = Sequence[Sequence[int]]  # token ids of each document to replay


class Settings(NamedTuple):
    """What the runs of a method differ in; None where it has no such axis."""

    reading: Any = None
    order: Any = None
    entries_asked: int | None = None
    max_bytes: int | None = None
    min_prob: float | None = None


class Candidate(NamedTuple):
    """A dictionary or another drafter, ready to be replayed.

    Attributes:
        settings: Its place in the grid.
        entries: Entries stored; None for a drafter that has none.
        replay: Replays the documents with proposals of at most so many tokens.
        file_bytes: Size on disk, where a file was written.
    """

    settings: Settings
    entries: int | None
    replay: Callable[[int], DraftStatistics]
    file_bytes: int | None = None


class Method(NamedTuple):
    """See the module's docstring.

    Attributes:
        plan: Axes -> groups of settings.
        measure: Tokenizer, text, its documents to replay, settings of one group -> a candidate for each.
    """

    plan: Callable[[Any], list[list[Settings]]]
    measure: Callable[[Tokenizer, SweptText, Documents, Sequence[Settings]], Iterator[Candidate]]


def _plan_dictspec(axes: Any) -> list[list[Settings]]:
    inner = list(product(axes.readings, sorted(axes.entries), sorted(axes.min_prob)))
    return [
        [Settings(reading, order, entries, min_prob=min_prob) for reading, entries, min_prob in inner]
        for order in axes.orders
    ]


def _measure_dictspec(
    tokenizer: Tokenizer, text: SweptText, documents: Documents, settings: Sequence[Settings]
) -> Iterator[Candidate]:
    """Derive all sizes and minimum probabilities of one order from one count of continuations."""
    ngrams, counts = text.most_frequent(settings[0].order)
    batches = (ngrams[start : start + _BATCH] for start in range(0, len(ngrams), _BATCH))
    tokens = [ids for batch in batches for ids in tokenizer.encode_after_space(batch)]
    nested = NestedDictSpec(tokens, counts, documents, tokenizer.specials)
    for (reading, entries), alike in groupby(settings, lambda one: (one.reading, one.entries_asked)):
        proposals = nested.proposals(entries or 0, reading)
        for one in alike:
            lengths = proposals.lengths(one.min_prob or 0.0)
            drafts = partial(nested.drafts, proposals, lengths)
            yield Candidate(one, nested.stored(proposals, lengths), partial(_replay_drafts, nested.ends, drafts))


def _replay_drafts(ends: NDArray[np.int64], drafts: Callable[[int], Drafts], num_draft_tokens: int) -> DraftStatistics:
    """Walk from pass to pass where all proposals are known before: the same counts as `measure.emulate.replay`."""
    found = drafts(num_draft_tokens)
    following = np.minimum(np.arange(1, len(ends) + 1) + found.accepted, ends).tolist()
    passes, position = [], 0
    while position < len(following):
        passes.append(position)
        position = following[position]
    proposed = found.proposed[passes]
    return DraftStatistics(
        passes=len(passes),
        tokens=len(ends),
        proposed=int(proposed.sum()),
        accepted=int(found.accepted[passes].sum()),
        drafted_passes=int(np.count_nonzero(proposed)),
    )


def _plan_backoff(axes: Any) -> list[list[Settings]]:
    inner = product(sorted(axes.max_bytes), sorted(axes.min_prob))
    return [[Settings(max_bytes=max_bytes, min_prob=min_prob) for max_bytes, min_prob in inner]]


def _measure_backoff(
    tokenizer: Tokenizer, text: SweptText, documents: Documents, settings: Sequence[Settings]
) -> Iterator[Candidate]:
    """Count the text's token windows once, and build a dictionary for every size."""
    with tempfile.TemporaryDirectory(prefix="spectool-") as scratch:
        counts, out = Path(scratch) / "windows.counts", Path(scratch) / "one.dict"
        options = CountOptions(orders=MAX_CONTEXT + 1, workers=1)
        held_out: list[str] = []
        corpus = text.open(str(text.language.build))
        count(corpus, counts, options, tokenizer, _quiet, lambda source: split_off(text.read(source), held_out))
        prepared = prepare(tokenizer, Counts(counts), BackoffOptions(), _quiet, held_out)
        for max_bytes, alike in groupby(settings, lambda one: one.max_bytes):
            limits = BackoffOptions(max_bytes=max_bytes)
            manifest = build_backoff(tokenizer, Counts(counts), out, limits, _quiet, prepared=prepared)
            dictionary = Dictionary(out)
            for one in alike:
                drafter = LookupDrafter(dictionary, min_probability=one.min_prob or 0.0)
                yield Candidate(one, len(dictionary), partial(replay, documents, drafter), manifest.total_bytes)


def _quiet(step: str) -> None:
    """Say nothing: a sweep has a progress bar of its own."""


def _measure_plain(
    tokenizer: Tokenizer, text: SweptText, documents: Documents, settings: Sequence[Settings]
) -> Iterator[Candidate]:
    """Draft nothing: the row that has the fertility of a language without text to build from."""
    tokens = sum(map(len, documents))
    yield Candidate(settings[0], None, lambda length: DraftStatistics(passes=tokens, tokens=tokens))


METHODS: Mapping[str, Method] = {
    "dictspec": Method(_plan_dictspec, _measure_dictspec),
    "backoff": Method(_plan_backoff, _measure_backoff),
    "plain": Method(lambda axes: [[Settings()]], _measure_plain),
}
