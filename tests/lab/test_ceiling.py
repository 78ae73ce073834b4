"""Ceilings of the published strategies known by hand, and a replay with the translation twin on real tokenizers."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from spectool.build.alignment.intersection import intersect
from spectool.corpora import open_corpus
from spectool.tests.lab.ceiling_twin import STRATEGIES, translation_ceiling
from spectool.tests.lab.small_tokenizers import byte_level, sentence_piece
from spectool.tests.runtime.translation.translation_twin import TranslationTwin, encode_inside, whole
from spectool.tokenization.tokenizer import Tokenizer


def tokens_per_pass(
    draft: Tokenizer, target: Tokenizer, texts: Sequence[str], lengths: Sequence[int]
) -> dict[str, list[float]]:
    found = translation_ceiling(draft, target, texts, intersect(draft, target), lengths).tokens_per_pass
    return {name: [round(value, 4) for value in of.values()] for name, of in found.items()}


def test_a_draft_must_reach_the_end_of_a_target_token() -> None:
    """``[ko][ta][ko][ta]`` towards ``[kota][kota]``; the draft's ``ko`` is a target token, ``ta`` is none."""
    draft = byte_level(("k", "o"), ("t", "a"))
    target = byte_level(("k", "o"), ("ko", "t"), ("kot", "a"))
    assert tokens_per_pass(draft, target, ["kotakota"], [1, 2, 3]) == {
        "none": [1.0, 1.0, 1.0],
        "naive": [1.0, 2.0, 2.0],
        "context": [1.0, 2.0, 2.0],
        "intersection": [1.0, 1.0, 1.0],
        "byte-aligned": [1.0, 2.0, 2.0],
    }


def test_the_token_that_straddles_the_frontier_counts_as_the_first() -> None:
    """``[ko][ta][ko]`` towards ``[kot][ak][o]``: two drafts give ``kota``, then ``o``."""
    draft = byte_level(("k", "o"), ("t", "a"))
    target = byte_level(("a", "k"), ("k", "o"), ("ko", "t"))
    found = tokens_per_pass(draft, target, ["kotako"], [1, 2])
    assert found["byte-aligned"] == found["context"] == found["naive"] == [1.0, 1.5]
    # Restarted at the frontier, the draft says k, o | t, a | o: the target says neither k nor a there.
    assert found["intersection"] == [1.0, 1.0]


def test_an_intersection_draft_begins_anew_at_the_frontier() -> None:
    """``[ta][k][a]`` towards ``[t][ak][a]``: after ``t`` the draft goes on with ``ak``."""
    draft = byte_level(("t", "a"), ("a", "k"))
    target = byte_level(("a", "k"))
    assert tokens_per_pass(draft, target, ["taka"], [1])["intersection"] == [1.5]
    # Without a counterpart for ak, nothing is right but the target's own tokens.
    assert tokens_per_pass(draft, byte_level(("a", "k"), ("ak", "a")), ["taka"], [1])["intersection"] == [1.0]


def test_the_window_is_long_enough_to_see_the_boundary() -> None:
    """``[ta][ko][ta][ko]``: behind ``o`` alone ``ta`` would be spelled ``ot`` ``a``."""
    target = byte_level(("k", "o"), ("o", "t"), ("t", "a"))
    assert tokens_per_pass(byte_level(), target, ["takotako"], [2])["context"] == [2.0]


def test_the_window_is_not_longer_than_the_published_one() -> None:
    """``[aa][aa][aa][aa][bc][bc]``: of eight letters the window holds five, and pairs them otherwise."""
    target = byte_level(("a", "a"), ("a", "b"), ("b", "c"))
    found = tokens_per_pass(byte_level(), target, ["aaaaaaaabcbc"], [2])
    assert found["byte-aligned"] == [2.0]
    assert found["context"] == [1.5]


def test_naive_translation_spaces_every_draft() -> None:
    """``[▁ko][ta][ko][ko]``: drafted alone, the third token comes out as ``▁ko``."""
    draft = byte_level()
    target = sentence_piece(("▁", "k"), ("▁k", "o"), ("k", "o"), ("t", "a"))
    assert len(target.encode("kotakoko")) == 4
    found = tokens_per_pass(draft, target, ["kotakoko"], [2])
    assert found["byte-aligned"] == found["context"] == [2.0]
    assert found["naive"] == [1.3333]


def test_a_stripping_decoder_costs_the_published_strategies_the_space() -> None:
    """``ko`` ``▁ko`` drafted after ``ko``: its decoder gives ``ko`` without the space."""
    draft = sentence_piece(("▁", "k"), ("▁k", "o"))
    target = byte_level(("k", "o"), ("Ġ", "ko"))
    found = tokens_per_pass(draft, target, ["ko ko ko ko"], [1])
    assert found["byte-aligned"] == [2.0]
    assert found["naive"] == found["context"] == [1.3333]
    # Token for token, the draft's first one has a space that the target's has not.
    assert found["intersection"] == [1.3333]


def test_half_a_character_is_no_draft() -> None:
    """A draft of single bytes needs two for one letter."""
    draft, target = byte_level(), byte_level(("Ð", "º"), ("Ð", "¾"))
    found = tokens_per_pass(draft, target, ["ко"], [1, 2, 3])
    assert found["byte-aligned"] == found["context"] == found["naive"] == [1.0, 2.0, 2.0]
    backwards = tokens_per_pass(target, draft, ["ко"], [1])
    # к gives two tokens, and the target adds the first byte of о; a frontier inside о is not drafted from alone.
    assert backwards["byte-aligned"] == [2.0]
    assert backwards["intersection"] == [1.0]
    # Four bytes on both sides: what the target has begun of a character the draft must repeat.
    bytes_only = tokens_per_pass(draft, draft, ["🙂"], [1, 2, 4])
    assert bytes_only["byte-aligned"] == [1.0, 1.3333, 4.0]
    assert bytes_only["none"] == [2.0, 2.0, 4.0]


