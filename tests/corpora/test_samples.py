"""Bundled samples: present, clean, and readable as a corpus and as documents."""

import pytest

from spectool.corpora import open_corpus, sample_names
from spectool.lab.words import word_runs


def test_polish_and_ukrainian_are_bundled() -> None:
    assert {"pl", "uk"} <= set(sample_names())


@pytest.mark.parametrize("name", sample_names())
def test_a_sample_is_clean_text_in_documents_of_paragraphs(name: str) -> None:
    corpus = open_corpus(f"sample:{name}")
    paragraphs = list(corpus)
    assert not corpus.counts.repaired
    assert sum(len(run) for text in paragraphs for run in word_runs(text)) > 500
    assert [item["name"] for item in corpus.describe_inputs()] == [f"{name}.txt"]
