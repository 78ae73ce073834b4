"""Every kind of step that the `tokenizers` library has: joined on ids, through text, or refused by name."""

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import TokenizerError
from spectool.tests.tiers import nightly
from spectool.tokenization.incremental.adversarial import adversarial_texts
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.ids_or_text import _SPLITS, reasons_for_text
from spectool.tokenization.roles import Roles
from spectool.tokenization.token_bytes import DECODERS, byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

BASES = {"pre_tokenizer": "PreTokenizer", "decoder": "Decoder"}


def kinds_of_the_library(section: str) -> set[str]:
    module, base = getattr(tokenizers, f"{section}s"), BASES[section]
    kind = getattr(module, base)
    return {name for name, found in vars(module).items() if isinstance(found, type) and issubclass(found, kind)} - {
        base
    }


def test_every_pre_tokenizer_of_the_library_is_known() -> None:
    assert kinds_of_the_library("pre_tokenizer") == _SPLITS.keys() | {"Sequence", "FixedLength"}


def test_what_counts_from_the_beginning_of_a_text_is_refused(byte_level: Backend) -> None:
    with pytest.raises(TokenizerError, match=r"FixedLength counts characters .* Use a tokenizer without this step"):
        reasons_for_text(made(byte_level, pre_tokenizer=pre_tokenizers.FixedLength(5)))


def test_every_decoder_of_the_library_is_known() -> None:
    assert kinds_of_the_library("decoder") == {*DECODERS, "BPEDecoder", "CTC", "WordPiece"}, "these are refused"


def made(backend: Backend, **steps: Any) -> Tokenizer:
    for name, step in steps.items():
        setattr(backend, name, step)
    return Tokenizer("made", backend, Roles())


def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
JOINED = {
    "ByteLevel": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "ByteLevel with a space before": [pre_tokenizers.ByteLevel(add_prefix_space=True)],
    "Digits": [pre_tokenizers.Digits(individual_digits=False), BYTES],
    "single Digits": [pre_tokenizers.Digits(individual_digits=True), BYTES],
    "Punctuation": [pre_tokenizers.Punctuation("merged_with_next"), BYTES],
    "Split": [split("[!-/][A-Za-z]+|[一-龥]+"), split(r"\d{1,3}"), BYTES],
    "Split at a string": [pre_tokenizers.Split("ko", "merged_with_previous"), BYTES],
    "Split inverted": [split(r"\s+|\S+", "removed", True), BYTES],
    "digits from the right": [split(r"\d{1,3}(?=(\d{3})*\b)"), BYTES],
    "a character twice": [split(r"(.)\1"), BYTES],
    "three words": [split(r"(?: ?\p{L}+){1,3}"), BYTES],
    "Split at a long string": [pre_tokenizers.Split("<|end_of_text|>", "isolated"), BYTES],
    "nothing": [BYTES],
}


_ALIKE = "ByteLevel with a space before"


@pytest.mark.parametrize("name", [*(name for name in JOINED if name != _ALIKE), *nightly(_ALIKE)])
def test_steps_on_which_ids_are_joined(name: str, byte_level: Backend, rng: Any) -> None:
    tokenizer = made(byte_level, pre_tokenizer=pre_tokenizers.Sequence(JOINED[name]))
    assert reasons_for_text(tokenizer) == ()
    check_joins(tokenizer, rng, 250)