@pytest.mark.parametrize("length", [2, *(pytest.param(length, marks=pytest.mark.nightly) for length in (1, 4))])
def test_nothing_is_lost_between_equals(length: int, bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    texts = ["ala ma kota", "the target is the text", "a", "ko " * 50]
    for tokenizer in (bundled, other_bundled, byte_level(("k", "o"))):
        sizes = [len(tokenizer.encode(text.strip())) for text in texts]
        expected = sum(sizes) / sum(-(-size // (length + 1)) for size in sizes)
        found = tokens_per_pass(tokenizer, tokenizer, texts, [length])
        assert found["byte-aligned"] == found["none"] == found["intersection"] == [round(expected, 4)]


def test_texts_that_do_not_survive_are_left_out() -> None:
    draft, target = byte_level(("k", "o")), byte_level()
    texts = ["koko", "ko<|end|>", "oko"]
    found = translation_ceiling(draft, target, texts, intersect(draft, target))
    assert (found.characters, found.left_out, found.target_tokens) == (7, 9, 7)
    nothing = translation_ceiling(draft, target, texts[1:2], intersect(draft, target), [2])
    assert nothing.tokens_per_pass == {name: {2: 0.0} for name in STRATEGIES}
    assert (nothing.characters, nothing.left_out) == (0, 9)


def test_the_sample_is_limited_and_long_texts_are_cut() -> None:
    draft = target = byte_level()
    counterpart = intersect(draft, target)
    endless = iter(lambda: "ko ta\n" * 1000, "")
    found = translation_ceiling(draft, target, endless, counterpart, [3], characters=1999)
    assert 1950 <= found.characters <= 1999
    # Cut between words only, four passages and a rest; the white space between them is nobody's.
    assert found.target_tokens == found.characters
    assert found.tokens_per_pass["byte-aligned"][3] == pytest.approx(4.0, rel=0.02)
    unbroken = translation_ceiling(draft, target, ["k" * 1200], counterpart, [3])
    assert unbroken.characters == 1200
    assert translation_ceiling(draft, target, ["  ", ""], counterpart, [3]).characters == 0


@pytest.mark.nightly
def test_spelling_inside_a_word(real: Callable[[str], Tokenizer]) -> None:
    tokenizer = sentence_piece(("▁", "k"), ("▁k", "o"), ("k", "o"))
    names = [[tokenizer.backend.id_to_token(i) for i in ids] for ids in encode_inside(tokenizer, ["ko", " ko", ""])]
    assert names == [["ko"], ["▁ko"], []]
    for name in ("bielik-11b-v2.5", "phi-3-mini", "xlm-roberta-base", "qwen2.5"):
        tokenizer = real(name)
        for text in ("альний", "łość", " в", "42", "'s"):
            spelled = encode_inside(tokenizer, [text])[0]
            assert b"".join(tokenizer.token_bytes[i] for i in spelled) == text.encode(), (name, text)


@pytest.mark.parametrize(
    ("draft", "target"), [("qwen2.5", "bielik-11b-v2.5"), ("bielik-11b-v2.5", "qwen2.5"), ("gpt2", "mistral-7b-v0.1")]
)
def test_equal_to_a_replay_with_the_twin(
    draft: str, target: str, real: Callable[[str], Tokenizer], shared: Path
) -> None:
    """One cycle after the other, with the perfect draft spelled byte by byte."""
    mine, theirs = real(draft), real(target)
    twin = TranslationTwin(mine, theirs)
    texts = [document.text for document in open_corpus(str(shared / "corpora" / "uk.valid.txt.zst"))]
    texts = [text for text in texts if len(text) < 200][:12]
    bytes_of_draft = {raw: i for i, raw in enumerate(mine.token_bytes) if len(raw) == 1}
    tokens = passes = 0
    for text in texts:
        data, truth, drafted = text.encode(), theirs.encode(text), mine.encode(text)
        artificial = sum(len(mine.token_bytes[i]) for i in drafted) - len(data)
        ends = [end - artificial for end in accumulate(len(mine.token_bytes[i]) for i in drafted)]
        position = 0
        while position < len(truth):
            frontier = len(theirs.bytes_of(truth[:position]))
            following = [end for end in ends if end > frontier or not position]
            end = len(whole(data[: following[:4][-1]]))
            spelled = [bytes_of_draft[data[place : place + 1]] for place in range(frontier, end)]
            # The twin drafts from the last whole character on.
            pending = frontier - len(whole(data[:frontier]))
            spelled = [bytes_of_draft[data[p : p + 1]] for p in range(frontier - pending, frontier)] + spelled
            proposal = twin.translate(truth[:position], spelled).ids
            agreed = [a == b for a, b in zip(proposal, truth[position:], strict=False)]
            position += (agreed.index(False) if False in agreed else len(agreed)) + 1
            passes += 1
        tokens += len(truth)
    found = translation_ceiling(mine, theirs, texts, np.full(mine.size, -1, np.int32), [4])
    assert found.target_tokens == tokens > 500
    assert found.tokens_per_pass["byte-aligned"][4] == tokens / passes > 2
    assert found.tokens_per_pass["intersection"][4] == 1.0
