"""A prompt cache and the tokens in it, following a text that may change anywhere."""

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.leaves import flatten
from spectool.runtime.caches.own import prefill
from spectool.runtime.caches.rewinding import Checkpoints
from spectool.runtime.groups.rank_0 import forward, make_prompt_cache
from spectool.runtime.mlx_lm_compat import KVCache
from spectool.tokenization.incremental.common_prefix import common_prefix

AT_ONCE = 32  # tokens that are fed in a pass for logits; what is before them is read first
KEPT_MARKS = 4  # places before the frontier where a text can be taken up again whose cache cannot be trimmed


class TextCache:
    """The cache of a model, of any kind, for one text after the other.

    ``tokens`` are what it is known to hold. The owner adds what it has fed, since the ids of a chain of drafts are
    known only once it is evaluated.
    """

    tokens: list[int]

    def __init__(self, model: Any) -> None:
        """Begin with an empty cache of ``model``, an mlx-lm model."""
        self.model = model
        self.passes = 0  # with logits so far, each for a draft token
        self.sure = 0  # leading tokens known to be those of the text; the owner lowers it where the text changes
        self.shared: Any = None  # the `SharedTexts` of which this one is a row
        self.forget()

    def unfed(self, text: Sequence[int], last: int = 1, at_once: int = AT_ONCE) -> list[int]:
        """Take the cache back to what it has in common with ``text`` without its ``last`` tokens; return what is left.

        If that is more than ``at_once`` tokens, all but the last ones are fed now. Only tokens after the ``sure`` ones
        are compared.
        """
        end = max(0, len(text) - last)
        sure = min(self.sure, len(self.tokens), end)
        kept = sure + common_prefix(self.tokens[sure:], text[sure:end])
        self.rewind(kept)
        self.sure = end  # as far as there are tokens
        if len(text) - len(self.tokens) > at_once:
            self.leave()
            self.prefill(text[len(self.tokens) : -last])
        return [*text[len(self.tokens) :]]

    def rewind(self, kept: int) -> list[int]:
        """Take the cache back to its first ``kept`` tokens, or to fewer; return those that are now missing."""
        reached = self._checkpoints.rewind(kept) if self.shared is None else self.shared.rewind(self, kept)
        if reached is None:
            missing = self.tokens[:kept]
            self.forget()
            return missing
        missing = self.tokens[reached:kept]
        del self.tokens[reached:]
        return missing

    def feed(self, tokens: mx.array) -> mx.array:
        """The logits [tokens, vocabulary] of one pass over ``tokens`` [tokens]; lazy."""
        assert self.shared is None
        self._checkpoints.mark(tokens.size, windows_too=True)
        self.passes += 1
        return forward(self.model, tokens[None], self._cache)[0]

    def prefill(self, tokens: Sequence[int]) -> None:
        """Feed ``tokens`` without logits, and add them."""
        self._checkpoints.mark(len(tokens), windows_too=True)
        prefill(self.model, self._cache, tokens)
        self.tokens += tokens

    def content(self) -> tuple[list[Any], list[int]]:
        """The cache, one entry for each layer, and the tokens that it holds."""
        self.leave()
        self.rewind(len(self.tokens))
        return self._cache, list(self.tokens)

    def follow(self, tokens: Sequence[int], *, mark: bool = False) -> None:
        """Note that the cache holds ``tokens`` now, which a generation has fed; ``mark`` the place to return to it."""
        self.tokens = list(tokens)
        self._checkpoints.hold(len(self.tokens), for_good=mark)

    def forget(self) -> None:
        """Continue with an empty cache."""
        self.replace(make_prompt_cache(self.model), ())

    def leave(self) -> None:
        """Have a cache of its own again, if it shares one, with what its row held, or less (`SharedTexts.leave`)."""
        if self.shared is not None:
            self.shared.leave(self)

    def replace(self, cache: list[Any], tokens: Sequence[int]) -> None:
        """Continue with another ``cache`` of the same model, which holds ``tokens``."""
        self.leave()
        self._cache = cache
        self.tokens = list(tokens)
        self._checkpoints = Checkpoints(cache, len(tokens), keep=KEPT_MARKS)

    def copy(self) -> "TextCache":
        """Another one that holds the same, and goes back to the same places."""
        copied = copy.copy(self)
        copied.tokens, copied._cache = list(self.tokens), copy.deepcopy(self._cache)
        copied._checkpoints = Checkpoints(copied._cache, len(copied.tokens), KEPT_MARKS, self._checkpoints)
        return copied

    def beginning(self, length: int) -> "TextCache":
        """Another one that holds its first ``length`` tokens, or fewer, and takes no memory for more."""
        copied = self.copy()
        copied.rewind(length)
        for leaf in flatten(copied._cache):
            if type(leaf) is KVCache and leaf.keys is not None:
                slots = -(-leaf.offset // leaf.step) * leaf.step
                leaf.keys, leaf.values = leaf.keys[..., :slots, :], leaf.values[..., :slots, :]
        return copied

    @property
    def nbytes(self) -> int:
        """Bytes of a cache of its own, and of its marks."""
        return self._checkpoints.nbytes + sum(int(entry.nbytes) for entry in self._cache)