def test_a_long_text_without_borders_is_never_cut_inside_a_character(byte_level: Backend) -> None:
    """Found by chance: where it was, the added tokens after the cut were spelled out."""
    tokenizer = made(byte_level, pre_tokenizer=pre_tokenizers.Sequence(JOINED["a character twice"]))
    encoder = IncrementalBPE(tokenizer)
    text = "\ufeff" + "\U00013e93" * 8 + "\ufeff" * 20 + "<think>" * 17 + "\U00013e93" * 5
    for at in range(len(text)):
        ids: list[int] = []
        for piece in (text[:at], text[at:]):
            start, tail = encoder.join(ids, piece.encode())
            ids[start:] = tail
        assert ids == tokenizer.plain_backend.encode(text, add_special_tokens=False).ids, at


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (normalizers.Replace(" ", "▁"), None),
        (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None),
        (
            normalizers.Sequence([normalizers.NFC(), normalizers.Strip()]),
            pre_tokenizers.Metaspace("▁", "first", split=False),
        ),
        (None, pre_tokenizers.Metaspace("▁", "always", split=True)),
        (None, pre_tokenizers.Metaspace("▁", "never", split=True)),
        (normalizers.Replace(" ", "▁"), pre_tokenizers.Split("▁", "merged_with_next")),
    ],
)
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_signs_for_spaces(
    normalizer: Any, pre_tokenizer: Any, byte_fallback: bool, sentence_piece: Backend, rng: Any
) -> None:
    sentence_piece.model.byte_fallback = byte_fallback
    tokenizer = made(sentence_piece, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    assert reasons_for_text(tokenizer) == ()
    check_joins(tokenizer, rng, 250, None if byte_fallback else "kot \n")


def check_joins(tokenizer: Tokenizer, rng: Any, count: int, characters: str | None = None) -> None:
    """Join adversarial texts in pieces; what comes out is what the tokenizer writes for the whole."""
    encoder = IncrementalBPE(tokenizer)
    prefix, kept = b" " * tokenizer.leading_space, 0
    twin = Backend.from_str(tokenizer.backend.to_str())
    twin.encode_special_tokens = True
    for text in islice(adversarial_texts(tokenizer, rng, ["kot kota ko! tok 1234567", "Ala ma kota"]), count):
        text = text if characters is None else "".join(rng.choices(characters, k=rng.randint(1, 12)))
        whole = twin.encode(text, add_special_tokens=False).ids
        if b"".join(map(tokenizer.token_bytes.__getitem__, whole)) != prefix + text.encode():
            continue  # it does not keep this text
        kept += 1
        at = rng.randrange(len(text) + 1)
        ids: list[int] = []
        for piece in (prefix + text[:at].encode(), text[at:].encode()):
            start, tail = encoder.join(ids, piece)
            ids[start:] = tail
        assert ids == whole, (text, at)
    print(f"{kept} of {count} texts kept")
    assert kept >= 5


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("spaces", ["normalizer", "Metaspace", "ByteLevel"])
def test_added_tokens_with_every_option(
    spaces: str, normalized: bool, byte_level: Backend, sentence_piece: Backend, rng: Any
) -> None:
    backend = byte_level if spaces == "ByteLevel" else sentence_piece
    if spaces == "Metaspace":
        backend.normalizer, backend.pre_tokenizer = None, pre_tokenizers.Metaspace("▁", "always", split=False)
    for strip in ({}, {"lstrip": True}, {"rstrip": True}):
        content = f"<Tk{len(strip)}{''.join(strip)}>"
        backend.add_tokens([AddedToken(content, normalized=normalized, **strip), AddedToken("ot ko", normalized=False)])
    tokenizer = made(Backend.from_str(backend.to_str()))
    assert reasons_for_text(tokenizer) == ()
    check_joins(tokenizer, rng, 250)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (pre_tokenizers.BertPreTokenizer(), "BertPreTokenizer keeps no spaces"),
        (pre_tokenizers.Whitespace(), "Whitespace keeps no spaces"),
        (pre_tokenizers.WhitespaceSplit(), "WhitespaceSplit keeps no spaces"),
        (pre_tokenizers.CharDelimiterSplit(","), "CharDelimiterSplit keeps no delimiters"),
        (pre_tokenizers.UnicodeScripts(), "UnicodeScripts splits by script"),
        (split(r"\s+", "removed"), "removes what it splits at"),
        (split(r"\p{L}+| ?[^\p{L}\s]+", "removed", True), "removes what it splits at"),
    ],
)
def test_pre_tokenizers_that_go_through_text(step: Any, reason: str, byte_level: Backend) -> None:
    tokenizer = made(byte_level, pre_tokenizer=pre_tokenizers.Sequence([step, BYTES]))
    assert any(reason in found for found in reasons_for_text(tokenizer)), reasons_for_text(tokenizer)


