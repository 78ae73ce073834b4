"""The stage behind ``spectool build-dict``: corpus and tokenizer in, dictionary artifact out."""

import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.formats.counts import Counts
from spectool.artifacts.formats.dictionary import FORMAT, VERSION, write_dictionary
from spectool.artifacts.manifest import Manifest, seal
from spectool.artifacts.replacing import writing
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.counting.word_ngrams import WordNgrams
from spectool.build.dictionary.dictspec import NestedDictSpec
from spectool.build.dictionary.options import DictSpecOptions
from spectool.build.inputs import Progress, Reader, quiet
from spectool.corpora import Corpus

ORDERS = {"n1": 1, "n12": 2, "n123": 3}
EVERYTHING = CountOptions(min_count=1)
"""Keeps n-grams that occur once."""


@dataclass(frozen=True, slots=True)
class CountedCorpus:
    """Word n-grams of a corpus, and what a manifest says of where they come from.

    They depend on no tokenizer: one count serves any number of dictionaries.
    """

    ngrams: WordNgrams
    inputs: Mapping[str, Any]


def count_corpus(
    corpus: Corpus,
    orders: str = "n123",
    language: str | None = None,
    reader: Reader = iter,
    options: CountOptions = EVERYTHING,
) -> CountedCorpus:
    """Read a corpus once and count its word n-grams, in a temporary directory that goes with the result.

    Args:
        corpus: The text.
        orders: ``n1``, ``n12`` or ``n123``.
        language: ISO 639 code, for splitting words.
        reader: Iterates over the corpus.
        options: Memory, engine and minimum count of the counting stage. By default every n-gram is kept; for a
            choice of the most frequent ones that ends above single occurrences, a minimum of 2 gives the same.

    Raises:
        CorpusError: The text cannot be read.
    """
    scratch = tempfile.TemporaryDirectory(prefix="spectool-")
    path = Path(scratch.name) / "words.counts"
    count(corpus, path, replace(options, orders=ORDERS[orders], language=language), None, quiet, reader)
    counted = open_counts(path, orders)
    weakref.finalize(counted.ngrams, scratch.cleanup)
    return counted


def open_counts(path: Path, orders: str = "n123") -> CountedCorpus:
    """Open counts that ``spectool count`` has written.

    Raises:
        ArtifactError: Not whole counts, or counts of token windows, or not of these orders.
    """
    counts = Counts(path)
    ngrams = WordNgrams(counts)
    if counts.orders < ORDERS[orders]:
        raise ArtifactError(
            f"{path}: n-grams of up to {counts.orders} words, expected {ORDERS[orders]} for --orders {orders}. "
            f"Count again with --orders {ORDERS[orders]}, or build with fewer"
        )
    return CountedCorpus(ngrams, counts.manifest.inputs)


def build_dictspec(
    tokenizer: Tokenizer, counted: CountedCorpus, out: Path, options: DictSpecOptions, progress: Progress
) -> Manifest:
    """Build a DictSpec dictionary and write it to ``out``.

    Args:
        tokenizer: The target's.
        counted: N-grams, at least of the orders that ``options`` asks for.
        out: Directory of the artifact; replaced in one step when everything is written.
        options: See `DictSpecOptions`.
        progress: Called with a phrase when a step begins.

    Returns:
        The manifest of the finished artifact.

    Raises:
        SpectoolError: There is nothing to build from.
    """
    ngrams = counted.ngrams
    with writing(out) as directory:
        progress("choosing the most frequent n-grams")
        texts, counts = ngrams.most_frequent(options.entries, ORDERS[options.orders])
        progress("encoding")
        tokens = tokenizer.encode_after_space(texts)
        progress("building entries")
        limits = options.max_prefix, options.max_continuation
        dictionaries = NestedDictSpec(tokens, counts, (), tokenizer.specials, *limits)
        proposals = dictionaries.proposals(len(tokens), options.reading)
        lengths = proposals.lengths(options.min_probability)
        kept = dictionaries.kept(proposals, lengths)
        if not len(kept):
            raise SpectoolError(
                f"{counted.inputs['corpus']}: no entry to store from {ngrams.total_words} words at a minimum "
                f"probability of {options.min_probability}. Give more text, or a lower --min-prob"
            )
        progress("writing")
        shape = write_dictionary(directory, dictionaries.entries(proposals, lengths, kept))
        statistics = {
            "words": ngrams.total_words,
            "distinct_ngrams": {f"n{order}": figures["distinct"] for order, figures in ngrams.figures.items()},
            "ngrams": len(texts),
            "smallest_count": int(counts[-1]),
            "entries_before_pruning": int(np.count_nonzero(lengths)),
            **shape,
        }
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            arguments={"method": "dictspec", **asdict(options)},
            tokenizers={"target": tokenizer.identity},
            inputs=counted.inputs,
            statistics=statistics,
        )
        return seal(directory, manifest)
