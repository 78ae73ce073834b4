"""Fingerprints: which tokenizer an artifact belongs to.

A fingerprint is the SHA-256 of normalizer, pre-tokenizer, model, added tokens and decoder as the `tokenizers` backend
writes them in JSON. Two tokenizers with equal fingerprints give equal ids and equal bytes. Fields that change neither
(character offsets, absent options spelled out as null or false) are left out, so saving a tokenizer again does not
change its fingerprint.

A fingerprint takes seconds for a large vocabulary, so an artifact also records its *sources*: digests of the file's
bytes and of what was loaded from them. A tokenizer with one of these sources is known without a fingerprint.
"""

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import tokenizers

from spectool import TokenizerError
from spectool.tokenization.backend import encoded

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
_SAMPLE = 2048  # tokens of a loaded vocabulary that are looked at


def source_digest(file: Path, rebuilt_as: str, backend: tokenizers.Tokenizer, spec: dict[str, Any]) -> str:
    """SHA-256 of a ``tokenizer.json`` and of the ``backend`` loaded from it, 64 hex digits; empty if it cannot be read.

    The bytes of the file and the class that transformers rebuilds it as decide what is loaded, but a program can change
    that later. So steps, options and added tokens (``spec``) count as they are in memory, and vocabulary and merges
    count at 2,048 places and by the ids of `PROBES`. Takes about 20 ms, and 1 ms for each MB of the file.
    """
    try:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""
    size = backend.get_vocab_size(with_added_tokens=True)
    sample = [backend.id_to_token(index) or "" for index in range(0, size, 1 + size // _SAMPLE)]
    words = map("".join, pairwise(sample)) if spec["model"]["type"] == "BPE" else ()
    loaded = [
        content,
        rebuilt_as,
        spec,
        size,
        sample,
        [[token.id for token in backend.model.tokenize(word)] for word in words],
        probed(backend),
    ]
    return hashlib.sha256(json.dumps(loaded, sort_keys=True).encode()).hexdigest()


def probed(backend: tokenizers.Tokenizer) -> list[list[int] | str]:
    """The ids of each of the `PROBES`, or the error for one that the library cannot encode."""
    found: list[list[int] | str] = []
    for text in PROBES:
        try:
            found.append(encoded(backend.encode, text, "probe").ids)
        except TokenizerError as error:
            found.append(str(error))
    return found


def fingerprint_of_json(spec: dict[str, Any]) -> str:
    """The fingerprint of a parsed ``tokenizer.json`` (as the backend writes it)."""
    canonical = {section: _canonical(spec.get(section)) for section in _SECTIONS}
    if isinstance(canonical["decoder"], dict) and canonical["decoder"].get("type") == "ByteLevel":
        canonical["decoder"] = {"type": "ByteLevel"}  # as a decoder it ignores its options
    text = json.dumps(canonical, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
    # Vocabulary and merges hold no options: copying a million entries would be waste.
    whole = {key: node.get(key) for key in ("vocab", "merges") if "vocab" in node}
    options = {key: _canonical(value) for key, value in node.items() if key not in {*whole, *_WITHOUT_EFFECT}}
    return {key: value for key, value in options.items() if value not in (None, "") and value is not False} | whole