def test_other_reasons_to_go_through_text(byte_level: Backend, sentence_piece: Backend) -> None:
    def reasons(backend: Backend, **steps: Any) -> str:
        return " ".join(reasons_for_text(made(Backend.from_str(backend.to_str()), **steps)))

    assert "splits bytes" in reasons(
        byte_level, pre_tokenizer=pre_tokenizers.Sequence([BYTES, pre_tokenizers.Digits()])
    )
    assert "ByteLevel writes bytes as signs" in reasons(byte_level, normalizer=normalizers.ByteLevel())
    assert "it writes 'Ġ' for a space, which decoding leaves so" in reasons(byte_level, decoder=decoders.Fuse())
    for kind, model in (
        ("Unigram", models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0)),
        ("WordLevel", models.WordLevel({"[UNK]": 0}, "[UNK]")),
    ):
        assert f"model {kind} does not merge pairs" in reasons(Backend(model))
    assert "it has no decoder" in reasons(Backend(byte_level.model))
    underlined = pre_tokenizers.Metaspace("_", "first", split=False)
    assert "writes '_' for a space, which decoding leaves so" in reasons(
        sentence_piece, normalizer=None, pre_tokenizer=underlined
    )
    spaced = pre_tokenizers.Sequence([split("[óż]"), pre_tokenizers.Metaspace("▁", "always", split=False)])
    assert "writes a space before every piece" in reasons(sentence_piece, normalizer=None, pre_tokenizer=spaced)


@pytest.mark.parametrize(("name", "by_ids"), [("bielik-11b-v2.5", True), ("falcon-7b", False), ("t5-small", False)])
def test_real_tokenizers(name: str, by_ids: bool, real: Callable[[str], Tokenizer]) -> None:
    assert (not reasons_for_text(real(name))) == by_ids


STOPPING = (
    models.Unigram([("a", -1.0)]),
    models.BPE({"a": 0}, [], unk_token="<unk>"),
    models.WordLevel({"a": 0}, unk_token="?"),
)


@pytest.mark.parametrize("model", STOPPING)
def test_a_model_that_stops_at_unknown_text_is_an_error(model: models.Model) -> None:
    tokenizer = made(Backend(model))
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(TokenizerError, match=r"^made: cannot encode a text \(.*\)\. Fix tokenizer\.json"):
            encode("b")


@pytest.mark.parametrize("missing", [0x1D, 0xC4])
def test_bytes_without_a_symbol_are_left_out(missing: int, byte_level: Backend, rng: Any) -> None:
    spec = json.loads(byte_level.to_str())
    symbols = {number: sign for sign, number in byte_symbols().items()}
    vocabulary = spec["model"]["vocab"]
    vocabulary["no symbol"] = vocabulary.pop(symbols[missing])
    tokenizer = made(Backend.from_str(json.dumps(spec)), pre_tokenizer=JOINED["ByteLevel"][0])
    encoder = IncrementalBPE(tokenizer)
    assert encoder.encode("kot\x1dą kot".encode()) == tuple(tokenizer.encode("kot\x1dą kot"))
    check_joins(tokenizer, rng, 20)


@pytest.mark.parametrize(("name", "special"), [("<unk>", True), ("kot", False)])
def test_a_special_token_that_decodes_as_something_else_is_in_no_text(
    sentence_piece: Backend, name: str, special: bool
) -> None:
    """OpenLLaMA declares ``<unk>`` as normalized, and the normalizer makes ``▁<unk>`` of it."""
    backend = Backend(sentence_piece.model)
    backend.normalizer, backend.decoder = sentence_piece.normalizer, sentence_piece.decoder
    add = backend.add_special_tokens if special else backend.add_tokens
    add([AddedToken(name, normalized=True)])
    tokenizer = made(backend)
    assert bool(reasons_for_text(tokenizer)) is not special
