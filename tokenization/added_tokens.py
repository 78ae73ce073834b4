"""Where an added token, which is cut out of a text before anything else, could be in a list of ids."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from spectool.tokenization.running_text import RunningText
from spectool.tokenization.token_bytes import TokenBytes
from spectool.tokenization.tokenizer import Tokenizer


class AddedTokens:
    """The added tokens of one tokenizer, as byte strings that may arise across ids."""

    def __init__(self, tokenizer: Tokenizer, running: RunningText) -> None:
        self._token_bytes, self._leading = running.token_bytes, tokenizer.edges.leading_space
        added = {token: text.encode() for token, text in running.added.items()}
        # The space before every text becomes part of a normalized token, but is not put before other tokens.
        names = {token["id"]: token["content"] for token in tokenizer.spec["added_tokens"]}
        self._alone = tuple(text.encode() for token, text in running.added.items() if text == names[token])
        self._ids = frozenset(added)
        self._contents = contents = frozenset(added.values())
        self.longest = max(map(len, contents), default=0)  # bytes
        self._openings = frozenset(content[:end] for content in contents for end in range(1, len(content) + 1))
        # Whether each id has a byte with which one begins.
        text, firsts = TokenBytes.of(self._token_bytes), [content[0] for content in contents]
        before = np.append(0, np.cumsum(np.isin(text.blob, firsts), dtype=np.int32))
        self._opening = bytes(before[text.offsets[1:]] > before[text.offsets[:-1]])
        self._inside = b"\0".join(contents)
        self.touches = cache(self._touches)

    def __contains__(self, token: int) -> bool:
        return token in self._ids

    def _touches(self, token: int) -> bool:
        """Whether an added token could begin in a token, or go on through all of it."""
        raw = self._token_bytes[token]
        begins = any(raw[i:] in self._openings for i in range(len(raw)))
        return begins or (bool(self._contents) and raw in self._inside)

    def may_span(self, ids: Sequence[int], at: int, begin: int) -> bool:
        """Whether an added token could begin in ``ids[begin:at]`` and not have ended there."""
        if at <= begin or not self.touches(ids[at - 1]):
            return False
        return any(map(self._opening.__getitem__, ids[max(begin, at - self.longest) : at]))

    def span(self, ids: Sequence[int], at: int, after: int, begin: int) -> bool:
        """Whether one could begin in ``ids[begin:at]`` and go on in the id ``after`` these."""
        if not self.may_span(ids, at, begin):
            return False
        tail = self._tail(ids, at, begin)
        reach = tail + self._token_bytes[after][:1]
        return any(reach[i:] in self._openings for i in range(len(tail)))

    def end_in(self, ids: Sequence[int], data: bytes, begin: int) -> bool:
        """Whether an added token ends within ``data``, which follows ``ids[begin:]``."""
        if not self._contents:
            return False
        tail = self._tail(ids, len(ids), begin)
        reach = tail + data
        for start in range(len(reach)):
            for end in range(start + 1, len(reach) + 1):
                if reach[start:end] not in self._openings:
                    break
                if end > len(tail) and reach[start:end] in self._contents:
                    return True
        return False

    def at_start(self, data: bytes) -> bytes:
        """The bytes of a whole text, without the space put before it if an added token begins it."""
        begins = self._leading and data.startswith(self._alone, 1)
        return data.removeprefix(b" ") if begins else data

    def _tail(self, ids: Sequence[int], at: int, begin: int) -> bytes:
        """As many bytes before ``ids[at]`` as an added token can reach back."""
        tail = b""
        while at > begin and len(tail) < self.longest:
            at -= 1
            tail = self._token_bytes[ids[at]] + tail
        return tail
