"""Which texts survive: every real tokenizer on every test string, and what small ones cannot keep."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers

from spectool.tests.tiers import nightly, slow
from spectool.tests.tokenization.round_trip import keeps
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.round_trips import limits
from spectool.tokenization.tokenizer import Tokenizer

# Strings of 714 that a tokenizer keeps.
KEPT = {
    "bielik-11b-v2.5": 710,
    "bielik-4.5b-v3-apt4": 710,
    "mistral-7b-v0.1": 710,
    "gemma-3": 710,
    "phi-3-mini": 710,
    "gpt2": 714,
    "gpt4o-o200k": 714,
    "llama-3.2": 714,
    "mistral-nemo": 713,
    "qwen2.5": 686,
    "claude-legacy": 585,
}
QUICK = ("bielik-11b-v2.5", "gpt2")
LOSSY = ("falcon-7b", "nanochat-pl-ours6-nfkc", "t5-small")
BYTES_KEPT_AS_DECODED = ("falcon-7b", "nanochat-pl-ours6-nfkc")


@pytest.fixture(scope="session")
def strings(shared: Path) -> list[str]:
    pairs = json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))
    return [text for _, text in pairs]


def check_limits_are_all(tokenizer: Tokenizer, strings: list[str]) -> int:
    """The number of strings that are kept. Others have a special token or a ``▁``, or the tokenizer has limits."""
    changed = [text for text in strings if not keeps(tokenizer, text)]
    for text in changed:
        named = "▁" in text or not tokenizer.specials.isdisjoint(tokenizer.encode(text))
        assert named or limits(tokenizer), text
    return len(strings) - len(changed)


@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *nightly(*(name for name in KEPT if name not in (*QUICK, "mistral-nemo"))),
        *slow("mistral-nemo"),
    ],
)
def test_tokenizers_that_keep_text(name: str, real: Callable[[str], Tokenizer], strings: list[str]) -> None:
    tokenizer = real(name)
    assert check_limits_are_all(tokenizer, strings) == KEPT[name]
    for text in strings:
        ids = tokenizer.encode(text)
        assert tokenizer.bytes_of(ids).decode() == tokenizer.backend.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", [LOSSY[0], *nightly(*LOSSY[1:])])
def test_tokenizers_that_lose_text(name: str, real: Callable[[str], Tokenizer], strings: list[str]) -> None:
    tokenizer = real(name)
    assert 0 < check_limits_are_all(tokenizer, strings) < len(strings)
    if name in BYTES_KEPT_AS_DECODED:
        for text in strings:
            ids = tokenizer.encode(text)
            assert tokenizer.bytes_of(ids).decode() == tokenizer.backend.decode(ids)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("gpt2", None),
        ("t5-small", "replaces what it cannot spell with an unknown token"),
        *nightly(("mistral-7b-v0.1", None), ("phi-3-mini", None), ("qwen2.5", "normalizes to NFC")),
    ],
)
def test_limits_of_real_tokenizers(real: Callable[[str], Tokenizer], name: str, limit: str | None) -> None:
    assert limit in limits(real(name)) if limit else limits(real(name)) == ()


def test_leading_spaces(sentence_piece: Backend) -> None:
    """Llama's extra space is told from one of the text; Metaspace's is not."""
    assert keeps(open_tokenizer(sentence_piece), " kot")
    assert not keeps(open_tokenizer(sentence_piece), "▁kot")
    sentence_piece.normalizer = None
    sentence_piece.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first")
    sentence_piece.decoder = decoders.Metaspace("▁", prepend_scheme="first")
    tokenizer = open_tokenizer(sentence_piece)
    assert tokenizer.bytes_of(tokenizer.encode(" kot")) == b"kot"


def test_a_space_before_every_text(byte_level: Backend) -> None:
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer = open_tokenizer(byte_level)
    assert "writes a space before every text" in limits(tokenizer)
    assert [keeps(tokenizer, text) for text in ("kot", " kot", "")] == [False, True, True]
    assert tokenizer.encode("kot") == [tokenizer.vocabulary["Ġkot"]]


@pytest.mark.parametrize(
    ("normalizer", "text", "reason"),
    [
        (normalizers.NFC(), "e\u0301", "normalizes to NFC"),
        (normalizers.NFKD(), "ﬁ", "normalizes to NFKD"),
        (normalizers.Lowercase(), "Kot", "normalizes with Lowercase"),
        (normalizers.BertNormalizer(), "Kot", "normalizes with BertNormalizer"),
        (normalizers.Strip(), " kot", "normalizes with Strip"),
        (normalizers.Replace("’", "'"), "п’ять", "replaces '’' with \"'\""),
        (normalizers.StripAccents(), "e\u0301", "normalizes with StripAccents"),
    ],
)
def test_normalizers_are_named(byte_level: Backend, normalizer: normalizers.Normalizer, text: str, reason: str) -> None:
    byte_level.normalizer = normalizers.Sequence([normalizer])
    tokenizer = open_tokenizer(byte_level)
    assert limits(tokenizer) == (reason,)
    assert not keeps(tokenizer, text) and keeps(tokenizer, "kot")


def test_special_tokens_in_a_text_and_missing_bytes(byte_level: Backend) -> None:
    tokenizer = open_tokenizer(byte_level)
    assert tokenizer.bytes_of(tokenizer.encode("a<|endoftext|>b")) == b"ab"
    small = Backend(models.BPE({"a": 0, "b": 1}, []))
    small.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    small.decoder = decoders.ByteLevel()
    assert limits(open_tokenizer(small)) == ("leaves out what it has no token for",)


def test_unknown_tokens() -> None:
    backend = Backend(models.WordLevel({"[UNK]": 0, "kot": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = open_tokenizer(backend)
    assert tokenizer.bytes_of(tokenizer.encode("kot pies")) == b"kot"
    assert "keeps no spaces" in limits(tokenizer)
    assert "replaces what it cannot spell with an unknown token" in limits(tokenizer)
    assert tokenizer.unknown == 0


@pytest.mark.parametrize("left_out", ["", "é"])
def test_an_unknown_token_is_a_limit_only_where_a_byte_is_missing(byte_level: Backend, left_out: str) -> None:
    # Sorted, so that no byte of the text gets the id of an added token.
    known = sorted(byte_level.get_vocab(with_added_tokens=False))
    names = [name for name in known if not left_out or left_out not in name]
    merges = [("k", "o"), ("ko", "t"), ("Ġ", "kot")]
    vocabulary = {"<unk>": 0} | {name: place for place, name in enumerate(names, 1)}
    byte_level.model = models.BPE(vocabulary, merges, unk_token="<unk>")
    tokenizer = open_tokenizer(byte_level)
    assert keeps(tokenizer, "鯨 żółć") == (not left_out)  # "鯨" begins with the byte that "é" stands for
    assert ("replaces what it cannot spell with an unknown token" in limits(tokenizer)) == bool(left_out)


def test_what_decoding_does_not_undo_is_said(sentence_piece: Backend, byte_level: Backend) -> None:
    def stated(text: str, **steps: Any) -> tuple[str, ...]:
        backend = Backend.from_str(sentence_piece.to_str())
        for name, step in steps.items():
            setattr(backend, name, step)
        tokenizer = open_tokenizer(backend)
        ids = tokenizer.encode(text)
        assert tokenizer.bytes_of(ids).decode() == backend.decode(ids, skip_special_tokens=False)
        assert not keeps(tokenizer, text)
        return limits(tokenizer)

    kept = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    assert "writes a space before every text" in stated(" kot", decoder=kept)
    other = pre_tokenizers.Metaspace("_", "never", split=False)
    underlined = "writes '_' for a space, which decoding leaves so"
    assert underlined in stated("kot k", normalizer=None, pre_tokenizer=other)
    byte_level.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    assert limits(open_tokenizer(byte_level)) == ("changes ordinary text",)


def test_a_pre_tokenizer_that_drops_what_it_splits_at(byte_level: Backend) -> None:
    dashes = pre_tokenizers.Split("-", "removed")
    byte_level.pre_tokenizer = pre_tokenizers.Sequence([dashes, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer = open_tokenizer(byte_level)
    assert limits(tokenizer) == ("drops what its pre-tokenizer splits at",)
    assert not keeps(tokenizer, "kot-kot") and keeps(tokenizer, "kot kot")
