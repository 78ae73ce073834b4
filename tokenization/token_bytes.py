"""Token bytes: the exact bytes that each token contributes to the text.

They follow the tokenizer's own decoder step by step:

    byte-level BPE      "Ġcaf" "Ã©"       -> b" caf" b"\\xc3\\xa9"
    SentencePiece       "▁caf" "<0xC3>"   -> b" caf" b"\\xc3"

so joined token bytes are what ``decode`` gives inside a running text. At the beginning of a text, some decoders remove
one space that is not part of it. Decoders that join words, of WordPiece and of word-end marks, are refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.tokenization.backend import steps_of

DECODERS = ("ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Sequence", "Strip")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class TokenBytes(Sequence[bytes]):
    """The bytes of each id, all in one array."""

    def __init__(self, values: NDArray[np.uint8], offsets: NDArray[np.uint32]) -> None:
        """All bytes, and where those of each id begin, ``[ids + 1]``; nothing is copied."""
        self.values, self.offsets = values, offsets
        self._values, self._offsets = values.data, offsets.data

    @classmethod
    def of(cls, token_bytes: Sequence[bytes]) -> "TokenBytes":
        """The same, laid out one after the other."""
        if isinstance(token_bytes, TokenBytes):
            return token_bytes
        offsets = np.append(0, np.cumsum(list(map(len, token_bytes)))).astype(np.uint32)
        return cls(np.frombuffer(b"".join(token_bytes), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        return bytes(self._values[self._offsets[index] : self._offsets[index + 1]])


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


def text_of(raw: bytes) -> str:
    """Bytes as text; empty if they are not whole characters."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def decoder_of(spec: Mapping[str, Any], tokenizer: str) -> Callable[[str], bytes]:
    """What the decoder in a ``spec`` makes of the name of a token by itself: the token's bytes.

    Raises:
        TokenizerError: The decoder of the ``tokenizer`` of this name has a step that this version does not know.
    """
    steps, fused = list[Callable[[str], str | bytes]](), False
    if spec["decoder"] is None:  # tokens are written with a space between any two
        steps.append(" ".__add__)
    for step in steps_of(spec, "decoder"):
        match step["type"]:
            case "ByteLevel":
                steps.append(_byte_level)
            case "ByteFallback" if not fused:  # it reads single tokens
                steps.append(_byte_fallback)
            case "Metaspace":
                steps.append(methodcaller("replace", step["replacement"], " "))
            case "Replace" if "String" in step["pattern"]:
                steps.append(methodcaller("replace", step["pattern"]["String"], step["content"]))
            case "Strip" if fused and not step["stop"]:
                pass  # at the beginning of a text: `Tokenizer.bytes_of`
            case kind if kind not in ("ByteFallback", "Fuse"):
                raise TokenizerError(
                    f"{tokenizer}: decoder step {kind!r} is not supported; expected one of {', '.join(DECODERS)}; "
                    "Replace of a string, not of a regular expression with operators; and Strip at the beginning of a "
                    "text, after Fuse or ByteLevel. Change the decoder in tokenizer.json, or give another tokenizer"
                )
        fused |= step["type"] in ("ByteLevel", "Fuse")  # which make one string of all tokens

    def decoded(token: str) -> bytes:
        piece: str | bytes = token
        for step in steps:
            if isinstance(piece, str):
                piece = step(piece)
        return piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")

    return decoded


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
