"""Which texts survive: every real tokenizer on every test string, and the reasons on small ones."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool.tokenization import Tokenizer, limits, open_tokenizer, round_trip

SPACE_SIGN = "writes '▁' (U+2581) as a space"
NFKC = "normalizes to NFKC"
# Lossless strings of 714, and what the tokenizers of a family must say of the others.
EXPECTED = {
    "bielik-11b-v2.5": (710, {SPACE_SIGN}),
    "bielik-4.5b-v3-apt4": (710, {SPACE_SIGN}),
    "mistral-7b-v0.1": (710, {SPACE_SIGN}),
    "gemma-3": (710, {SPACE_SIGN}),
    "phi-3-mini": (710, {SPACE_SIGN}),
    "gpt2": (714, set()),
    "gpt4o-o200k": (714, set()),
    "llama-3.2": (714, set()),
    "mistral-nemo": (713, {"reads '[INST]' in the text as a special token"}),
    "qwen2.5": (686, {"normalizes to NFC"}),
    "claude-legacy": (585, {NFKC}),
}
LOSSY = ("bert-base-uncased", "falcon-7b", "herbert-base-cased", "nanochat-pl-ours6-nfkc", "t5-small")
BYTES_KEPT_AS_DECODED = ("falcon-7b", "nanochat-pl-ours6-nfkc")


@pytest.fixture(scope="session")
def strings(shared: Path) -> list[str]:
    pairs = json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))
    return [text for _, text in pairs]


def outcomes(tokenizer: Tokenizer, strings: list[str]) -> tuple[int, Counter[str]]:
    """Check every string, and return how many are lossless and how often each reason is given."""
    lossless, reasons = 0, Counter[str]()
    for text in strings:
        outcome = round_trip(tokenizer, text)
        joined = tokenizer.bytes_of(tokenizer.encode(text))
        assert outcome.restored == joined
        assert outcome.lossless == (joined == text.encode())
        assert outcome.lossless != bool(outcome.reasons), text
        assert "unexplained" not in outcome.reasons, text
        lossless += outcome.lossless
        reasons.update(outcome.reasons)
    return lossless, reasons


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "mistral-nemo" else name for name in EXPECTED]
)
def test_tokenizers_that_keep_text(name: str, real: Callable[[str], Tokenizer], strings: list[str]) -> None:
    tokenizer = real(name)
    expected, expected_reasons = EXPECTED[name]
    lossless, reasons = outcomes(tokenizer, strings)
    assert len(strings) == 714
    assert lossless == expected
    assert set(reasons) == expected_reasons
    for text in strings:
        ids = tokenizer.encode(text)
        assert tokenizer.bytes_of(ids).decode() == tokenizer.backend.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", LOSSY)
def test_tokenizers_that_lose_text_say_why(name: str, real: Callable[[str], Tokenizer], strings: list[str]) -> None:
    tokenizer = real(name)
    lossless, reasons = outcomes(tokenizer, strings)
    assert 0 < lossless < len(strings)
    assert limits(tokenizer)
    # What a tokenizer cannot keep in general is what it gives as reasons; the rest depends on the text.
    for limit in limits(tokenizer):
        assert limit in reasons or limit.startswith(("has no symbol", "replaces")), limit
    if name in BYTES_KEPT_AS_DECODED:
        for text in strings:
            ids = tokenizer.encode(text)
            assert tokenizer.bytes_of(ids).decode() == tokenizer.backend.decode(ids)


@pytest.mark.slow
def test_xlm_roberta_says_why(real: Callable[[str], Tokenizer], strings: list[str]) -> None:
    lossless, reasons = outcomes(real("xlm-roberta-base"), strings)
    assert lossless == 304
    assert reasons["normalizes to NFKC with a character map of its own"] == 252


def test_limits_of_real_tokenizers(real: Callable[[str], Tokenizer]) -> None:
    assert limits(real("gpt2")) == ()
    assert limits(real("mistral-7b-v0.1")) == ()
    assert limits(real("qwen2.5")) == ("normalizes to NFC",)
    assert limits(real("bert-base-uncased")) == (
        "lower-cases, strips accents, cleans control characters and spaces",
        "keeps no spaces, and writes one between any two words or signs",
        "replaces what it cannot spell by an unknown token",
    )


def test_leading_spaces(sentence_piece: Backend) -> None:
    """Llama's extra space is told from one of the text; Metaspace's is not."""
    assert round_trip(open_tokenizer(sentence_piece), " kot").lossless
    assert round_trip(open_tokenizer(sentence_piece), "▁kot").reasons == (SPACE_SIGN,)
    sentence_piece.normalizer = None
    sentence_piece.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first")
    sentence_piece.decoder = decoders.Metaspace("▁", prepend_scheme="first")
    outcome = round_trip(open_tokenizer(sentence_piece), " kot")
    assert outcome.restored == b"kot"
    assert outcome.reasons == ("cannot tell a leading space from the one it adds to every text",)


def test_a_space_before_every_text(byte_level: Backend) -> None:
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer = open_tokenizer(byte_level)
    assert limits(tokenizer) == ("writes a space before every text",)
    assert round_trip(tokenizer, "kot").reasons == ("writes a space before every text",)
    assert round_trip(tokenizer, " kot").lossless
    assert round_trip(tokenizer, "").lossless
    assert tokenizer.encode_after_space(["kot"]) == [[tokenizer.vocabulary["Ġkot"]]]


@pytest.mark.parametrize(
    ("normalizer", "text", "reason"),
    [
        (normalizers.NFC(), "e\u0301", "normalizes to NFC"),
        (normalizers.NFKD(), "ﬁ", "normalizes to NFKD"),
        (normalizers.Lowercase(), "Kot", "lower-cases"),
        (normalizers.Strip(), " kot", "strips spaces at the ends"),
        (normalizers.Replace("’", "'"), "п’ять", "replaces '’' by \"'\""),
        (normalizers.StripAccents(), "e\u0301", "normalizes with StripAccents"),
    ],
)
def test_normalizers_are_named(byte_level: Backend, normalizer: normalizers.Normalizer, text: str, reason: str) -> None:
    byte_level.normalizer = normalizers.Sequence([normalizer])
    tokenizer = open_tokenizer(byte_level)
    around = [f"drops white space {where} the added token '<think>'" for where in ("before", "after")]
    assert limits(tokenizer) == (reason, *(around if reason.startswith("strips") else ()))
    assert round_trip(tokenizer, text).reasons == (reason,)
    assert round_trip(tokenizer, "kot").lossless


def test_special_tokens_in_a_text_and_missing_bytes(byte_level: Backend) -> None:
    outcome = round_trip(open_tokenizer(byte_level), "a<|endoftext|>b")
    assert outcome.restored == b"ab"
    assert outcome.reasons == ("reads '<|endoftext|>' in the text as a special token",)
    small = Backend(models.BPE({"a": 0, "b": 1}, []))
    small.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    small.decoder = decoders.ByteLevel()
    tokenizer = open_tokenizer(small)
    assert limits(tokenizer) == ("has no symbol for 254 of 256 bytes",)
    assert round_trip(tokenizer, "abc").reasons == ("has no symbol for byte 0x63",)


def test_unknown_tokens() -> None:
    backend = Backend(models.WordPiece({"[UNK]": 0, "kot": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece("##", cleanup=False)
    tokenizer = open_tokenizer(backend)
    outcome = round_trip(tokenizer, "kot pies")
    assert outcome.restored == b"kot"
    assert "replaces what it cannot spell by an unknown token" in outcome.reasons
    assert tokenizer.unknown == 0


def test_what_decoding_does_not_undo_is_said(sentence_piece: Backend) -> None:
    def reasons(text: str, **steps: Any) -> tuple[str, ...]:
        backend = Backend.from_str(sentence_piece.to_str())
        for name, step in steps.items():
            setattr(backend, name, step)
        outcome = round_trip(open_tokenizer(backend), text)
        ids = backend.encode(text, add_special_tokens=False).ids
        assert outcome.restored.decode() == backend.decode(ids, skip_special_tokens=False)
        return outcome.reasons

    kept = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    assert reasons(" kot", decoder=kept) == ("writes a space before every text",)
    first = pre_tokenizers.Metaspace("▁", "first", split=False)
    assert reasons("kot kot", normalizer=None, pre_tokenizer=first) == ()
    indented = "cannot tell a leading space from the one it adds to every text"
    assert reasons("   kot", normalizer=None, pre_tokenizer=first) == (indented,)
    other = pre_tokenizers.Metaspace("_", "never", split=False)
    underlined = "writes '_' for a space, which decoding leaves so"
    assert reasons("kot k", normalizer=None, pre_tokenizer=other) == (underlined,)
    sentence_piece.add_tokens([AddedToken("<a>", normalized=False)])
    assert reasons("kot<a>kot") == ("writes a space after the added token '<a>'",)


def test_a_tokenizer_without_a_decoder(byte_level: Backend) -> None:
    tokenizer = open_tokenizer(Backend(byte_level.model))
    spaced = "has no decoder: a space is written between any two tokens"
    assert limits(tokenizer) == ("leaves out what it has no token for", spaced)
    assert round_trip(tokenizer, "kok").restored.decode() == tokenizer.backend.decode(tokenizer.encode("kok")) == "ko k"
    assert round_trip(tokenizer, "kok").reasons == (spaced,)
    assert round_trip(tokenizer, "kotЖ").reasons == limits(tokenizer)


def test_stripping_after_byte_level_strips_the_text(byte_level: Backend) -> None:
    byte_level.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    tokenizer = open_tokenizer(byte_level)
    for text in (" kot kot", "  kot", "kot kot"):
        assert tokenizer.bytes_of(tokenizer.encode(text)).decode() == byte_level.decode(byte_level.encode(text).ids)


def test_a_pre_tokenizer_that_drops_what_it_splits_at(byte_level: Backend) -> None:
    dashes = pre_tokenizers.Split("-", "removed")
    byte_level.pre_tokenizer = pre_tokenizers.Sequence([dashes, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer = open_tokenizer(byte_level)
    assert limits(tokenizer) == ("drops what its pre-tokenizer splits at",)
    assert round_trip(tokenizer, "kot-kot").reasons == limits(tokenizer)
    assert round_trip(tokenizer, "kot kot").lossless
