"""What a tokenizer does not keep of a text that is encoded and decoded again."""

from collections.abc import Iterator
from typing import Any

from spectool.tokenization.fingerprint import PROBES
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

_WRITING = ("normalizer", "pre_tokenizer")  # sections that may write text as signs for bytes
_ORDINARY = PROBES[2]  # text that most tokenizers keep


def limits(tokenizer: Tokenizer) -> tuple[str, ...]:
    """What this tokenizer cannot keep, a phrase each; empty for a lossless one.

    Left out are the names of special tokens, the sign that stands for a space (``▁``), and spaces that an added token
    takes with it.
    """
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    undone = ({"type": "Prepend", "prepend": "▁"}, spaces, {"type": "ByteLevel"})
    found = [_named(step) for step in tokenizer.steps("normalizer") if step not in undone]
    if any(map(tokenizer.loses_text, ("".join(PROBES), f" {''.join(PROBES)}"))):
        kinds = {step["type"] for step in tokenizer.steps("pre_tokenizer")}
        keeps_no_spaces = kinds & {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
        found.append("keeps no spaces" if keeps_no_spaces else "drops what its pre-tokenizer splits at")
    if tokenizer.writes_space and not tokenizer.leading_space:
        found.append("writes a space before every text")
    by_bytes = tokenizer.kind == "byte-level BPE" or tokenizer.has_step("ByteLevel", *_WRITING)
    has_bytes = by_bytes and tokenizer.vocabulary.keys() >= byte_symbols().keys()
    if len(tokenizer.byte_tokens) < 256 and not has_bytes:
        replaced = "replaces what it cannot spell with an unknown token"
        found.append("leaves out what it has no token for" if tokenizer.unknown is None else replaced)
    found += unread(tokenizer)
    if not found and tokenizer.bytes_of(tokenizer.encode(_ORDINARY)) != _ORDINARY.encode():
        found.append("changes ordinary text")
    return tuple(found)


def _named(step: dict[str, Any]) -> str:
    if step["type"] == "Replace":
        return f"replaces {next(iter(step['pattern'].values()))[:40]!r} with {step['content']!r}"
    return f"normalizes {'to' if step['type'].startswith('NF') else 'with'} {step['type']}"


def unread(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield what decoding does not undo of how text is written for the model."""
    sign = "Ġ" if tokenizer.has_step("ByteLevel", *_WRITING) else tokenizer.space_sign
    if tokenizer.spec["decoder"] is None:
        yield "has no decoder: a space is written between any two tokens"
    elif tokenizer.decoded(sign) != b" ":
        yield f"writes {sign!r} for a space, which decoding leaves so"
    splits = tokenizer.steps("pre_tokenizer")[1:]
    if any(step.get("prepend_scheme") == "always" or step.get("add_prefix_space") for step in splits):
        yield "writes a space before every piece that its pre-tokenizer splits off"
