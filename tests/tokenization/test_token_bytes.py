"""Lists against the backend's own decoding, on small and on real tokenizers."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from spectool import TokenizerError
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.token_bytes import byte_symbols, text_of
from spectool.tokenization.tokenizer import Tokenizer

LOSSLESS_BYTE_LEVEL = ("gpt2", "gpt4o-o200k", "llama-3.2")
SENTENCE_PIECE = ("bielik-11b-v2.5", "mistral-7b-v0.1", "gemma-3", "phi-3-mini")


def test_byte_symbols_name_every_byte_once() -> None:
    symbols = byte_symbols()
    assert sorted(symbols.values()) == list(range(256))
    assert symbols["A"] == 0x41
    assert symbols["Ġ"] == 0x20
    assert symbols["Ċ"] == 0x0A
    assert symbols["Ń"] == 0xAD
    assert symbols["é"] == 0xE9


def test_specials_have_no_surface_and_other_added_tokens_have_one(byte_level: Backend) -> None:
    tokenizer = open_tokenizer(byte_level)
    assert tokenizer.token_bytes[tokenizer.vocabulary["<|endoftext|>"]] == b""
    assert tokenizer.token_bytes[tokenizer.vocabulary["<think>"]] == b"<think>"
    assert tokenizer.kind == "byte-level BPE"


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.BPEDecoder("</w>"),
        decoders.WordPiece(),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
        decoders.Sequence([decoders.Strip(" ", 1, 0), decoders.Fuse()]),
    ],
)
def test_decoders_that_remove_spaces_elsewhere_than_before_a_text_are_refused(decoder: decoders.Decoder) -> None:
    backend = Backend(models.WordLevel({"kot": 0}, unk_token="kot"))
    backend.decoder = decoder
    with pytest.raises(TokenizerError, match=r"decoder step '(BPEDecoder|WordPiece|Strip)' is not supported"):
        _ = open_tokenizer(backend).token_bytes


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_survives_the_small_byte_level(text: str) -> None:
    tokenizer = _byte_level()
    ids = tokenizer.encode(text)
    assert not set(ids) & tokenizer.specials or "<|endoftext|>" in text
    if "<|endoftext|>" not in text:
        assert tokenizer.bytes_of(ids).decode() == text == tokenizer.backend.decode(ids)


def _byte_level() -> Tokenizer:
    backend = Backend(models.BPE({name: place for place, name in enumerate(byte_symbols())}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return open_tokenizer(backend)


@pytest.mark.parametrize("name", [*LOSSLESS_BYTE_LEVEL, *SENTENCE_PIECE])
def test_random_ids_spell_what_the_backend_decodes(name: str, real: Callable[[str], Tokenizer]) -> None:
    """Also ids that no text encodes to, and half characters: what a model may sample."""
    tokenizer = real(name)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    usable = [i for i in range(tokenizer.size) if tokenizer.token_bytes[i]]
    # A whole character first: the backend's byte fallback shows broken bytes one mark each, Python one a run.
    plain = [i for i in usable if text_of(tokenizer.token_bytes[i])]
    for _ in range(300):
        ids = rng.choices(plain, k=rng.randint(1, 8))
        assert tokenizer.bytes_of(ids).decode() == tokenizer.backend.decode(ids, skip_special_tokens=False), ids
    if name in LOSSLESS_BYTE_LEVEL:
        for _ in range(300):
            ids = rng.choices(usable, k=rng.randint(1, 8))
            assert tokenizer.bytes_of(ids).decode("utf-8", "replace") == tokenizer.backend.decode(ids), ids


def test_one_artificial_space_is_taken_off_each_edge() -> None:
    backend = Backend(models.WordLevel({"?": 0, "▁": 1, "▁a": 2, "b": 3, "▁▁": 4}, unk_token="?"))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer = open_tokenizer(backend)
    for ids, expected in (([2, 2], b"a a"), ([1, 2], b" a"), ([3, 2], b"b a"), ([4], b" "), ([1], b""), ([], b"")):
        assert tokenizer.bytes_of(ids) == expected == backend.decode(ids).encode()


@pytest.mark.parametrize(
    ("steps", "ids", "expected"),
    [  # Metaspace removes its own sign alone, and after Fuse there are no single tokens
        ([decoders.ByteFallback(), decoders.Metaspace()], [5, 2], b"  a"),
        ([decoders.ByteFallback(), decoders.Metaspace()], [2, 2], b"a a"),
        ([decoders.ByteFallback(), decoders.Metaspace()], [1, 2], b"a"),  # after a special token
        ([decoders.Replace("▁", " "), decoders.Fuse(), decoders.ByteFallback()], [2, 5], b" a<0x20>"),
    ],
)
def test_spaces_and_byte_tokens_as_the_decoder_reads_them(steps: list[Any], ids: list[int], expected: bytes) -> None:
    backend = Backend(models.WordLevel({"?": 0, "<s>": 1, "▁a": 2, "<0x20>": 5}, unk_token="?"))
    backend.add_special_tokens(["<s>"])
    backend.decoder = decoders.Sequence(steps)
    assert open_tokenizer(backend).bytes_of(ids) == expected == backend.decode(ids).encode()
