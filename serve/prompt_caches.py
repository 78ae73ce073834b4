"""Prompt caches that are kept between requests, so that the next turn of a conversation costs that turn only.

What the drafters know of a conversation, its history and the cache of a draft model, is kept with them.

A cache is reused only for the client that filled it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spectool.runtime.caches.leaves import flatten, lengths
from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.mlx_lm_compat import QuantizedKVCache
from spectool.tokenization.incremental.common_prefix import common_prefix

_HISTORY_BYTES = 900  # of memory that a token takes in what look-ups and translators know of a text


@dataclass(eq=False, slots=True)
class _Kept:
    client: str
    held: TextCache
    drafter: Drafter | DrafterSet | None
    nbytes: int


class PromptCaches:
    """The caches of one model, the latest used last."""

    def __init__(self, size: int, most_bytes: int, quantised_from: int = 0) -> None:
        """Keep at most ``size`` texts, and at most ``most_bytes`` of them and their marks together.

        A text has a quantised cache from a length on, and nothing shorter goes on from such a one.
        """
        self._size, self._most_bytes, self._quantised_from = size, most_bytes, quantised_from
        self._kept: list[_Kept] = []

    def take(self, client: str, prompt: Sequence[int], model: Any) -> tuple[TextCache, Drafter | DrafterSet | None]:
        """A cache to continue with ``prompt``, which holds all but one of its tokens at most, and its drafter."""
        same = [(common_prefix(kept.held.tokens, prompt[:-1]), kept) for kept in self._kept if kept.client == client]
        best, source = TextCache(model), None
        for length, kept in sorted(same, key=lambda pair: -pair[0]):
            if length <= len(best.tokens):
                break
            if length == len(kept.held.tokens):  # the text goes on, so nobody else needs it as it was
                self._kept.remove(kept)
                return kept.held, kept.drafter
            leaves = flatten(kept.held.content()[0])
            if length < self._quantised_from and any(isinstance(leaf, QuantizedKVCache) for leaf in leaves):
                continue
            copied = kept.held.beginning(length)
            if len(copied.tokens) > len(best.tokens):
                best, source = copied, kept
        if source is None:
            return best, None
        self._kept.remove(source)
        self._kept.append(source)
        if 2 * common_prefix(source.held.tokens, prompt) < len(source.held.tokens):
            return best, None  # another conversation, with the same beginning
        drafter, source.drafter = source.drafter, None  # where a conversation goes another way, it follows
        return best, drafter

    def keep(self, client: str, held: TextCache, drafter: Drafter | DrafterSet | None) -> None:
        """Keep a cache; one that does not hold the tokens of its text is dropped."""
        cache, tokens = held.content()
        if not tokens:
            return
        if not lengths(cache) <= {len(tokens)}:
            logging.warning("a prompt cache is dropped, because it does not hold the tokens of its text")
            return
        texts = [(each, each.held.tokens) for each in self._kept]
        self._kept = [each for each, text in texts if each.client != client or text != tokens[: len(text)]]
        nbytes = held.nbytes
        if drafter is not None:
            nbytes += _HISTORY_BYTES * len(tokens) + (0 if drafter.cache is None else drafter.cache.nbytes)
        self._kept.append(_Kept(client, held, drafter, nbytes))
        while len(self._kept) > self._size or sum(each.nbytes for each in self._kept) > self._most_bytes:
            del self._kept[0]
