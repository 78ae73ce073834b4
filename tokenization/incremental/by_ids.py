"""Incremental encoding of a growing text on ids: keep what is there, add what comes, and mend only where they meet.

    [ a][ whole][ city][,][ wh][ose] + [ name]     a run that begins at a sure border (`borders`) is appended
    [ a][ whole][ city][,][ wh] + [oever]          after any other, the tokenizer writes " whoever" again

What it writes is remembered. Where no sure border is near, it has to confirm a cut: to write the same ids for the end
of the text alone.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise

import numpy as np

from spectool.tokenization.backend import call_backend
from spectool.tokenization.incremental.borders import Borders
from spectool.tokenization.incremental.by_text import REACH, Change, TailReencoder
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.token_bytes import TokenBytes, byte_symbols, text_of
from spectool.tokenization.tokenizer import Tokenizer

_REMEMBERED = 1 << 16  # texts since a sure border, and tokens
_LONG_REMEMBERED = 32  # texts of `_REACHES` or more
_NEAR = 32  # tokens that are looked through for a sure border before the end of the text is encoded
_MUCH = 512  # bytes likewise
_REACHES = (160, REACH)  # bytes of the end of the text that are encoded then
_STEP = 16  # ids between two places where a text is cut
_CUTS = 4  # places in a row at which a text is cut until the tokenizer confirms one
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
        self._backend, self._borders = tokenizer.running_backend, Borders(tokenizer)
        single = np.flatnonzero(np.diff(TokenBytes.of(self.token_bytes).offsets) == 1).tolist()
        self._byte_ids = {self.token_bytes[token][0]: token for token in single}
        by_bytes = tokenizer.has_step("ByteLevel", "pre_tokenizer")
        self._symbols = {byte: symbol for symbol, byte in byte_symbols().items()} if by_bytes else {}
        self._model, self._name = tokenizer.backend.model, tokenizer.name
        self.encode = lru_cache(_REMEMBERED)(self._encode)
        self._encode_long = lru_cache(_LONG_REMEMBERED)(self._encode)
        self._first = lru_cache(_REMEMBERED)(lambda token: _first_character(self.token_bytes[token]))
        self._last = lru_cache(_REMEMBERED)(lambda token: _last_character(self.token_bytes[token]))
        # The space before every text becomes part of a normalized added token, but is not put before other ones.
        names = {token["id"]: token["content"] for token in tokenizer.spec["added_tokens"]}
        added = (text for token, text in tokenizer.running_added.items() if text == names[token])
        self._spaced_added = tuple(f" {text}".encode() for text in added) if tokenizer.leading_space else ()

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

    def join(self, ids: Sequence[int], data: bytes, floor: int = 0, begin: int = 0, spaced: bool = False) -> Change:
        """Append ``data``, encoded with what lies since a sure border, to ``ids``.

        Args:
            ids: Canonical ids of the text so far (committed ones, whether canonical or not, up to ``floor``).
            data: What follows; it need not be whole tokens.
            floor: ``ids[:floor]`` are never changed.
            begin: ``ids[:begin]`` belong to an earlier text.
            spaced: Whether the text begins with the space that the tokenizer puts before every text.

        Returns:
            ``start, tail`` such that ``ids[:start] + tail`` are the canonical ids of the whole text. Given a boundary
            at ``floor``, they are those of the text from there on.
        """
        sure = self._is_sure(ids, len(ids), begin, _first_character(data))
        start = len(ids) if sure else self._last_border(ids, begin)
        if start is not None:
            return self._join_from(start, ids[start:], ids, data, floor, spaced and start == begin)
        for cut in self._cuts(ids, begin):
            if cut == begin:
                break
            alone = self._remembered(self._data(ids[cut:]))
            half = (len(alone) + 1) // 2
            # Text that repeats itself agrees on any few ids. What changes has to be among those that are confirmed:
            # further back, both may depend on what was cut off.
            if list(alone[-half:]) == list(ids[-half:]):
                change = self._join_from(cut, alone, ids, data, floor)
                if change[0] >= len(ids) - half:
                    return change
        return self._join_from(cut, ids[cut:], ids, data, floor, spaced and cut == begin)

    def _join_from(
        self, start: int, alone: Sequence[int], ids: Sequence[int], data: bytes, floor: int, spaced: bool = False
    ) -> Change:
        """As `join`: encode ``data`` with what ``ids[start:]`` spell, for which ``alone`` is written by itself."""
        whole = self._data(ids[start:]) + data
        if spaced and floor <= start and whole.startswith(self._spaced_added):
            whole = whole[1:]
        found = self._remembered(whole)
        if floor <= start:
            kept = common_prefix(found, alone)
            return len(ids) - len(alone) + kept, found[kept:]
        fixed, ends = len(self._data(ids[start:floor])), self._ends(found)
        return floor, found[ends.index(fixed) :] if fixed in ends else self.encode(whole[fixed:])

    def _is_sure(self, ids: Sequence[int], at: int, begin: int, after: str) -> bool:
        """Whether a sure border is between the id before ``at`` and the character ``after``, which may be none."""
        if at == begin or not after:
            return at == begin
        # A character may be spread over several tokens.
        before = self._last(ids[at - 1]) or _last_character(self._data(ids[max(begin, at - _CHARACTER) : at]))
        return bool(before) and self._borders.are_sure(before, after)

    def _last_border(self, ids: Sequence[int], begin: int) -> int | None:
        """The last id that a text may begin at; None where none is near."""
        size = 0
        for at in range(len(ids) - 1, begin, -1):
            size += len(self.token_bytes[ids[at]])
            if len(ids) - at > _NEAR or size > _MUCH:
                return None
            if self._is_sure(ids, at, begin, self._first(ids[at])):
                return at
        return begin

    def _cuts(self, ids: Sequence[int], begin: int) -> Iterator[int]:
        """Yield ids that begin with a character, further and further back, up to `REACH` bytes.

        Nearby texts are cut at the same places, so that what is encoded for one is known for the next.
        """
        for reach in _REACHES:
            cut, size = len(ids), 0
            while cut > begin and size < reach:
                cut -= 1
                size += len(self.token_bytes[ids[cut]])
            cut -= (cut - begin) % _STEP
            # Inside a long run of digits a cut may fall within a group, and then no later id comes out as it was.
            for at in range(cut, max(begin, cut - _CUTS + 1) - 1, -1):
                if at == begin or not b"\x80" <= self.token_bytes[ids[at]][:1] < b"\xc0":
                    yield at

    def _remembered(self, data: bytes) -> tuple[int, ...]:
        return (self.encode if len(data) < _REACHES[0] else self._encode_long)(data)

    def _encode(self, data: bytes) -> tuple[int, ...]:
        """The ids of bytes, of which the first and the last may lie inside a character."""
        text = data.decode("utf-8", "surrogateescape")
        ids: list[int] = []
        for broken, group in groupby(self._parts(text), lambda part: bool(_BROKEN.search(part))):
            part = "".join(group)
            if broken:
                ids += self._merge(part.encode("utf-8", "surrogateescape"))
            else:
                ids += call_backend(self._backend.encode, part, self._name, add_special_tokens=False).ids
        return tuple(filter(self.token_bytes.__getitem__, ids))

    def _parts(self, text: str) -> list[str]:
        """Parts of a text whose broken bytes are U+DC80 to U+DCFF; nothing merges from one part to the next."""
        if not self._symbols or not _BROKEN.search(text):  # without symbols, such bytes are tokens of their own
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
