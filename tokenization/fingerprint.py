"""Fingerprints: which tokenizer an artifact belongs to.

A fingerprint is a SHA-256 of what a tokenizer does, as it is in memory: its steps, model options and added tokens, all
tokens of its vocabulary, and of its merges or scores a sample: how the model splits 2,048 pairs of tokens, and the ids
of `PROBES`. Writing out the merges as well would take three times as long. Tokenizers that differ only in a merge that
no sample meets share a fingerprint; that costs drafts, and never changes an answer.

Fields that change neither ids nor bytes (character offsets, absent options spelled out as null or false) are left out,
so saving a tokenizer again does not change its fingerprint.
"""

import hashlib
import json
from itertools import pairwise
from typing import Any

import tokenizers

from spectool import TokenizerError
from spectool.tokenization.backend import call_backend

_SECTIONS = ("normalizer", "pre_tokenizer", "model", "added_tokens", "decoder")
_WITHOUT_EFFECT = ("trim_offsets",)

# Strings on which rebuilt tokenizers were seen to differ: leading and repeated spaces, line
# breaks, apostrophes, digits, special tokens in text, two scripts, combining marks.
PROBES = (
    "персональний комп'ютер",
    "п’ять сімʼя — об'єкт",
    "Zażółć gęślą jaźń, biało-czerwony!",
    "  dwa  spacje ",
    "\n\nnowy\r\n\tакапіт\n",
    "HTTPServer2 don't l'été",
    "12345 67,890.12",
    "<s>a</s> b <|im_end|>c",
    "за́мок e\u0301 ﬁ ½",
    "日本語 🙂👍🏽 קמץ",
    "▁a ▁ b",
    "```python\n    x += 1\n```",
    "İstanbul Qırım'da",
    "a\u00a0b\u2009c\u200bd",
)
_SAMPLE = 2048  # tokens of which pairs are split


def fingerprint_of(backend: tokenizers.Tokenizer, spec: dict[str, Any]) -> str:
    """The fingerprint of a ``backend`` with these `sections`, 64 hex digits."""
    size = backend.get_vocab_size(with_added_tokens=True)
    vocabulary = hashlib.sha256(_vocabulary(backend).encode()).hexdigest()
    sample = [backend.id_to_token(index) or "" for index in range(0, size, 1 + size // _SAMPLE)]
    split = [_split(backend, "".join(pair)) for pair in pairwise(sample)]
    content = {section: _canonical(spec.get(section)) for section in _SECTIONS}
    if isinstance(content["decoder"], dict) and content["decoder"].get("type") == "ByteLevel":
        content["decoder"] = {"type": "ByteLevel"}  # as a decoder it ignores its options
    text = json.dumps([content, vocabulary, split, probed(backend)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _vocabulary(backend: tokenizers.Tokenizer) -> str:
    """All tokens of the model in the order of their ids; with their ids, which takes longer, if those have gaps."""
    model = tokenizers.Tokenizer(backend.model)  # without a decoder, it writes tokens as they are, between spaces
    size = model.get_vocab_size()
    tokens: str = model.decode(range(size), skip_special_tokens=False)
    if tokens.count(" ") == size - 1:
        return tokens
    ids = model.get_vocab()
    names = sorted(ids, key=ids.__getitem__)
    return f"{' '.join(names)} {[ids[name] for name in names]}"


def _split(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    try:
        return [token.id for token in call_backend(backend.model.tokenize, text, "")]
    except TokenizerError:  # it has no token for part of this
        return []


def probed(backend: tokenizers.Tokenizer) -> list[list[int] | str]:
    """The ids of each of the `PROBES`, or the error for one that the library cannot encode."""
    found: list[list[int] | str] = []
    for text in PROBES:
        try:
            found.append(call_backend(backend.encode, text, "probe", add_special_tokens=False).ids)
        except TokenizerError as error:
            found.append(str(error))
    return found


def short(digest: str) -> str:
    """A fingerprint, abbreviated for messages.

    >>> short("3f2a91c0ffee")
    '3f2a91c0…'
    """
    return digest[:8] + "…"


def _canonical(node: Any) -> Any:
    if isinstance(node, list):
        return [_canonical(item) for item in node]
    if not isinstance(node, dict):
        return node
    options = {key: _canonical(value) for key, value in node.items() if key not in _WITHOUT_EFFECT}
    return {key: value for key, value in options.items() if value not in (None, "") and value is not False}
