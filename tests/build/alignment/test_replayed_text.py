"""Text spelled token by token in another vocabulary: what is counted on the way."""

from collections.abc import Iterable

import pytest

from spectool.build.alignment.merge_table import merge_table
from spectool.build.alignment.replayed_text import WINDOW, Reference, Replayed, is_whole, replay_text
from spectool.build.alignment.translation_table import spellings
from spectool.corpora import open_corpus
from spectool.tokenization import Tokenizer
from spectool.tokenization.incremental.boundaries import boundary_table
from spectool.tokenization.incremental.by_ids import CanonicalIds
from spectool.tokenization.incremental.by_text import CanonicalText


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [document.text for document, _ in zip(open_corpus("sample:uk"), range(60), strict=False)]


@pytest.fixture(scope="module")
def into_bundled(bundled: Tokenizer) -> CanonicalIds:
    return CanonicalIds(bundled, merge_table(bundled), boundary_table(bundled))


def replay(
    source: Tokenizer,
    other: Tokenizer,
    engine: CanonicalIds | CanonicalText,
    texts: Iterable[str],
) -> Replayed:
    texts = list(texts)
    read = Reference(source).read(texts), Reference(other).read(texts)
    documents = zip([text.encode() for text in texts], *read, strict=True)
    return replay_text(source, other, engine, spellings(source, other), documents)


def test_nothing_is_spelled_otherwise(
    bundled: Tokenizer, other_bundled: Tokenizer, into_bundled: CanonicalIds, texts: list[str]
) -> None:
    counts = replay(other_bundled, bundled, into_bundled, texts)
    assert (counts.texts, counts.lossy_texts, counts.different_texts) == (len(texts), 0, 0)
    assert counts.tokens == sum(len(other_bundled.encode(text)) for text in texts)
    assert 0 < counts.merge_sites < counts.tokens / 2
    assert counts.windows_with_strings == 0
    assert counts.windows == sum(-(-len(other_bundled.encode(text)) // WINDOW) for text in texts)


def test_wrong_merges_are_noticed(
    bundled: Tokenizer, other_bundled: Tokenizer, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without repair the same replay gives other ids: the check can fail."""
    engine = CanonicalIds(bundled, merge_table(bundled), boundary_table(bundled))
    monkeypatch.setattr(engine, "join", lambda ids, run, floor=0, begin=0: (len(ids), run))
    assert replay(other_bundled, bundled, engine, texts).different_texts > 0


def test_a_tokenizer_with_itself(bundled: Tokenizer, into_bundled: CanonicalIds) -> None:
    """The same tokenizer on both sides: every boundary stays."""
    counts = replay(bundled, bundled, into_bundled, ["Добрий день", "Kot śpi"])
    assert counts.merge_sites == counts.different_texts == counts.several == 0


def test_lossy_texts_are_left_out(other_bundled: Tokenizer, bundled: Tokenizer, into_bundled: CanonicalIds) -> None:
    """A sign that stands for a space does not come back."""
    counts = replay(other_bundled, bundled, into_bundled, ["kot", "▁kot"])
    assert (counts.texts, counts.lossy_texts) == (1, 1)


def test_a_side_without_the_lemma_encodes_text(bundled: Tokenizer, other_bundled: Tokenizer, texts: list[str]) -> None:
    counts = replay(bundled, other_bundled, CanonicalText(other_bundled), texts[:5])
    assert counts.different_texts == 0
    assert counts.windows_with_strings == counts.windows > 0


def test_ratios() -> None:
    counts = Replayed(texts=2, tokens=12, several=3, merge_sites=5, windows=4, windows_with_strings=1)
    assert counts.as_dict() == {
        "texts": 2,
        "lossy_texts": 0,
        "different_texts": 0,
        "other_tokens": 0,
        "different_tokens": 0,
        "tokens": 12,
        "several": 0.25,
        "merge_sites": 0.5,
        "string_free": 0.75,
    }
    assert Replayed().as_dict()["string_free"] is None, "nothing was replayed"


def test_whole_characters() -> None:
    assert is_whole("ж".encode()) and is_whole(b"") and not is_whole("ж".encode()[:1])
