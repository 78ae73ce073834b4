"""Merging dictionaries of one tokenizer: as if their texts had been joined, each as often as it weighs.

After a context c, dictionary i proposes t_i(c) with probability p_i(c). That is by an entry of its own or, where it has
none, by that of its longest known suffix. The merged dictionary proposes the best of the weighted mixture

    P(t | c) = sum over i of w_i n_i(c) p_i(c) [t = t_i(c)]  /  sum over i of w_i n_i(c)

over all contexts with an entry in any of them. Where c has no entry in i, it is not known how often it occurs in the
text of i: perhaps never, or i has dropped it because its suffix says the same. The number is estimated from a
dictionary j that has the entry, as if the parts of c came together as they do there, each as frequent as it is in i:

    n_i(c) = n_j(c) * n_i(s) / n_j(s) * product over the tokens x of c before s of (n_i(x) / N_i) / (n_j(x) / N_j)

and never more than n_i(s) or n_i(x). Here s is the longest suffix of c that i knows, and N is the size of a text,
measured by the counts of its shortest contexts. The dictionary in which c occurs most is j. Where j has no entry for s,
its longest suffix there stands for it. A token x without an entry in j counts as equally frequent in both. Where x has
no entry in i, c counts as unknown to i, which then has no say. Without this estimate, a few occurrences in one
dictionary would overrule another that knows the phrase well. With a fixed share of n_i(s), text that never has the
phrase would vote it down.

Then entries are chosen. An entry is redundant if the longest kept suffix of its context proposes the same with the same
probability. Of the others, those that gain most are kept. The gain is the number of occurrences of the context, times
what the entry adds to the drafts there, as in `backoff`.

Let f be the suffix's proposal, and q its probability after the context c itself. No dictionary knows q, unless c
proposes f as well. Otherwise let c propose t with probability p. Then q is taken for (1 - p) P(f | suffix), which is
what t leaves over, shared out as after the suffix. It is no more than p / 2, because t was chosen over f.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import compress, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spectool import FingerprintMismatch, SpectoolError
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.dictionary import PROBABILITY_STEP, Dictionary
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress
from spectool.build.dictionary.backoff import gain_over_thresholds
from spectool.build.dictionary.options import Limits
from spectool.build.dictionary.predictions import (
    Prediction,
    PredictionTable,
    TokenString,
    as_text,
    entries_of,
    longest_suffix,
)
from spectool.build.dictionary.size_limits import write_within
from spectool.tokenization.fingerprint import short


def merge_dictionaries(
    dictionaries: Sequence[Dictionary], weights: Sequence[float], out: Path, limits: Limits, progress: Progress
) -> Manifest:
    """Merge two or more dictionaries of one tokenizer, and write the result to ``out`` in one step.

    There is a weight for each; 1 for all joins their texts as they are.

    Raises:
        FingerprintMismatch: They were built for different tokenizers.
        SpectoolError: They have no entries, or the limits leave no room for one.
    """
    first = dictionaries[0]
    for dictionary in dictionaries:
        _require_alike(first, dictionary)
    progress("reading")
    tables = [predictions_in(dictionary) for dictionary in dictionaries]
    progress("merging")
    merged = mixture(tables, weights)
    if not merged:
        raise SpectoolError("the dictionaries have no entries. Name others")
    best = MergedEntries(merged).best
    with atomic_directory(out) as directory:
        written = write_within(directory, limits, lambda most: entries_of(best(most)), progress)
        if written is None:
            raise SpectoolError(
                f"a dictionary of {limits.max_bytes:,} bytes has no room for entries. Give a larger limit"
            )
        return Dictionary.seal(
            directory,
            arguments={"method": "merge", "weights": list(weights), **asdict(limits)},
            tokenizers=first.manifest.tokenizers,
            inputs=_joined_inputs(dictionaries),
            statistics={"entries_before_pruning": len(merged), **written},
        )


def predictions_in(dictionary: Dictionary) -> PredictionTable:
    """All entries of a dictionary."""
    return {
        as_text(entry.context): Prediction(entry.token, entry.probability, entry.count)
        for entry in dictionary.entries()
    }


def _joined_inputs(dictionaries: Sequence[Dictionary]) -> dict[str, object]:
    """What a manifest says of each dictionary, and names, documents and characters of all their text."""
    inputs = [dictionary.manifest.inputs for dictionary in dictionaries]
    return {
        "corpus": " + ".join(str(each.get("corpus", "unknown text")) for each in inputs),
        "documents": sum(each.get("documents", 0) for each in inputs),
        "characters": sum(each.get("characters", 0) for each in inputs),
        "dictionaries": [
            {
                "name": dictionary.path.name,
                "arguments": dictionary.manifest.arguments,
                "inputs": dictionary.manifest.inputs,
                "files": {name: file["sha256"] for name, file in dictionary.manifest.files.items()},
            }
            for dictionary in dictionaries
        ],
    }


def mixture(tables: Sequence[PredictionTable], weights: Sequence[float]) -> PredictionTable:
    """The best prediction of the weighted mixture after every context of any table.

    Of equally good ones the one with the lowest token id wins. Occurrences are weighted sums.
    """
    sizes = [_size(table) for table in tables]
    contexts = dict.fromkeys(context for table in tables for context in table)
    merged: PredictionTable = {}
    for context in contexts:
        own = [table.get(context) for table in tables]
        occurrences = [0.0 if prediction is None else prediction.occurrences for prediction in own]
        reference = occurrences.index(max(occurrences))
        score = defaultdict[int, float](float)
        total = 0.0
        for i, prediction in enumerate(own):
            if prediction is None:
                prediction = _by_suffix(context, tables[i], tables[reference], sizes[i] / sizes[reference])
                if prediction is None:
                    continue
            evidence = weights[i] * prediction.occurrences
            total += evidence
            score[prediction.token] += evidence * prediction.probability
        best = min(score, key=lambda token: (-score[token], token))
        merged[context] = Prediction(best, score[best] / total, total)
    return merged


def _by_suffix(context: TokenString, table: PredictionTable, other: PredictionTable, size: float) -> Prediction | None:
    """What a table without the context predicts there, with an estimate of how often it occurs.

    The table is dictionary i of the formula, ``other`` is j and has the context, and the size is N_i / N_j.
    """
    start = next((start for start in range(1, len(context)) if context[start:] in table), None)
    if start is None:
        return None
    suffix = table[context[start:]]
    there = other.get(context[start:]) or longest_suffix(context[start:], other)
    if there is None:
        return None
    most = suffix.occurrences
    estimate = other[context].occurrences * suffix.occurrences / there.occurrences
    for token in context[:start]:
        here = table.get(token)
        if here is None:
            return None
        most = min(most, here.occurrences)
        if token in other:
            estimate *= here.occurrences / other[token].occurrences / size
    return suffix._replace(occurrences=min(most, estimate))


def _size(table: PredictionTable) -> float:
    """Size of the text behind a table, as counts of its shortest contexts."""
    shortest = min(map(len, table), default=0)
    return sum(prediction.occurrences for context, prediction in table.items() if len(context) == shortest) or 1.0


def _require_alike(first: Dictionary, other: Dictionary) -> None:
    if first.fingerprint != other.fingerprint:
        names = [str(dictionary.manifest.tokenizers["target"]["name"]) for dictionary in (first, other)]
        raise FingerprintMismatch(
            f"{other.path}: built for tokenizer {names[1]} ({short(other.fingerprint)}), {first.path} for {names[0]} "
            f"({short(first.fingerprint)}). Only dictionaries of one tokenizer merge: build one of them again with "
            "`spectool build-dict --tokenizer …`"
        )


class MergedEntries:
    """All possible entries, of which the best are chosen."""

    def __init__(self, predictions: PredictionTable) -> None:
        """Find the longest suffix of every context, once for all thresholds."""
        self._predictions = predictions
        self._contexts = sorted(predictions, key=lambda context: (len(context), context))
        rows = {context: row for row, context in enumerate(self._contexts)}
        values = [predictions[context] for context in self._contexts]
        parents = (longest_suffix(context, rows) for context in self._contexts)
        self._parent = np.array([-1 if parent is None else parent for parent in parents], dtype=np.int64)
        self._proposed = np.array([p.token for p in values], dtype=np.int64)
        self._probability = np.array([p.probability for p in values])
        self._occurrences = np.array([p.occurrences for p in values])
        lengths = np.array([len(context) for context in self._contexts])
        self._bounds = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(values)]

    def gaining_at_least(self, least: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Choose the entries that are not redundant and gain ``least`` or more.

        Returns:
            Which contexts keep their entries, short ones first, and the expected gain of each. ``[contexts]``
        """
        found_for = np.full(len(self._contexts), -1, dtype=np.int64)  # row of the entry that a look-up finds
        kept = np.zeros(len(self._contexts), dtype=np.bool_)
        gain = np.zeros(len(self._contexts))
        for start, end in pairwise(self._bounds):
            own = np.arange(start, end)
            parent = self._parent[start:end]
            fallback = np.where(parent >= 0, found_for[parent], -1)
            p = self._probability[own]
            known, same = fallback >= 0, (fallback >= 0) & (self._proposed[fallback] == self._proposed[own])
            stated = np.where(known, self._probability[fallback], 0.0)
            q = np.where(same, p, np.minimum((1 - p) * stated, p / 2))
            gain[own] = self._occurrences[own] * (p - q + gain_over_thresholds(p, q, stated))
            kept[own] = ~(same & (np.abs(p - stated) <= PROBABILITY_STEP)) & (gain[own] >= least)
            found_for[own] = np.where(kept[own], own, fallback)
        return kept, gain

    def best(self, most: int) -> PredictionTable:
        """Choose at most ``most`` entries, those that gain most; short contexts first."""
        kept, gain = self.gaining_at_least(0.0)
        if np.count_nonzero(kept) > most:
            # Without some entries others fall back further and gain more: the threshold is found by trial.
            thresholds = np.unique(gain[kept])
            low, high = 0, len(thresholds)  # the answer lies above low, and high keeps few enough
            kept = np.zeros_like(kept)
            while high - low > 1:
                middle = (low + high) // 2
                chosen, _ = self.gaining_at_least(float(thresholds[middle]))
                if np.count_nonzero(chosen) > most:
                    low = middle
                else:
                    high, kept = middle, chosen
        return {context: self._predictions[context] for context in compress(self._contexts, kept.tolist())}
