"""Special tokens by role."""

from collections.abc import Callable
from typing import Any

import pytest

from spectool.tokenization.roles import Roles, find_roles, names_control
from spectool.tokenization.tokenizer import Tokenizer

VOCABULARY = {"<unk>": 0, "<s>": 1, "</s>": 2, "<|im_end|>": 3, "<pad>": 4, "kot": 5, "<eos>": 6}
SPECIALS = ("<unk>", "<s>", "</s>", "<|im_end|>", "<pad>")


def test_well_known_names_among_the_special_tokens_only() -> None:
    assert find_roles(VOCABULARY.get, SPECIALS, {}) == Roles(bos=1, eos=(2, 3), pad=4, unk=0)
    assert find_roles(VOCABULARY.get, (), {}) == Roles()
    bracketed = {"[UNK]": 0, "[PAD]": 1, "[SOS]": 2, "[EOS]": 3}
    assert find_roles(bracketed.get, bracketed, {}) == Roles(bos=2, eos=(3,), pad=1, unk=0)


def test_what_is_declared_comes_first() -> None:
    declared = {"eos_token": "<|im_end|>", "pad_token": {"content": "</s>"}, "bos_token": None}
    assert find_roles(VOCABULARY.get, SPECIALS, declared) == Roles(bos=1, eos=(3, 2), pad=2, unk=0)
    assert find_roles(VOCABULARY.get, SPECIALS, {"eos_token": "kot"}).eos == (5, 2, 3)
    assert find_roles(VOCABULARY.get, SPECIALS, {"eos_token": "gone", "bos_token": 7}).eos == (2, 3)


def test_ends_that_a_model_declares() -> None:
    assert find_roles(VOCABULARY.get, SPECIALS, {"eos_token": "</s>"}, [6, 5, 2]).eos == (2, 3, 5, 6)


def test_a_long_name_takes_no_time() -> None:
    assert not names_control("<" + "a" * 10**6) and names_control("<1" + "a" * 10**6 + ">")


@pytest.mark.parametrize(
    ("name", "eos", "others"),
    [
        ("llama-3.2", ["<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"], {"bos": "<|begin_of_text|>"}),
        ("gemma-3", ["<end_of_turn>", "<eos>"], {"bos": "<bos>", "pad": "<pad>", "unk": "<unk>"}),
        ("qwen2.5", ["<|im_end|>", "<|endoftext|>"], {"bos": None, "pad": "<|endoftext|>", "unk": None}),
        ("bielik-11b-v2.5", ["</s>", "<|im_end|>"], {"bos": "<s>", "unk": "<unk>"}),
        ("phi-3-mini", ["<|endoftext|>", "<|end|>"], {"bos": "<s>", "pad": "<|endoftext|>"}),
    ],
)
def test_real_tokenizers(name: str, eos: list[str], others: dict[str, Any], real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    assert tokenizer.roles.eos == tuple(tokenizer.vocabulary[token] for token in eos)
    for role, token in others.items():
        expected = None if token is None else tokenizer.vocabulary[token]
        assert getattr(tokenizer.roles, role) == expected, role
    for token in tokenizer.roles.eos:
        assert tokenizer.token_bytes[token] == b""
