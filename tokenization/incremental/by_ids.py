"""Incremental encoding of a growing text on ids: keep what is there, add what comes, and mend only where they meet.

    [ a][ whole][ city][,][ wh][ose] + [ name]     a run that begins at a sure border (`borders`) is appended
    [ a][ whole][ city][,][ wh] + [oever]          after any other, the tokenizer writes " whoever" again

What it writes is remembered. Only where no sure border is near does the end of the text go through `by_text`.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise

import numpy as np

from spectool.tokenization.backend import call_backend
from spectool.tokenization.incremental.borders import Borders
from spectool.tokenization.incremental.by_text import REACH, Change, TailReencoder
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.token_bytes import Lists, byte_symbols, text_of
from spectool.tokenization.tokenizer import Tokenizer

_REMEMBERED = 1 << 16  # texts since a sure border, and tokens
_NEAR = 32  # tokens that are looked through for a sure border before the end of the text is encoded
_MUCH = 512  # bytes likewise
_CHARACTER = 4  # bytes of the longest character
_BROKEN = re.compile("([\udc80-\udcff]+)")  # bytes that are part of no character, after decoding


class IncrementalBPE:
    """Joins ids of a tokenizer, for which `reasons_for_text` finds none. Holds caches only; texts belong to the caller.

    Attributes:
        token_bytes: Bytes of each id.
        encode: The canonical ids of bytes inside a text; a function that remembers many.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.token_bytes = tokenizer.running_bytes
        self._text, self._borders = TailReencoder(tokenizer, inside=True), Borders(tokenizer)
        single = np.flatnonzero(np.diff(Lists.of(self.token_bytes).offsets) == 1).tolist()
        self._byte_ids = {self.token_bytes[token][0]: token for token in single}
        by_bytes = tokenizer.has_step("ByteLevel", "pre_tokenizer")
        self._symbols = {byte: symbol for symbol, byte in byte_symbols().items()} if by_bytes else {}
        self._model, self._name = tokenizer.backend.model, tokenizer.name
        self.encode = lru_cache(_REMEMBERED)(self._encode)
        self._first = lru_cache(_REMEMBERED)(lambda token: _first_character(self.token_bytes[token]))
        self._last = lru_cache(_REMEMBERED)(lambda token: _last_character(self.token_bytes[token]))
        # The space before every text becomes part of a normalized added token, but is not put before other ones.
        names = {token["id"]: token["content"] for token in tokenizer.spec["added_tokens"]}
        added = (text.encode() for token, text in tokenizer.running_added.items() if text == names[token])
        self._after_no_space = tuple(added) if tokenizer.leading_space else ()

    def boundary_holds(self, ids: Sequence[int], data: bytes) -> bool:
        """Whether there is a boundary between ``ids`` and ``data`` in the joined text as well."""
        if not data or self._is_sure(ids, len(ids), 0, _first_character(data)):
            return True
        start, tail = self.join(ids, data)
        return len(self._data(ids[start:])) in self._ends(tail)

    def may_hold(self, ids: Sequence[int], data: bytes) -> bool:
        """As `boundary_holds`, but for white space: where that is split depends on what follows it.

        Many patterns leave the last space to the next word, so a letter is looked at in its place.
        """
        if self.boundary_holds(ids, data):
            return True
        return data.isspace() and self.boundary_holds(ids, data + b"a")

    def join(self, ids: Sequence[int], data: bytes, floor: int = 0, begin: int = 0) -> Change:
        """Append ``data``, encoded with what lies since a sure border, to ``ids``.

        Args:
            ids: Canonical ids of the text so far (committed ones, whether canonical or not, up to ``floor``).
            data: What follows; it need not be whole tokens.
            floor: ``ids[:floor]`` are never changed.
            begin: ``ids[:begin]`` belong to an earlier text.

        Returns:
            ``start, tail`` such that ``ids[:start] + tail`` are the canonical ids of the whole text. Given a boundary
            at ``floor``, they are those of the text from there on.
        """
        sure = self._is_sure(ids, len(ids), begin, _first_character(data))
        start, near = (len(ids), True) if sure else self._start(ids, begin)
        so_far = self._data(ids[start:])
        whole = so_far + data
        if not near and floor <= start and text_of(whole):
            at, tail = self._text.join(ids, so_far, data, begin)
            if self._data(tail) == self._data(ids[at:]) + data:
                return at, tail
        if start == begin and floor <= begin and whole[:1] == b" " and whole.startswith(self._after_no_space, 1):
            whole = whole[1:]
        found = self.encode(whole) if len(whole) < _MUCH else self._encode(whole)
        if floor <= start:
            kept = common_prefix(found, ids[start:])
            return start + kept, found[kept:]
        fixed = len(self._data(ids[start:floor]))
        ends = self._ends(found)
        return floor, found[ends.index(fixed) :] if fixed in ends else self.encode(whole[fixed:])

    def _is_sure(self, ids: Sequence[int], at: int, begin: int, after: str) -> bool:
        """Whether a sure border is between the id before ``at`` and the character ``after``, which may be none."""
        if at == begin or not after:
            return at == begin
        # A character may be spread over several tokens.
        before = self._last(ids[at - 1]) or _last_character(self._data(ids[max(begin, at - _CHARACTER) : at]))
        return bool(before) and self._borders.are_sure(before, after)

    def _start(self, ids: Sequence[int], begin: int) -> tuple[int, bool]:
        """The last id that a text may begin at, if one is near, or else one at a character `REACH` bytes back."""
        at, size, near = len(ids), 0, True
        while at > begin and size < REACH:
            at -= 1
            size += len(self.token_bytes[ids[at]])
            near = len(ids) - at <= _NEAR and size <= _MUCH
            if near and self._is_sure(ids, at, begin, self._first(ids[at])):
                return at, True
        for _ in range(_CHARACTER - 1):  # a character may have an id for each byte
            at -= at > begin and b"\x80" <= self.token_bytes[ids[at]][:1] < b"\xc0"
        return at, near

    def _encode(self, data: bytes) -> tuple[int, ...]:
        """The ids of bytes, of which the first and the last may lie inside a character."""
        text = data.decode("utf-8", "surrogateescape")
        if not _BROKEN.search(text):
            return tuple(self._text.encode(data))
        ids: list[int] = []
        for broken, group in groupby(self._cut(text), lambda part: bool(_BROKEN.search(part))):
            part = "".join(group).encode("utf-8", "surrogateescape")
            ids += self._merge(part) if broken else self._text.encode(part)
        return tuple(ids)

    def _cut(self, text: str) -> list[str]:
        """Parts of a text whose broken bytes are U+DC80 to U+DCFF; nothing merges from one part to the next."""
        if not self._symbols:  # such bytes are tokens of their own
            return list(filter(None, _BROKEN.split(text)))
        pairs = enumerate(pairwise(text), 1)
        borders = (at for at, pair in pairs if not _BROKEN.search("".join(pair)) and self._borders.are_sure(*pair))
        return [text[start:end] for start, end in pairwise([0, *borders, len(text)])]

    def _merge(self, data: bytes) -> list[int]:
        """The ids of bytes that are no text, for which only the model can be asked."""
        if not self._symbols:
            return [self._byte_ids[byte] for byte in data if byte in self._byte_ids]
        text = "".join(map(self._symbols.__getitem__, data))
        return [token.id for token in call_backend(self._model.tokenize, text, self._name)]

    def _data(self, tokens: Iterable[int]) -> bytes:
        return b"".join(map(self.token_bytes.__getitem__, tokens))

    def _ends(self, tokens: Iterable[int]) -> list[int]:
        """0, and the byte at which each token ends."""
        return list(accumulate((len(self.token_bytes[token]) for token in tokens), initial=0))


def _first_character(data: bytes) -> str:
    """The character that bytes begin with; empty where they begin inside one."""
    return next(filter(None, (text_of(data[:size]) for size in range(1, _CHARACTER + 1))), "")


def _last_character(data: bytes) -> str:
    """The character that bytes end with; empty where they end inside one."""
    return next(filter(None, (text_of(data[-size:]) for size in range(1, _CHARACTER + 1))), "")


IncrementalEncoder = IncrementalBPE | TailReencoder


def encoder_of(tokenizer: Tokenizer, by_ids: bool) -> IncrementalEncoder:
    """What joins ids of a tokenizer, on ids or through text."""
    return IncrementalBPE(tokenizer) if by_ids else TailReencoder(tokenizer)
