"""Text spelled token by token in another vocabulary: what is counted on the way."""

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

from spectool.build.alignment.replayed_text import absorption_risks, replay_text, written
from spectool.corpora import open_corpus
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.by_text import TailReencoder, whole_characters
from spectool.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [document for document, _ in zip(open_corpus("sample:uk"), range(25), strict=False)]


@pytest.fixture(scope="module")
def into_bundled(bundled: Tokenizer) -> IncrementalBPE:
    return IncrementalBPE(bundled)


def replay(
    source: Tokenizer, other: Tokenizer, encoder: IncrementalBPE | TailReencoder, texts: Iterable[str]
) -> tuple[Counter[str], Any, Any]:
    texts = list(texts)
    read = written(source, texts), written(other, texts)
    documents = zip([text.encode() for text in texts], *read, strict=True)
    return replay_text(other, encoder, documents)


def test_nothing_is_spelled_otherwise(
    bundled: Tokenizer, other_bundled: Tokenizer, into_bundled: IncrementalBPE, texts: list[str]
) -> None:
    counts, _, replaced = replay(other_bundled, bundled, into_bundled, texts)
    assert (counts["texts"], counts["lossy_texts"], counts["different_tokens"]) == (len(texts), 0, 0)
    assert counts["tokens"] == sum(len(other_bundled.encode(text)) for text in texts)
    assert 0 < replaced.sum() < counts["tokens"] / 2


def test_wrong_merges_are_noticed(
    bundled: Tokenizer, other_bundled: Tokenizer, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without repair the same replay gives other ids: the check can fail."""
    encoder = IncrementalBPE(bundled)
    monkeypatch.setattr(encoder, "join", lambda ids, data, **text: (len(ids), encoder.encode(data)))
    assert replay(other_bundled, bundled, encoder, texts)[0]["different_tokens"] > 0


@pytest.mark.nightly
def test_absorption_equals_a_count_on_whole_texts(
    bundled: Tokenizer, other_bundled: Tokenizer, into_bundled: IncrementalBPE, texts: list[str]
) -> None:
    """The slow way: encode the text up to every source token, and up to the next one."""
    texts = [text[:400] for text in texts]
    _, *found = replay(other_bundled, bundled, into_bundled, texts)
    last, replaced = Counter[int](), Counter[int]()
    for text in texts:
        data, end = text.encode(), 0
        ends = [end := end + len(other_bundled.token_bytes[token]) for token in other_bundled.encode(text)]
        whole = [data[:end].decode() for end in ends if whole_characters(data[:end]) == end]
        for before, after in pairwise(map(bundled.encode, whole)):
            last[before[-1]] += 1
            end = sum(len(bundled.token_bytes[token]) for token in before)
            ends_after = accumulate(len(bundled.token_bytes[token]) for token in after)
            replaced[before[-1]] += (end, before[-1]) not in zip(ends_after, after, strict=True)
    assert sum(replaced.values()) > 50
    for counts, expected in zip(found, (last, replaced), strict=True):
        assert {token: int(count) for token, count in enumerate(counts) if count} == +expected


def test_risks_are_shares_drawn_to_that_of_all_tokens() -> None:
    risks = absorption_risks(np.array([0, 3, 3, 94, 0]), np.array([0, 3, 0, 2, 0]))
    assert risks.dtype == np.float16 and np.isnan(risks[[0, 4]]).all()
    assert risks[1:4] == pytest.approx([(3 + 0.25) / 8, 0.25 / 8, (2 + 0.25) / 99], abs=1e-3)
    assert np.isnan(absorption_risks(np.zeros(3, int), np.zeros(3, int))).all(), "without a text nothing is known"


def test_lossy_texts_are_left_out(other_bundled: Tokenizer, bundled: Tokenizer, into_bundled: IncrementalBPE) -> None:
    """A sign that stands for a space does not come back."""
    counts, *_ = replay(other_bundled, bundled, into_bundled, ["kot", "▁kot"])
    assert (counts["texts"], counts["lossy_texts"]) == (1, 1)
