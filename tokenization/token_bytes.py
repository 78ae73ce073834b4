"""Token bytes: the exact bytes that each token contributes to the text.

They follow the tokenizer's own decoder step by step:

    byte-level BPE      "Ġcaf" "Ã©"       -> b" caf" b"\\xc3\\xa9"
    SentencePiece       "▁caf" "<0xC3>"   -> b" caf" b"\\xc3"

so joined token bytes are what ``decode`` gives inside a running text. At the beginning of a text, some decoders remove
one space that is not part of it (`removes_leading_space`). Decoders that join words, of WordPiece and of word-end
marks, are refused: no causal language model has them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.tokenization.backend import steps_of

_DecoderStep = Callable[[str], str | bytes]
DECODERS = ("ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Sequence", "Strip")
_FUSING = ("ByteLevel", "Fuse")  # make one string of all tokens
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class Lists(Sequence[Any]):
    """A list for each id, all in one array: bytes of uint8, and tuples of other numbers."""

    def __init__(self, values: NDArray[Any], offsets: NDArray[np.uint32]) -> None:
        """All values, and where those of each id begin, ``[ids + 1]``; nothing is copied."""
        self.values, self.offsets = values, offsets
        self._values, self._offsets = values.data, offsets.data
        self._list: Any = bytes if values.dtype == np.uint8 else tuple

    @classmethod
    def of(cls, lists: Sequence[Any], kind: str = "uint8") -> "Lists":
        """Lists laid out one after the other, as numbers of a NumPy type."""
        if isinstance(lists, Lists):
            return lists
        offsets = np.append(0, np.cumsum(list(map(len, lists)))).astype(np.uint32)
        is_bytes = kind == "uint8"
        values = np.frombuffer(b"".join(lists), kind) if is_bytes else np.fromiter(chain.from_iterable(lists), kind)
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        return self._list(self._values[self._offsets[index] : self._offsets[index + 1]])


def byte_symbols() -> dict[str, int]:
    """The printable characters by which byte-level BPE writes bytes, each with its byte.

    Bytes that print in Latin-1 are written as themselves; the others are numbered from U+0100.
    Source: GPT-2's byte-level alphabet, used by every byte-level tokenizer.

    >>> byte_symbols()["Ġ"]
    32
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def token_bytes(spec: Mapping[str, Any], names: Mapping[int, str], specials: frozenset[int]) -> list[bytes]:
    """The bytes of every id up to the highest in ``names``; empty for ``specials`` and ids without a name.

    Raises:
        TokenizerError: The decoder has a step that this version does not know.
    """
    steps = _decoder_steps(spec)
    token_bytes = [b""] * (max(names, default=-1) + 1)
    for index, name in names.items():
        if index not in specials:
            token_bytes[index] = _raw(name, steps)
    return token_bytes


def removes_leading_space(spec: Mapping[str, Any]) -> bool:
    """Whether the decoder removes a space at the beginning of a text."""
    return spec.get("decoder") is None or any(
        (step["type"] == "Strip" and step["start"] > 0 and step["content"] == " ")
        or (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in steps_of(spec, "decoder")
    )


def text_of(raw: bytes) -> str:
    """Bytes as text; empty if they are not whole characters."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def _raw(token: str, steps: list[_DecoderStep]) -> bytes:
    piece: str | bytes = token
    for step in steps:
        if isinstance(piece, bytes):
            break
        piece = step(piece)
    return piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")


def _decoder_steps(spec: Mapping[str, Any]) -> list[_DecoderStep]:
    if spec.get("decoder") is None:  # tokens are written with a space between any two
        return [" ".__add__]
    steps, fused = [], False
    for step in steps_of(spec, "decoder"):
        fused |= step["type"] in _FUSING
        at_the_beginning = fused and step["type"] == "Strip" and not step["stop"]  # of a text: `removes_leading_space`
        if step["type"] != "Fuse" and not at_the_beginning:
            steps.append(_decoder_step(step))
    return steps


def _decoder_step(step: dict[str, Any]) -> _DecoderStep:
    match step["type"]:
        case "ByteLevel":
            return _byte_level
        case "ByteFallback":
            return _byte_fallback
        case "Metaspace":
            return methodcaller("replace", step["replacement"], " ")
        case "Replace" if "String" in step["pattern"]:
            return methodcaller("replace", step["pattern"]["String"], step["content"])
    raise TokenizerError(
        f"decoder step {step['type']!r} is not supported; expected one of {', '.join(DECODERS)}; Replace of a string, "
        "not of a regular expression with operators; and Strip at the beginning of a text, after Fuse or ByteLevel. "
        "Change the decoder in tokenizer.json, or give another tokenizer"
    )


_SYMBOLS = byte_symbols()


def _byte_level(piece: str) -> str | bytes:
    # Tokens with other characters (added tokens, mostly) are taken as they are, like the backend does.
    try:
        return bytes(_SYMBOLS[char] for char in piece)
    except KeyError:
        return piece


def _byte_fallback(piece: str) -> str | bytes:
    match = _BYTE_TOKEN.match(piece)
    return bytes([int(match[1], 16)]) if match else piece
