"""Merging dictionaries of one tokenizer into one that drafts what all of them together draft.

Where several dictionaries are in use, each has an entry for the longest suffix of the text that it knows, and the most
probable of these entries is followed, the last of equal ones (`runtime.drafters.lookup`). All these suffixes are
suffixes of the longest context that any dictionary has there. So the merged entry of every context of any of them is
the one that is followed after it. It is left out if the merged entry of its longest suffix says the same.

If there is room for some of the entries only, those with the highest expected gain are kept. An entry that states p,
where a shorter context would state s, gains p - q at each occurrence of its context, and p^2/2 - q s + s^2/2 on average
over the thresholds from which on tokens are drafted, as in `backoff`. Here q is the probability of the shorter
context's token after the context itself. It is p if both propose the same. Otherwise no dictionary knows it, and it is
taken for (1 - p) s, which is what p leaves over, but no more than p / 2.
"""

from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from spectool import FingerprintMismatch, SpectoolError
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import Progress
from spectool.build.dictionary.predictions import Prediction, PredictionTable, as_text, entries_of, longest_suffix
from spectool.build.dictionary.size_limits import arrays_within
from spectool.tokenization.fingerprint import short


def merge_dictionaries(
    dictionaries: Sequence[Dictionary], out: Path, max_bytes: int | None, progress: Progress
) -> Manifest:
    """Merge two or more dictionaries of one tokenizer, and write the result to ``out`` in one step.

    Raises:
        FingerprintMismatch: They were built for different tokenizers.
        SpectoolError: They have no entries, or ``max_bytes`` leaves no room for one.
    """
    first = dictionaries[0]
    for dictionary in dictionaries:
        _require_alike(first, dictionary)
    progress("merging")
    merged = merge([predictions_in(dictionary) for dictionary in dictionaries])
    if not merged:
        raise SpectoolError("the dictionaries have no entries. Name others")
    ranked = sorted(merged.items(), key=lambda item: -_gain(item[1], longest_suffix(item[0], merged)))
    found = arrays_within(max_bytes, lambda most: entries_of(dict(ranked[:most])), progress)
    if found is None:
        raise SpectoolError(f"a dictionary of {max_bytes:,} bytes has no room for entries. Give a larger limit")
    arrays, shape = found
    return Dictionary.write(
        out,
        arrays,
        arguments={"method": "merge", "max_bytes": max_bytes},
        tokenizers=first.manifest.tokenizers,
        inputs=_joined_inputs(dictionaries),
        statistics={"entries_before_pruning": len(merged), **shape},
    )


def predictions_in(dictionary: Dictionary) -> PredictionTable:
    """All entries of a dictionary."""
    return {
        as_text(entry.context): Prediction(entry.token, entry.probability, entry.count)
        for entry in dictionary.entries()
    }


def merge(tables: Sequence[PredictionTable]) -> PredictionTable:
    """What the entries in all tables together propose, without those that say what their suffix says.

    A context occurs as often as in all the texts that have it.
    """
    followed: PredictionTable = {}  # after every context
    merged: PredictionTable = {}
    last_first = list(reversed(tables))
    contexts = sorted({context for table in tables for context in table}, key=lambda each: (len(each), each))
    for context in tqdm(contexts, desc="merging", disable=None):
        proposals = [table.get(context) or longest_suffix(context, table) for table in last_first]
        best = max(filter(None, proposals), key=lambda proposal: proposal.probability)
        occurrences = sum(table[context].occurrences for table in tables if context in table)
        followed[context] = best._replace(occurrences=occurrences)
        shorter = longest_suffix(context, followed)
        if shorter is None or shorter[:2] != best[:2]:
            merged[context] = followed[context]
    return merged


def _gain(own: Prediction, shorter: Prediction | None) -> float:
    """The accepted tokens that an entry adds where its context occurs; ``shorter`` is the entry of its suffix."""
    p, s = own.probability, shorter.probability if shorter else 0.0
    same = shorter is not None and shorter.token == own.token
    q = p if same else min((1 - p) * s, p / 2)
    return own.occurrences * (p - q + p**2 / 2 - q * s + s**2 / 2)


def _joined_inputs(dictionaries: Sequence[Dictionary]) -> dict[str, object]:
    """What a manifest says of each dictionary, and names, documents and characters of all their text."""
    inputs = [dictionary.manifest.inputs for dictionary in dictionaries]
    return {
        "corpus": " + ".join(str(each.get("corpus", "unknown text")) for each in inputs),
        **{name: sum(each.get(name) or 0 for each in inputs) for name in ("documents", "characters")},
        "dictionaries": [
            {
                "name": dictionary.path.name,
                "arguments": dictionary.manifest.arguments,
                "inputs": dictionary.manifest.inputs,
                "sha256": dictionary.file.sha256,
            }
            for dictionary in dictionaries
        ],
    }


def _require_alike(first: Dictionary, other: Dictionary) -> None:
    if first.fingerprint != other.fingerprint:
        names = [str(dictionary.manifest.tokenizers["target"]["name"]) for dictionary in (first, other)]
        raise FingerprintMismatch(
            f"{other.path}: built for tokenizer {names[1]} ({short(other.fingerprint)}), {first.path} for {names[0]} "
            f"({short(first.fingerprint)}). Only dictionaries of one tokenizer merge: build one of them again with "
            "`spectool build-dict --tokenizer …`"
        )
