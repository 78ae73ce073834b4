"""The intersection against a comparison of all pairs, and the rules for duplicates and roles."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from spectool.build.alignment.intersection import intersect
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.roles import Roles
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer


def byte_level(*tokens: str) -> Tokenizer:
    names = [*byte_symbols(), *tokens]
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>", "<|im_end|>", "<pad>"])
    return open_tokenizer(backend)


def sentence_piece(*tokens: str) -> Tokenizer:
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *tokens]
    vocabulary = {name: place for place, name in enumerate(names)}
    backend = Backend(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return open_tokenizer(backend)


def test_the_same_bytes_in_two_spellings() -> None:
    left, right = byte_level("Ġkot", "Ã³"), sentence_piece("▁kot", "ó", "a")
    forth = intersect(left, right)
    assert forth.dtype == np.int32
    assert forth.shape == (left.size,)
    assert forth[left.vocabulary["Ġkot"]] == right.vocabulary["▁kot"]
    assert forth[left.vocabulary["Ã³"]] == right.vocabulary["ó"]
    assert forth[left.vocabulary["Ċ"]] == right.vocabulary["<0x0A>"]
    assert forth[left.vocabulary["Ã"]] == right.vocabulary["<0xC3>"]
    assert forth[left.vocabulary["b"]] == right.vocabulary["<0x62>"]
    assert forth[left.vocabulary["a"]] == right.vocabulary["a"], "an ordinary token before its byte-fallback twin"
    back = intersect(right, left)
    assert back[right.vocabulary["a"]] == back[right.vocabulary["<0x61>"]] == left.vocabulary["a"]
    assert back[right.vocabulary["<unk>"]] == -1


def test_roles_never_meet_through_text() -> None:
    """``</s>`` is a word of one side and an end of text of the other."""
    left, right = byte_level("</s>", "<s>"), sentence_piece("<|endoftext|>", "<pad>")
    forth, back = intersect(left, right), intersect(right, left)
    ends = [left.vocabulary["<|endoftext|>"], left.vocabulary["<|im_end|>"]]
    assert forth[ends].tolist() == [right.vocabulary["</s>"]] * 2
    assert back[right.vocabulary["</s>"]] == left.roles.eos[0]
    assert forth[left.vocabulary["</s>"]] == -1
    assert forth[left.vocabulary["<s>"]] == -1
    assert back[right.vocabulary["<|endoftext|>"]] == -1
    assert back[right.vocabulary["<pad>"]] == -1
    assert forth[left.roles.pad] == -1, "padding of one side only"
    assert back[right.roles.bos] == -1


def test_an_unknown_token_has_no_counterpart() -> None:
    """Mistral Nemo has `<unk>` as one more special token, and Bielik 11B writes it for what it cannot spell."""
    left, right = byte_level(), sentence_piece()
    left.backend.add_special_tokens(["<unk>"])
    left = open_tokenizer(left.backend)
    assert left.vocabulary["<unk>"] in left.specials and left.unknown is None
    assert intersect(left, right)[left.vocabulary["<unk>"]] == -1
    assert intersect(right, left)[right.vocabulary["<unk>"]] == -1


def test_the_declared_end_of_text_is_the_counterpart() -> None:
    left = byte_level()
    right = replace(sentence_piece(), roles=Roles(eos=(2, 1)))
    assert intersect(left, right)[list(left.roles.eos)].tolist() == [2, 2]
    assert intersect(right, left)[[1, 2]].tolist() == [left.roles.eos[0]] * 2


def test_a_name_counts_more_than_a_role() -> None:
    """Both write ``<|im_end|>`` after an answer, and only one declares it as the end of a text."""
    left, right = byte_level(), sentence_piece()
    text_end, turn_end = left.vocabulary["<|endoftext|>"], left.vocabulary["<|im_end|>"]
    left = replace(left, roles=Roles(eos=(turn_end, text_end)))
    right.backend.add_special_tokens(["<|im_end|>"])
    right = open_tokenizer(right.backend)
    ends = [right.vocabulary[name] for name in ("</s>", "<|im_end|>")]
    assert right.roles.eos == tuple(ends)
    assert intersect(left, right)[[text_end, turn_end]].tolist() == ends
    assert intersect(right, left)[ends].tolist() == [text_end, turn_end]
    only_turns = replace(left, roles=Roles(eos=(turn_end,)))
    assert intersect(right, only_turns)[ends].tolist() == [turn_end, turn_end]


def all_pairs(source: Tokenizer, other: Tokenizer) -> list[set[int]]:
    """The twin: for every id all ids of the other side with the same bytes."""
    return [
        {i for i in range(other.size) if other.token_bytes[i] == raw} if raw else set() for raw in source.token_bytes
    ]


def roles_of(tokenizer: Tokenizer) -> set[int]:
    roles = tokenizer.roles
    return {i for i in (roles.bos, roles.pad, *roles.eos) if i is not None}


def test_equal_to_a_comparison_of_all_pairs(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    shared = 0
    for source, other in ((bundled, other_bundled), (other_bundled, bundled)):
        found, expected = intersect(source, other), all_pairs(source, other)
        for mine, theirs in enumerate(expected):
            if mine in roles_of(source) or mine in source.specials:
                continue
            assert (found[mine] in theirs) if theirs else found[mine] == -1
            shared += bool(theirs)
            ordinary = theirs - other.byte_tokens
            assert not ordinary or found[mine] == min(ordinary)
    assert shared > 100


@pytest.mark.parametrize(("draft", "target"), [("gpt2", "mistral-7b-v0.1"), ("bielik-4.5b-v3-apt4", "bielik-11b-v2.5")])
def test_both_directions_agree_on_real_tokenizers(draft: str, target: str, real: Callable[[str], Tokenizer]) -> None:
    left, right = real(draft), real(target)
    forth, back = intersect(left, right), intersect(right, left)
    assert (forth != -1).sum() > 1000
    for source, other, there, home in ((left, right, forth, back), (right, left, back, forth)):
        shared = np.flatnonzero(there != -1)
        ends = roles_of(source)
        for mine in shared:
            assert home[there[mine]] != -1
            if mine not in ends:
                assert (
                    source.token_bytes[mine] == other.token_bytes[there[mine]] == source.token_bytes[home[there[mine]]]
                )
        theirs = set(other.token_bytes) - {b""}
        spelled = [i for i, raw in enumerate(source.token_bytes) if raw in theirs]
        assert (there[spelled] != -1).all()


@pytest.mark.parametrize("name", ["bielik-11b-v2.5", "mistral-7b-v0.1", "phi-3-mini", "t5-small"])
def test_the_chosen_duplicate_is_the_one_that_encoding_writes(name: str, real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    chosen = intersect(tokenizer, tokenizer)
    repeated = Counter(tokenizer.token_bytes)
    checked = 0
    for index, raw in enumerate(tokenizer.token_bytes):
        if raw and repeated[raw] > 1 and raw.isascii():
            written = tokenizer.encode("a" + raw.decode() + "a")
            same = [i for i in written if tokenizer.token_bytes[i] == raw]
            if same and raw.isalnum() is False:
                assert chosen[index] in same, (index, raw)
                checked += 1
    assert checked or name == "t5-small"
