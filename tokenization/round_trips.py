"""Which texts a tokenizer can spell, and why not where it cannot.

The check encodes a text, joins the surfaces and compares bytes. When they differ, the
encoding is taken apart step by step to name the step that lost something.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tokenizers

from spectool.tokenization import added_tokens
from spectool.tokenization.fingerprint import PROBES
from spectool.tokenization.surfaces import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

_SPACE = "▁"
_UNKNOWN = "replaces what it cannot spell by an unknown token"
_DROPS_SPACES = "keeps no spaces, and writes one between any two words or signs"
_ADDS_SPACE = "writes a space before every text"
_LEAVES_OUT = "leaves out what it has no token for"
NO_LIMITS = "none: every text survives, except names of special tokens and signs for spaces ('▁')"
_WITHOUT_SPACES = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit"})


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The outcome for one text."""

    lossless: bool  # joined surfaces equal the text
    restored: bytes  # the joined surfaces
    reasons: tuple[str, ...]  # why they differ, one phrase for each step that lost something; empty if lossless


def round_trip(tokenizer: Tokenizer, text: str) -> RoundTrip:
    """Encode ``text``, join the surfaces, and explain any difference."""
    ids = tokenizer.encode(text)
    restored = tokenizer.bytes_of(ids)
    if restored == text.encode("utf-8"):
        return RoundTrip(True, restored, ())
    reasons = tuple(_reasons(tokenizer, text, ids, restored)) or tuple(_cut_at(tokenizer, ids))
    return RoundTrip(False, restored, reasons or ("unexplained",))


