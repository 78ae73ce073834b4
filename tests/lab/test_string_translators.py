"""The published strategies on tokenizers whose answer is known, with the faults they are known for."""

import random
from collections.abc import Callable, Sequence

import pytest

from spectool.lab.strategies import ContextTranslator, NaiveTranslator, PassThrough
from spectool.tests.lab.small_tokenizers import byte_level, sentence_piece
from spectool.tokenization.tokenizer import Tokenizer


def ids(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    return [tokenizer.vocabulary[token] for token in tokens]


def tokens(tokenizer: Tokenizer, numbers: Sequence[int]) -> list[str]:
    return [tokenizer.backend.id_to_token(number) for number in numbers]


SYLLABLES = byte_level(("k", "o"), ("t", "a"))
WORDS = byte_level(("k", "o"), ("ko", "t"), ("kot", "a"))
PIECES = sentence_piece(("▁", "k"), ("▁k", "o"), ("▁ko", "t"), ("k", "o"), ("ko", "t"))


def test_ids_pass_through_as_far_as_they_exist() -> None:
    small, large = byte_level(), byte_level(("k", "o"), ("o", "t"))
    assert (small.size, large.size) == (257, 259)
    outside = large.size - 1
    to_small = PassThrough(large, small)
    assert to_small.translate([5, outside, 6]) == [5], "what follows a missing id would be shifted"
    assert to_small.translate([5, 6]) == [5, 6]
    to_large = PassThrough(small, large)
    to_large.commit([5, outside, 6])
    assert list(to_large.draft_context()) == [5, 6]
    assert to_large.string_calls == 0


def test_naive_is_a_round_trip_through_text() -> None:
    translator = NaiveTranslator(SYLLABLES, WORDS)
    assert tokens(WORDS, translator.translate(ids(SYLLABLES, "ko", "ta"))) == ["kota"]
    translator.commit(ids(WORDS, "kota"))
    assert tokens(SYLLABLES, translator.draft_context()) == ["ko", "ta"]
    assert translator.string_calls == 4


def test_the_way_back_is_isolated() -> None:
    """Committed in two cycles, ``t`` and ``a`` never become ``ta``; in one cycle they do."""
    for translator in (NaiveTranslator(SYLLABLES, WORDS), ContextTranslator(SYLLABLES, WORDS, window_back=0)):
        for token in ("kot", "a"):
            translator.commit(ids(WORDS, token))
        assert tokens(SYLLABLES, translator.draft_context()) == ["ko", "t", "a"]
        translator.start()
        assert list(translator.draft_context()) == []
        translator.commit(ids(WORDS, "kot", "a"))
        assert tokens(SYLLABLES, translator.draft_context()) == ["ko", "ta"]


def test_naive_puts_a_space_into_the_word_and_context_does_not() -> None:
    """A target that puts a space before every text, in the middle of a word."""
    naive, context = NaiveTranslator(SYLLABLES, PIECES), ContextTranslator(SYLLABLES, PIECES)
    for translator in (naive, context):
        translator.commit(ids(PIECES, "▁", "t"))
        assert tokens(SYLLABLES, translator.draft_context()) == ["t"]
    drafts = ids(SYLLABLES, "ko")
    assert tokens(PIECES, naive.translate(drafts)) == ["▁ko"]
    assert tokens(PIECES, context.translate(drafts)) == ["ko"]


def test_the_window_absorbs_the_draft() -> None:
    """``ko`` + ``t`` is one token: stripped with the window, nothing is left to propose."""
    translator = ContextTranslator(SYLLABLES, WORDS)
    translator.commit(ids(WORDS, "ko"))
    assert translator.translate(ids(SYLLABLES, "t")) == []
    assert tokens(WORDS, translator.translate(ids(SYLLABLES, "t", "t"))) == ["t"]
    assert tokens(WORDS, NaiveTranslator(SYLLABLES, WORDS).translate(ids(SYLLABLES, "t"))) == ["t"]


def test_the_window_back_is_written_anew() -> None:
    """``t`` and then ``a`` become ``ta``."""
    translator = ContextTranslator(SYLLABLES, WORDS, window_back=1)
    for token in ("ko", "t"):
        translator.commit(ids(WORDS, token))
    assert tokens(SYLLABLES, translator.draft_context()) == ["ko", "t"]
    translator.commit(ids(WORDS, "a"))
    assert tokens(SYLLABLES, translator.draft_context()) == ["ko", "ta"]
    spaced = ContextTranslator(PIECES, SYLLABLES)
    for token in ("ko", "t", "o"):
        spaced.commit(ids(SYLLABLES, token))
    assert tokens(PIECES, spaced.draft_context()) == ["▁kot", "o"], "no space before what goes on"


@pytest.mark.parametrize(("window", "window_back"), [(5, 0), (5, 5), (1, 1), (2, 7)])
@pytest.mark.parametrize(("draft", "target"), [("gpt2", "mistral-7b-v0.1"), ("mistral-7b-v0.1", "gpt2")])
def test_windows_are_those_of_the_algorithm(
    draft: str, target: str, window: int, window_back: int, real: Callable[[str], Tokenizer]
) -> None:
    """Against algorithm 2 and its mirror image written down with strings, cycle by cycle."""
    mine, theirs = real(draft), real(target)
    translator = ContextTranslator(mine, theirs, window, window_back)
    rng, cycles = random.Random(window * 10 + window_back), 0
    for text in ("Zażółć gęślą jaźń, a potem wróć do domu.", "Мій кіт спить. O'Neill said: 42 cats\n  slept."):
        translator.start()
        context: list[int] = []
        left = theirs.encode(text)
        while left:
            drafts = mine.encode(theirs.backend.decode(left[:6]))[: rng.randint(1, 4)]
            before = mine.backend.decode(context[-window:])
            whole = theirs.encode(before + mine.backend.decode(drafts))
            assert translator.translate(drafts) == whole[len(theirs.encode(before)) :]
            committed, left = left[: (count := rng.randint(1, 3))], left[count:]
            translator.commit(committed)
            kept = max(0, len(context) - window_back)
            together = mine.backend.decode(context[kept:]) + theirs.backend.decode(committed)
            context = context[:kept] + mine.encode(together)
            assert list(translator.draft_context()) == context
            cycles += 1
    assert cycles > 15


def test_special_tokens_are_no_text() -> None:
    translator = NaiveTranslator(SYLLABLES, WORDS)
    translator.commit(ids(WORDS, "<|end|>", "kot"))
    assert tokens(SYLLABLES, translator.draft_context()) == ["ko", "t"]
    assert tokens(WORDS, translator.translate(ids(SYLLABLES, "<|end|>", "ko"))) == ["ko"]
