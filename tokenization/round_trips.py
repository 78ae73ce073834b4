"""What a tokenizer does not keep of a text that is encoded and decoded again."""

from collections.abc import Iterator, Sequence
from typing import Any

from spectool import TokenizerError
from spectool.tokenization.backend import normalized
from spectool.tokenization.fingerprint import PROBES
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

_SPACE = "▁"
_WITHOUT_SPACES = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit"})
_KEEPS_NO_SPACES = "keeps no spaces, and writes one between any two words or signs"


def limits(tokenizer: Tokenizer) -> tuple[str, ...]:
    """What this tokenizer cannot keep, a phrase each; empty for a lossless one.

    Two things that ordinary text does not contain are left out: the names of special tokens, and the sign that stands
    for a space (``▁``).
    """
    writes_bytes, adds_space = _writes_bytes(tokenizer), _adds_space(tokenizer)
    found = [_named(step) for step in _lossy_normalizers(tokenizer)]
    found += _lost_by_splitting(tokenizer)
    if adds_space:
        found.append("writes a space before every text")
    missing = [symbol for symbol in byte_symbols() if symbol not in tokenizer.vocabulary] if writes_bytes else []
    if missing:
        found.append(f"has no symbol for {len(missing)} of 256 bytes")
    model = tokenizer.spec["model"]
    spells_all = model["type"] == "BPE" and writes_bytes and not missing
    if len(tokenizer.byte_tokens) < 256 and not spells_all and (tokenizer.unknown is not None or not writes_bytes):
        if tokenizer.lacking:
            found.append("stops with an error at what it cannot spell")
        elif tokenizer.unknown is None:
            found.append("leaves out what it has no token for")
        else:
            found.append("replaces what it cannot spell with an unknown token")
    found += unread(tokenizer)
    keeps_spaces = _KEEPS_NO_SPACES not in found
    if keeps_spaces and not tokenizer.lacking and (changed := _changed_tokens(tokenizer, " " * adds_space)):
        more = f" and {len(changed) - 1:,} more" if len(changed) > 1 else ""
        found.append(f"changes text at the added token {changed[0]!r}{more}")
    return tuple(found)


def _adds_space(tokenizer: Tokenizer) -> bool:
    try:
        return tokenizer.bytes_of(tokenizer.encode("a")) == b" a"
    except TokenizerError:  # it stops at what it has no token for
        return False


def unread(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield what decoding does not undo of how text is written for the model."""
    writes = _writes_bytes(tokenizer)
    if tokenizer.spec["decoder"] is None:
        yield "has no decoder: a space is written between any two tokens"
    elif writes and not _reads_bytes(tokenizer):
        yield "writes bytes as signs such as 'Ġ', which decoding leaves so"
    elif not writes and _reads_bytes(tokenizer):
        yield "decodes signs such as 'Ġ' and 'é' as single bytes, which it writes for no text"
    elif tokenizer.space_sign != " " and tokenizer.bytes_of_names({0: tokenizer.space_sign}) != [b" "]:
        yield f"writes {tokenizer.space_sign!r} for a space, which decoding leaves so"
    splits = tokenizer.steps("pre_tokenizer")[1:]
    if any(step.get("prepend_scheme") == "always" or step.get("add_prefix_space") for step in splits):
        yield "writes a space before every piece that its pre-tokenizer splits off"


def _lost_by_splitting(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield what the pre-tokenizer does not keep."""
    if not _WITHOUT_SPACES.isdisjoint(_types(tokenizer, "pre_tokenizer")):
        yield _KEEPS_NO_SPACES
        return
    probe = "".join(PROBES)
    if any(map(tokenizer.drops, (probe, f" {probe}"))):
        yield "drops what its pre-tokenizer splits at"


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
            return "normalizes to NFKC, by its own character map"
        case "Lowercase":
            return "lower-cases"
        case "BertNormalizer":
            lower = step["lowercase"]
            strips = step["strip_accents"] or (step["strip_accents"] is None and lower)
            parts = ["lower-cases" * lower, "strips accents" * strips, "cleans control characters and spaces"]
            return ", ".join(filter(None, parts))
        case "Replace":
            pattern = next(iter(step["pattern"].values()))
            return f"replaces {pattern[:40]!r} with {step['content']!r}"
        case "Strip":
            return "strips spaces at the ends"
    return f"normalizes with {step['type']}"


def _changed_tokens(tokenizer: Tokenizer, prefix: str) -> list[str]:
    """The added tokens that come out changed between two letters, or change the white space around them.

    What stands around an added token is tokenized as texts of their own, and the token may take spaces with it.
    ``prefix`` is what the tokenizer writes before every text.
    """
    sign, normalizer = tokenizer.space_sign, tokenizer.backend.normalizer
    ordinary = [token for token in tokenizer.spec["added_tokens"] if token["id"] not in tokenizer.specials]
    ordinary = [token for token in ordinary if sign == " " or sign not in token["content"]]
    added = [token["content"] for token in ordinary]

    def kept(texts: Sequence[str]) -> list[bool]:
        outcomes = []
        for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
            changed = normalized(normalizer, text, tokenizer.name).replace(sign, " ")
            decoded = tokenizer.bytes_of(ids).decode("utf-8", "replace").removeprefix(prefix)
            outcomes.append(decoded in (text, changed, changed.removeprefix(" ")))
        return outcomes

    pairs = [
        [letter + space + letter for space in ("", " ", "\n")] for letter in "aeo"
    ]  # a letter may be a token itself
    around = max(([pair for pair, whole in zip(each, kept(each), strict=True) if whole] for each in pairs), key=len)
    tried = [kept([pair[:-1] + content + pair[1:] for content in added]) for pair in around]
    # A normalized token may be found only after a space, so that no text tried here shows what it strips.
    strips = [token["lstrip"] or token["rstrip"] for token in ordinary]
    found = zip(added, strips, *tried, strict=True)
    return [content for content, stripping, *outcomes in found if stripping or not all(outcomes)]


def _types(tokenizer: Tokenizer, section: str) -> set[str]:
    return {step["type"] for step in tokenizer.steps(section)}


def _writes_bytes(tokenizer: Tokenizer) -> bool:
    return "ByteLevel" in _types(tokenizer, "normalizer") | _types(tokenizer, "pre_tokenizer")


def _reads_bytes(tokenizer: Tokenizer) -> bool:
    return "ByteLevel" in _types(tokenizer, "decoder")
