"""The offline stages: text and tokenizers in, artifacts out."""

from typing import TYPE_CHECKING

from spectool import lazy_exports

if TYPE_CHECKING:
    from spectool.build.alignment import build_alignment
    from spectool.build.backoff_dictionary import BackoffOptions, build_backoff, count_and_build
    from spectool.build.ceiling import Ceiling, translation_ceiling
    from spectool.build.counting import CountOptions, count
    from spectool.build.dictionary import CountedCorpus, DictSpecOptions, build_dictspec, count_corpus, open_counts
    from spectool.build.dictspec import Entry, build_entries, without_redundant
    from spectool.build.intersection import Coverage, coverage, intersect
    from spectool.build.merges import has_lemma, merge_table
    from spectool.build.translation_table import spellings
    from spectool.build.word_ngrams import WordNgrams

__all__ = [
    "BackoffOptions",
    "Ceiling",
    "CountOptions",
    "CountedCorpus",
    "Coverage",
    "DictSpecOptions",
    "Entry",
    "WordNgrams",
    "build_alignment",
    "build_backoff",
    "build_dictspec",
    "build_entries",
    "count",
    "count_and_build",
    "count_corpus",
    "coverage",
    "has_lemma",
    "intersect",
    "merge_table",
    "open_counts",
    "spellings",
    "translation_ceiling",
    "without_redundant",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "BackoffOptions": "backoff_dictionary",
        "Ceiling": "ceiling",
        "CountOptions": "counting",
        "CountedCorpus": "dictionary",
        "Coverage": "intersection",
        "DictSpecOptions": "dictionary",
        "Entry": "dictspec",
        "WordNgrams": "word_ngrams",
        "build_alignment": "alignment",
        "build_backoff": "backoff_dictionary",
        "build_dictspec": "dictionary",
        "build_entries": "dictspec",
        "count": "counting",
        "count_and_build": "backoff_dictionary",
        "count_corpus": "dictionary",
        "coverage": "intersection",
        "has_lemma": "merges",
        "intersect": "intersection",
        "merge_table": "merges",
        "open_counts": "dictionary",
        "spellings": "translation_table",
        "translation_ceiling": "ceiling",
        "without_redundant": "dictspec",
    },
)
