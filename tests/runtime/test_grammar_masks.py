"""Masks of grammars: against brute force, for drafts as for committed text."""

import random
from pathlib import Path

import numpy as np
import pytest
import regex
from mlx_lm.tokenizer_utils import TokenizerWrapper
from numpy.typing import NDArray

from spectool.runtime.grammar import Grammar
from spectool.tests.runtime.small_grammars import ROWS, bits, committed_to, demo, grammars
from spectool.tokenization.opening import open_tokenizer


def matched(pattern: str, token_bytes: list[bytes], written: bytes, ends: frozenset[int]) -> NDArray[np.bool_]:
    """By brute force, the tokens after which a text of ``pattern`` is whole or can become so."""
    whole = regex.compile("".join(map(chr, pattern.encode())))  # bytes as characters: half of one can match, too

    def fits(raw: bytes, partial: bool) -> bool:
        return whole.fullmatch("".join(map(chr, raw)), partial=partial) is not None

    return np.array(
        [
            fits(written, partial=False) if token in ends else bool(raw) and fits(written + raw, partial=True)
            for token, raw in enumerate(token_bytes)
        ]
    )


def draw(rng: random.Random, mask: NDArray[np.bool_]) -> int:
    return int(rng.choice(np.flatnonzero(mask).tolist()))


@pytest.mark.parametrize("pattern", [r"a[b-d]{2,5}(, x|;)?", r"(ab|abc)*d", "most|moda|na moście", r"[a-z ]{0,12}"])
def test_masks_are_those_of_brute_force(pattern: str) -> None:
    tokenizer, seed = demo()[1], random.randrange(2**32)
    print("seed", seed)
    rng, opened = random.Random(seed), open_tokenizer(tokenizer)
    token_bytes, ends = list(opened.token_bytes), frozenset(tokenizer.eos_token_ids)
    grammar, forced = Grammar(tokenizer, "regex", pattern), 0
    for _ in range(6):
        constraint, written = grammar.constraint(ROWS), b""
        for _ in range(12):
            mask = bits(constraint.masks())[0]
            expected = matched(pattern, token_bytes, written, ends)
            if not np.array_equal(mask, expected):  # only one text can follow, in the tokenizer's own tokens
                (only,) = np.flatnonzero(mask).tolist()
                texts = sorted((token_bytes[token] for token in np.flatnonzero(expected)), key=len)
                assert expected[only] and all(texts[-1].startswith(text) for text in texts), written
                assert constraint.forced(1) == [only]
                forced += 1
            token = draw(rng, mask)
            constraint.commit([token])
            if token in ends:
                break
            written += token_bytes[token]
        after = bits(constraint.masks())[0]
        assert token not in ends or set(np.flatnonzero(after)) == ends
    assert forced or "mo" not in pattern


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["qwen2.5", "mistral-7b-v0.1", "llama-3.2", "gemma-3"])
def test_masks_of_real_tokenizers(name: str, shared: Path) -> None:
    from transformers import AutoTokenizer

    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    tokenizer = TokenizerWrapper(AutoTokenizer.from_pretrained(str(shared / "tokenizers" / name)))
    opened = open_tokenizer(tokenizer)
    token_bytes, ends = list(opened.token_bytes), frozenset(tokenizer.eos_token_ids)
    rows = len(token_bytes) + 7  # padded
    pattern = r'\{"(name|nazwisko|ім’я)": ?"[^"\\]{1,20}"(, "x": [0-9]{2,4})?\}'
    grammar = Grammar(tokenizer, "regex", pattern)
    constraint, written, mask = grammar.constraint(rows), b"", np.zeros(rows, bool)
    while not mask[list(ends)].any():
        mask = bits(constraint.masks())[0]
        assert not mask[len(token_bytes) :].any() and not mask[list(opened.specials - ends)].any()
        # By characters, the text may not end within one: only tokens that end with one are compared.
        texts = {token: (written + raw).decode(errors="replace") for token, raw in enumerate(token_bytes) if raw}
        whole = {token for token, text in texts.items() if "\ufffd" not in text}
        expected = {token for token in whole if regex.fullmatch(pattern, texts[token], partial=True)}
        allowed = whole & set(np.flatnonzero(mask).tolist())
        assert allowed == expected or (len(allowed) <= 1 and allowed <= expected), (written, allowed ^ expected)
        token = rng.choice(sorted(allowed or np.flatnonzero(mask).tolist()))
        constraint.commit([token])
        written += token_bytes[token] if token not in ends else b""
    assert regex.fullmatch(pattern, written.decode())


@pytest.mark.nightly
def test_drafts_leave_no_trace_and_have_the_masks_of_committed_text() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for name, grammar in grammars():
        text: list[int] = []
        constraint = grammar.constraint(ROWS)
        for _ in range(25):
            draft: list[int] = []
            for _ in range(rng.randrange(6)):
                mask = bits(committed_to(grammar, [*text, *draft]).masks())[0]
                draft.append(draw(rng, mask if rng.random() < 0.8 else np.ones(ROWS, bool)))
                if not mask[draft[-1]]:
                    break
            expected: list[NDArray[np.bool_]] = []
            for end in range(len(draft) + 1):
                expected.append(bits(committed_to(grammar, [*text, *draft[:end]]).masks())[0])
                if end < len(draft) and (draft[end] in demo()[1].eos_token_ids or not expected[-1][draft[end]]):
                    break
            got = bits(constraint.masks(draft))
            assert np.array_equal(got, np.array(expected)), (name, text, draft)
            assert constraint.allowed(draft) >= min(len(got) - (len(got) <= len(draft)), len(draft))
            forced = constraint.forced(8)
            assert len(constraint.masks(forced)) == len(forced) + 1
            token = draw(rng, got[0])
            constraint.commit([token])
            text.append(token)
