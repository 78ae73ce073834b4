"""The offline stages: text and tokenizers in, artifacts out."""

from spectool.build.alignment import build_alignment
from spectool.build.dictionary import CountedCorpus, DictSpecOptions, build_dictspec, count_corpus
from spectool.build.dictspec import Entry, build_entries, without_redundant
from spectool.build.intersection import Coverage, coverage, intersect
from spectool.build.word_ngrams import NgramCounts, WordNgrams, count_word_ngrams

__all__ = [
    "CountedCorpus",
    "Coverage",
    "DictSpecOptions",
    "Entry",
    "NgramCounts",
    "WordNgrams",
    "build_alignment",
    "build_dictspec",
    "build_entries",
    "count_corpus",
    "count_word_ngrams",
    "coverage",
    "intersect",
    "without_redundant",
]
