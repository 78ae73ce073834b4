"""The methods of a sweep: how drafters are made from text and replayed, many runs at a time.

A method takes a tokenizer, the text of a language, and its documents to replay. It also takes the rows of some runs, in
the order of their settings. It yields each row with what was built, and the counts of its replay.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from spectool.artifacts.formats.counts import Counts
from spectool.artifacts.formats.dictionary import Dictionary
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.dictionary.backoff_stage import build_backoff, prepare
from spectool.build.dictionary.dictspec import Drafts, Ints, NestedDictSpec
from spectool.build.dictionary.dictspec_stage import ORDERS
from spectool.build.dictionary.held_out import passes, split_off
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.inputs import quiet
from spectool.measure.emulate.replay import replay
from spectool.measure.emulate.sweep.results import Row
from spectool.measure.emulate.sweep.text import SweptText
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.lookup import LookupDrafter

_BATCH = 1 << 14  # n-grams encoded at once
Documents = Sequence[Sequence[int]]
Measured = Iterator[tuple[Row, DraftStatistics]]


def _dictspec(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[Row]) -> Measured:
    """Derive all sizes and minimum probabilities of one order from one count of continuations."""
    largest = max(row["entries_asked"] for row in rows)
    ngrams, counts = text.words.most_frequent(largest, ORDERS[rows[0]["order"]])
    batches = (ngrams[start : start + _BATCH] for start in range(0, len(ngrams), _BATCH))
    tokens = [ids for batch in batches for ids in tokenizer.encode_after_space(batch)]
    nested = NestedDictSpec(tokens, counts, documents, tokenizer.specials)
    for (entries, reading), alike in groupby(rows, itemgetter("entries_asked", "reading")):
        proposals = nested.proposals(entries, reading)
        for min_prob, same in groupby(alike, itemgetter("min_prob")):
            lengths = proposals.lengths(min_prob)
            stored = len(nested.kept(proposals, lengths))
            for row in same:
                drafts = nested.drafts(proposals, lengths, row["num_draft_tokens"])
                yield {**row, "entries": stored}, _replayed(nested.ends, drafts)


def _replayed(ends: Ints, drafts: Drafts) -> DraftStatistics:
    """Walk from pass to pass; since all proposals are known before, the counts are those of `replay`."""
    starts = passes(np.minimum(np.arange(1, len(ends) + 1) + drafts.accepted, ends))
    proposed, accepted = drafts.proposed[starts], drafts.accepted[starts]
    return DraftStatistics(
        passes=len(starts),
        tokens=len(ends),
        proposed=int(proposed.sum()),
        accepted=int(accepted.sum()),
        drafted_passes=int(np.count_nonzero(proposed)),
    )


def _backoff(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[Row]) -> Measured:
    """Count the text's token windows once, and build a dictionary for every size."""
    with tempfile.TemporaryDirectory(prefix="spectool-") as scratch:
        counts, out = Path(scratch) / "windows.counts", Path(scratch) / "one.dict"
        options = CountOptions(orders=BackoffOptions().max_context + 1, workers=1)
        held_out: list[str] = []
        corpus = text.open(str(text.language.build))
        count(corpus, counts, options, tokenizer, quiet, lambda source: split_off(text.read(source), held_out))
        prepared = prepare(tokenizer, Counts(counts), BackoffOptions(), quiet, held_out)
        for max_bytes, alike in groupby(rows, itemgetter("max_bytes")):
            limits = BackoffOptions(max_bytes=max_bytes)
            manifest = build_backoff(tokenizer, Counts(counts), out, limits, quiet, prepared=prepared)
            dictionary = Dictionary(out)
            built = {"entries": len(dictionary), "file_bytes": manifest.total_bytes}
            for row in alike:
                drafter = LookupDrafter(dictionary, min_probability=row["min_prob"])
                yield {**row, **built}, replay(documents, drafter, row["num_draft_tokens"])


def _plain(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[Row]) -> Measured:
    """Draft nothing: the row that has the fertility of a language without text to build from."""
    tokens = sum(map(len, documents))
    yield rows[0], DraftStatistics(passes=tokens, tokens=tokens)


METHODS: dict[str, Callable[[Tokenizer, SweptText, Documents, Sequence[Row]], Measured]] = {
    "dictspec": _dictspec,
    "backoff": _backoff,
    "plain": _plain,
}
