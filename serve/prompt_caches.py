"""Prompt caches that are kept between requests, so that the next turn of a conversation costs that turn only.

Each belongs to the client whose request filled it, and no other client's request begins from it.
"""

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.rewinding import Checkpoints
from spectool.runtime.groups.rank_0 import make_prompt_cache
from spectool.tokenization.incremental.common_prefix import common_prefix


@dataclass(eq=False, slots=True)
class _Kept:
    client: str
    tokens: list[int]  # that the cache holds
    cache: list[Any]
    nbytes: int


class PromptCaches:
    """The caches of one model, the latest used last."""

    def __init__(self, size: int, most_bytes: int) -> None:
        """Keep at most ``size`` texts, and at most ``most_bytes`` of them together."""
        self._size, self._most_bytes = size, most_bytes
        self._kept: list[_Kept] = []

    def take(self, client: str, prompt: Sequence[int], model: Any) -> tuple[list[Any], int]:
        """A cache to continue with ``prompt``, and how many of its tokens the cache holds: all but one at most."""
        found = [(common_prefix(kept.tokens, prompt[:-1]), kept) for kept in self._kept if kept.client == client]
        for length, kept in sorted(found, key=lambda pair: -pair[0]):
            if not length:
                break
            self._kept.remove(kept)
            if length == len(kept.tokens):  # the text goes on, so nobody else needs it as it was
                return kept.cache, length
            self._kept.append(kept)
            cache = copy.deepcopy(kept.cache)
            if reached := Checkpoints(cache, len(kept.tokens)).rewind(length):
                return cache, reached
        return make_prompt_cache(model), 0

    def keep(self, client: str, tokens: list[int], cache: list[Any]) -> None:
        """Keep a cache that holds ``tokens``; one that holds something else is dropped."""
        if not tokens:
            return
        if not lengths(cache) <= {len(tokens)}:
            logging.warning("a prompt cache is dropped, because it does not hold the tokens of its text")
            return
        begun = [each for each in self._kept if each.client == client and each.tokens == tokens[: len(each.tokens)]]
        self._kept = [each for each in self._kept if each not in begun]
        self._kept.append(_Kept(client, tokens, cache, sum(entry.nbytes for entry in cache)))
        while len(self._kept) > self._size or sum(each.nbytes for each in self._kept) > self._most_bytes:
            del self._kept[0]
