"""Incremental encoding of a growing text through text: Unigram, and BPE that cannot be followed on ids.

The end of the text is encoded again, from some tokens back. Where that may begin is not assumed, because tokens may
cross spaces, scripts and words: the tokenizer has to confirm a cut.

    text        ... w w w w w w w | data
    ids         ... i i i i i i i              of the text so far
    cut            [x x i i i i i]             the end of it alone: has come to the same ids after x x
    with data      [x x i i i i j j j]         these ids stay after x x, so that nothing before them changes

Where it does not hold, the cut is made further back, twice as far each time.
"""

import codecs
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from spectool.tokenization.backend import call_backend, sections, with_added_tokens
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.tokenizer import Tokenizer

Change = tuple[int, Sequence[int]]  # ids[:start] stay, and these follow
REACH = 640  # bytes of a text that are read at most: those of 160 characters of any kind
_BACK = 12  # tokens to go back at first
_SURE = 6  # ids on which two encodings must agree: where tokens cross spaces, words may not begin alike
_LONG = 3  # times as many where no word begins among them
_REMEMBERED = 32  # encodings: what was encoded with new text is asked for again without it


class TailReencoder:
    """Encodes the end of a growing text. Holds caches only; texts belong to the caller.

    `join` appends to a text, and `encode_after` continues ids that stay.

    Attributes:
        unspaced: Encodes texts after special tokens, before which some tokenizers put no space.
    """

    def __init__(self, tokenizer: Tokenizer, spaced: bool = True) -> None:
        """Prepare for ``tokenizer``; special tokens are not recognized in text.

        Unless ``spaced``, nothing is prepended to texts.
        """
        self._token_bytes, self._backend, self._name = tokenizer.token_bytes, tokenizer.plain_backend, tokenizer.name
        if not spaced:
            self._backend = with_added_tokens(self._backend, sections(self._backend)["added_tokens"])
            self._backend.encode_special_tokens, self._backend.pre_tokenizer = True, tokenizer.text_splits
        only_first = tokenizer.leading_space and not tokenizer.space_after_specials
        self.unspaced = TailReencoder(tokenizer, spaced=False) if spaced and only_first else self
        self._encoded = lru_cache(_REMEMBERED)(self.encode)

    def join(self, ids: Sequence[int], so_far: bytes, data: bytes, begin: int = 0) -> Change:
        """Append ``data`` to a text.

        Args:
            ids: The text's ids so far.
            so_far: Its bytes, or the `recent` ones.
            data: What follows; both are whole characters.
            begin: ``ids[:begin]`` belong to an earlier text.

        Returns:
            ``start, tail`` such that ``ids[:start] + tail`` are the ids of the whole text.
        """
        # With much new text, a long window costs least: nothing is encoded twice.
        short = len(data) < REACH
        for window in self._windows(ids, so_far, begin) if short else (so_far,):
            old, new = self._encoded(window), self._encoded(window + data)
            known = common_prefix(ids[max(begin, len(ids) - len(old)) :][::-1], old[::-1])
            kept = common_prefix(old, new)
            # An unknown token may stand for any text: that it is there on both sides proves nothing.
            agreed = list(filter(None, map(self._token_bytes.__getitem__, old[len(old) - known : kept])))
            words = any(raw.startswith(b" ") for raw in agreed)
            if len(agreed) >= (_SURE if words else _LONG * _SURE):
                break
        return max(begin, len(ids) - len(old) + kept), new[kept:]

    def encode_after(self, so_far: bytes, data: bytes) -> list[int]:
        """The ids of ``data`` after the end of a text; none where one id stands for parts of both."""
        new, place = self._encoded(so_far + data), 0
        token_bytes = list(map(self._token_bytes.__getitem__, new))
        spelled, ends = b"".join(token_bytes), list(accumulate(map(len, token_bytes), initial=0))
        if so_far and spelled.endswith(so_far + data):  # behind an artificial space, if any
            frontier = len(spelled) - len(data)
            place = ends.index(frontier) if frontier in ends else len(new)
        elif so_far:  # text that does not come back as it was
            old = self._encoded(so_far)
            place = len(old) if new[: len(old)] == old else len(new)
        return new[place:]

    def _windows(self, ids: Sequence[int], so_far: bytes, begin: int) -> Iterator[bytes]:
        """Yield ends of a text, each longer than the one before; the last one is all that is known of it.

        They begin at every sixth id or more, so that the next ones of a growing text begin there too. Every other one
        begins an id earlier, because a group of digits may be two ids.
        """
        back, odd = _BACK, False
        while back < len(ids) - begin:
            step = back // 2
            first = max(begin, (len(ids) - back) // step * step - odd)
            size = sum(map(len, map(self._token_bytes.__getitem__, ids[first:])))
            if size >= len(so_far):
                break
            yield so_far[-size:]
            back, odd = 2 * back, not odd
        yield so_far

    def encode(self, data: bytes) -> list[int]:
        """Encode bytes as a text; bytes that are not UTF-8 are left out."""
        text = data.decode("utf-8", "ignore")
        ids: list[int] = call_backend(self._backend.encode, text, self._name, add_special_tokens=False).ids
        return ids


def recent(data: bytes) -> bytes:
    """The end of a text, as far as `TailReencoder.join` reads it; all of a short text."""
    return data if len(data) <= 2 * REACH else data[-REACH:]


def whole_characters(data: bytes) -> int:
    """Number of bytes before an unfinished character at the end."""
    return codecs.utf_8_decode(data, "ignore")[1]
