"""The most frequent word n-grams, from a counts artifact, against a sorted Counter."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool import ArtifactError
from spectool.build import CountOptions, WordNgrams, count_corpus, count_text, open_counts
from spectool.build.dictionary import dictspec as word_ngrams
from spectool.corpora import Corpus, open_corpus
from spectool.tests.build.counting.counting_twin import word_windows
from spectool.tokenization import Tokenizer

lines = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "ż", "п'ять"]), min_size=1, max_size=8).map(" ".join),
    min_size=1,
    max_size=12,
)


def corpus_of(folder: Path, texts: list[str]) -> Corpus:
    path = folder / "text.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    return open_corpus(str(path))


def expected(texts: list[str], size: int, max_order: int, min_count: int) -> list[tuple[int, int, str]]:
    """The twin: everything, sorted."""
    rows = [
        (-uses, order, " ".join(ngram))
        for order in range(1, max_order + 1)
        for ngram, uses in word_windows(texts, order).items()
        if uses >= min_count
    ]
    return sorted(rows)[:size]


def agree(ngrams: WordNgrams, texts: list[str], size: int, max_order: int) -> None:
    found, counts = ngrams.most_frequent(size, max_order)
    rows = expected(texts, size, max_order, ngrams.min_count)
    assert found == [text for _, _, text in rows]
    assert counts.tolist() == [-count for count, _, _ in rows]


@settings(max_examples=25, deadline=None)
@given(lines, st.integers(0, 30), st.integers(1, 3), st.integers(1, 4), st.randoms())
def test_most_frequent_is_a_sorted_counter(
    texts: list[str], size: int, max_order: int, min_count: int, rng: random.Random
) -> None:
    for _ in range(2):  # the second time in another order, with the same result
        with tempfile.TemporaryDirectory() as scratch:
            ngrams = count_corpus(corpus_of(Path(scratch), texts), options=CountOptions(min_count=min_count))
            agree(ngrams, texts, size, max_order)
        rng.shuffle(texts)


@pytest.mark.parametrize("size", [1, 100, 3000, 15_000, 10**6])
def test_most_frequent_of_a_sample(size: int) -> None:
    corpus = open_corpus("sample:pl")
    texts = [document.text for document in corpus]
    agree(count_corpus(corpus), texts, size, 3)


def test_blocks_of_rows_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = open_corpus("sample:uk")
    texts = [document.text for document in corpus]
    ngrams = count_corpus(corpus)
    monkeypatch.setattr(word_ngrams, "_BLOCK", 7)
    for size in (5, 600, 2000):
        agree(ngrams, texts, size, 3)


def test_by_hand(tmp_path: Path) -> None:
    counted = count_corpus(corpus_of(tmp_path, ["u nas w domu", "u nas", "w"]))
    assert counted.total == 7
    texts, counts = counted.most_frequent(5)
    assert texts == ["nas", "u", "w", "u nas", "domu"]
    assert counts.tolist() == [2, 2, 2, 2, 1]
    assert counted.most_frequent(0)[0] == []


def test_the_scratch_goes_with_the_counts() -> None:
    counted = count_corpus(open_corpus("sample:pl"), "n1")
    path = counted.path
    assert path.is_dir()
    del counted
    assert not path.parent.exists()


def test_counts_that_do_not_fit_are_refused(tmp_path: Path, bundled: Tokenizer) -> None:
    corpus = open_corpus("sample:pl")
    count_text(corpus, tmp_path / "pairs", CountOptions(orders=2), None, lambda step: None)
    assert open_counts(tmp_path / "pairs", "n12").total > 0
    with pytest.raises(ArtifactError, match=r"pairs: n-grams of up to 2 words, expected 3 .* --orders 3"):
        open_counts(tmp_path / "pairs", "n123")
    count_text(corpus, tmp_path / "tokens", CountOptions(orders=2), bundled, lambda step: None)
    with pytest.raises(ArtifactError, match=r"tokens: counts of token windows, expected of words"):
        open_counts(tmp_path / "tokens", "n1")