def limits(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Name what this tokenizer cannot keep; empty for a lossless one.

    Two things that ordinary text does not contain are left out: the names of special tokens, and the sign that stands
    for a space (``▁``). `round_trip` names these as well.
    """
    found = [_named(step) for step in _lossy_normalizers(tokenizer)]
    probe = "".join(PROBES)
    found += dict.fromkeys((*_dropped(tokenizer, probe), *_dropped(tokenizer, f" {probe}")))
    if _adds_space(tokenizer):
        found.append(_ADDS_SPACE)
    if missing := _missing_bytes(tokenizer):
        found.append(f"has no symbol for {len(missing)} of 256 bytes")
    if len(tokenizer.byte_tokens) < 256 and (tokenizer.unknown is not None or not _writes_bytes(tokenizer)):
        without_token = _LEAVES_OUT if tokenizer.unknown is None else _UNKNOWN
        found.append("stops with an error at what it cannot spell" if tokenizer.lacking else without_token)
    found += unread(tokenizer)
    by_effect = dict[str, list[str]]()
    for effect, token in _effects(tokenizer, tokenizer.spec["added_tokens"]):
        by_effect.setdefault(f"{effect} the added token", []).append(token)
    for effect, (first, *others) in by_effect.items():
        found.append(f"{effect} {first}" + f" and {len(others):,} more" * bool(others))
    return tuple(found)


def unread(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield what decoding does not undo of how text is written for the model."""
    writes = _writes_bytes(tokenizer)
    if tokenizer.spec["decoder"] is None:
        yield "has no decoder: a space is written between any two tokens"
    elif writes and not _reads_bytes(tokenizer):
        yield "writes bytes as signs such as 'Ġ', which decoding leaves so"
    elif not writes and _reads_bytes(tokenizer):
        yield "decodes signs such as 'Ġ' and 'é' as single bytes, which it writes for no text"
    elif not tokenizer.reads_spaces:
        yield f"writes {tokenizer.space_sign!r} for a space, which decoding leaves so"
    mark = tokenizer.spec["model"].get("continuing_subword_prefix")
    if mark and "WordPiece" not in _types(tokenizer, "decoder"):
        yield f"writes {mark!r} inside words, which decoding leaves so"


def _reasons(tokenizer: Tokenizer, text: str, ids: list[int], restored: bytes) -> Iterator[str]:
    added = tokenizer.spec["added_tokens"]
    specials = (token["content"] for token in added if token["id"] in tokenizer.specials)
    special = next((content for content in specials if content in text), None)
    if special is not None:
        yield f"reads {special!r} in the text as a special token"
    if _SPACE in text and _SPACE in json.dumps(tokenizer.spec["decoder"], ensure_ascii=False):
        yield f"writes {_SPACE!r} (U+2581) as a space"
    normalized = text
    for step in _lossy_normalizers(tokenizer):
        changed = _normalizer(json.dumps(step)).normalize_str(normalized)
        if changed != normalized:
            yield _named(step)
        normalized = changed
    if tokenizer.unknown is not None and tokenizer.unknown in ids:
        yield _UNKNOWN
    yield from _dropped(tokenizer, normalized)
    if missing := _missing_bytes(tokenizer) & set(normalized.encode("utf-8")):
        yield f"has no symbol for byte 0x{min(missing):02X}"
    if tokenizer.unknown is None and len(tokenizer.byte_tokens) < 256 and not _writes_bytes(tokenizer):
        known = {char for token in ids for char in tokenizer.surfaces[token].decode("utf-8", "ignore")}
        if set(normalized) - known - {" ", tokenizer.space_sign}:
            yield _LEAVES_OUT
    yield from unread(tokenizer)
    for effect, token in _effects(tokenizer, [token for token in added if token["id"] in ids]):
        yield f"{effect} the added token {token}"
    if _adds_space(tokenizer) and (restored == f" {text}".encode() or not text[:1].isspace()):
        yield _ADDS_SPACE
    starts = tokenizer.edges.leading_space and text.startswith((" ", _SPACE))
    if starts and (restored == text[1:].encode() or ids == tokenizer.encode(text[1:])):
        yield "cannot tell a leading space from the one it adds to every text"


def _cut_at(tokenizer: Tokenizer, ids: list[int]) -> Iterator[str]:
    """Yield the added token that cuts a text in two, where nothing else explains what became of it."""
    added = tokenizer.spec["added_tokens"]
    contents = {token["id"]: token["content"] for token in added if token["id"] not in tokenizer.specials}
    for token in [token for token in ids if token in contents][:1]:
        yield f"reads the added token {contents[token]!r} in the text, and what stands around it as texts of their own"


def _effects(tokenizer: Tokenizer, added: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what added tokens change, where the tokenizer keeps spaces at all."""
    if added and not tokenizer.lacking and _DROPS_SPACES not in _dropped(tokenizer, ""):
        yield from added_tokens.effects(tokenizer, added, _adds_space(tokenizer))


def _lossy_normalizers(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Normalizer steps that the decoder does not undo."""
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    undone = [{"type": "Prepend", "prepend": _SPACE}, spaces, *[{"type": "ByteLevel"}] * _reads_bytes(tokenizer)]
    return [step for step in tokenizer.steps("normalizer") if step not in undone]


def _named(step: dict[str, Any]) -> str:
    match step["type"]:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return f"normalizes to {step['type']}"
        case "Precompiled":
            return "normalizes to NFKC with a character map of its own"
        case "Lowercase":
            return "lower-cases"
        case "BertNormalizer":
            lower = step["lowercase"]
            strips = step["strip_accents"] or (step["strip_accents"] is None and lower)
            parts = ["lower-cases" * lower, "strips accents" * strips, "cleans control characters and spaces"]
            return ", ".join(filter(None, parts))
        case "Replace":
            pattern = next(iter(step["pattern"].values()))
            return f"replaces {pattern[:40]!r} by {step['content']!r}"
        case "Strip":
            return "strips spaces at the ends"
    return f"normalizes with {step['type']}"


def _dropped(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yield what a pre-tokenizer does not keep of a text."""
    splits = tokenizer.steps("pre_tokenizer")
    if not _WITHOUT_SPACES.isdisjoint(_types(tokenizer, "pre_tokenizer")):
        yield _DROPS_SPACES
        return
    if tokenizer.drops(text):
        yield "drops what its pre-tokenizer splits at"
    spaced = any(step.get("prepend_scheme") == "always" or step.get("add_prefix_space") for step in splits[1:])
    if spaced or (splits and "WordPiece" in _types(tokenizer, "decoder")):
        yield "writes a space before every piece that its pre-tokenizer splits off"


def _adds_space(tokenizer: Tokenizer) -> bool:
    """Whether encoding puts a space before a text that decoding leaves there."""
    return tokenizer.bytes_of(tokenizer.encode("a")) == b" a"


def _types(tokenizer: Tokenizer, section: str) -> set[str]:
    return {step["type"] for step in tokenizer.steps(section)}


def _writes_bytes(tokenizer: Tokenizer) -> bool:
    return "ByteLevel" in _types(tokenizer, "normalizer") | _types(tokenizer, "pre_tokenizer")


def _reads_bytes(tokenizer: Tokenizer) -> bool:
    return "ByteLevel" in _types(tokenizer, "decoder")


def _missing_bytes(tokenizer: Tokenizer) -> set[int]:
    """Bytes that byte-level text may need and the vocabulary has no symbol for."""
    if not _writes_bytes(tokenizer):
        return set()
    return {byte for symbol, byte in byte_symbols().items() if symbol not in tokenizer.vocabulary}


@lru_cache(maxsize=64)
def _normalizer(step: str) -> Any:
    """One normalizer step, built from its JSON as pickle does."""
    built = tokenizers.normalizers.Sequence([])
    built.__setstate__(f'{{"type": "Sequence", "normalizers": [{step}]}}'.encode())
    return built
