"""Counting against its slow twin, and what it refuses."""

import json
import os
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import SpectoolError
from spectool.build import counting
from spectool.build.counting import BREAK
from spectool.corpora import Corpus, open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.build.counting_twin import agree, counted, spelled, token_windows
from spectool.tests.tiers import nightly
from spectool.tokenization import backend as tokenization_backend
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

WORDS = ["a", "b", "c", "ż", "п'ять", "💶", "."]
lines = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join), min_size=1, max_size=9)
TARGET = open_tokenizer(demo_path("target") / "tokenizer.json")


def words_of(*names: str) -> Tokenizer:
    """A tokenizer whose tokens are these words, with ids from 1 on."""
    backend = Backend(models.WordLevel({"[UNK]": 0, **{name: place for place, name in enumerate(names, 1)}}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return open_tokenizer(backend)


def corpus_of(folder: Path, texts: list[str]) -> Corpus:
    path = folder / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return open_corpus(str(path))


@pytest.mark.parametrize("sample", ["pl", "uk"])
@pytest.mark.parametrize("min_count", [2, *nightly(1, 3)])
def test_windows_of_the_samples(sample: str, min_count: int) -> None:
    corpus = open_corpus(f"sample:{sample}")
    texts = list(corpus)
    expected = [token_windows(texts, TARGET, order) for order in range(1, 5)]
    agree(counted(corpus, TARGET, 4, min_count), expected, min_count)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["bielik-11b-v2.5", "qwen2.5", "t5-small"])
def test_windows_of_real_tokenizers(
    name: str, tmp_path: Path, shared: Path, real: Callable[[str], Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = islice(open_corpus(str(shared / "corpora" / "pl.valid.txt.zst")), 60)
    texts = list(found)
    expected = [token_windows(texts, real(name), order) for order in range(1, 9)]
    for at_once in (1 << 20, 1):  # all documents together, and each by itself
        monkeypatch.setattr(tokenization_backend, "_AT_ONCE", at_once)
        for min_count in (1, 2, 5):
            agree(counted(corpus_of(tmp_path, texts), real(name), 8, min_count), expected, min_count)


@settings(max_examples=40, deadline=None)
@given(lines, st.integers(1, 4), st.integers(1, 5))
def test_random_texts(texts: list[str], min_count: int, orders: int) -> None:
    tokenizer = words_of(*WORDS)
    expected = [token_windows(texts, tokenizer, order) for order in range(1, orders + 1)]
    with tempfile.TemporaryDirectory() as scratch:
        agree(counted(corpus_of(Path(scratch), texts), tokenizer, orders, min_count), expected, min_count)


def test_special_tokens_are_breaks(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"[UNK]": 0, "eos": 1, "red": 2, "cat": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[UNK]", "eos"])
    counts = counted(
        corpus_of(tmp_path, ["red cat eos cat red", "red cat elephant cat"]), open_tokenizer(backend), 2, 1
    )
    assert spelled(counts, 2) == {(2, 3): 2, (3, 2): 1}
    assert counts.total == 7
    assert BREAK not in counts.levels[0].symbol


@pytest.mark.nightly
def test_many_words_do_not_overflow(tmp_path: Path) -> None:
    """Keys grow as vocabulary times n-grams: beyond 32 bits here."""
    texts = [" ".join(f"w{n}" for n in range(70_000))] * 2
    tokenizer = words_of(*(f"w{n}" for n in range(70_000)))
    counts = counted(corpus_of(tmp_path, texts), tokenizer, 3, 1)
    assert len(counts.levels[1].count) * counts.symbols > 2**32
    agree(counts, [token_windows(texts, tokenizer, order) for order in range(1, 4)], 1)


def test_windows_cross_line_ends_and_no_ends_of_documents(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"a": 0, "b": 1, "c": 2, "\n": 3, "\n\n": 4, "[UNK]": 5}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    tokenizer = open_tokenizer(backend)
    a, b, c, end, blank = range(5)
    paragraphs = "a\nb\n\nb\na\n\nc\n"
    pairs: dict[tuple[str, str], set[tuple[int, int]]] = {
        ("lines.txt", "a\nb\nb\na\nc\n"): set(),
        ("blank-lines.txt", paragraphs): (within := {(a, end), (end, b), (b, end), (end, a)}),
        ("file.md", paragraphs): within | {(b, blank), (blank, b), (a, blank), (blank, c)},
    }
    for (name, text), expected in pairs.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert set(spelled(counted(open_corpus(str(tmp_path / name)), tokenizer, 2, 1), 2)) == expected


def test_too_much_text_is_refused_with_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as there are too many tokens."""
    corpus = open_corpus("sample:pl")
    tokens = counted(corpus, TARGET, 2, 1).total
    monkeypatch.setattr(counting, "memory_for_counting", lambda: tokens * 100)
    with pytest.raises(SpectoolError, match=r"sample:pl: .* needs more than 0\.0 GB; .* 0\.0 GB, .* 0 MB of text"):
        counted(corpus, TARGET, 2, 1)


def test_half_of_the_memory_may_be_used() -> None:
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert counting.memory_for_counting() in (whole // 2, (2**31 - 1) * 110)
