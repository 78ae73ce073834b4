"""What stands between a drafter and the target: limits, valid ids, and a way out when it fails."""

import warnings
from collections.abc import Sequence
from typing import Any

from spectool.runtime import caches
from spectool.runtime.drafter import Drafter, Proposal, warn_switched_off

NOTHING = Proposal((), "")


class Proposer:
    """A drafter on a leash: limits, valid ids, and plain decoding once it has failed.

    Attributes:
        vocabulary: Logits of the target for one position; None until its first pass. No draft
            is verified before it is known, since an id outside would read foreign memory.
    """

    def __init__(self, drafter: Drafter | None, count: int, cache: list[Any], quantized_kv_start: int | None) -> None:
        """Ask ``drafter`` for ``count`` tokens a cycle, as far as ``cache`` can take them back."""
        self.vocabulary: int | None = None
        self._drafter = drafter
        self._count = count
        self._cache = cache
        self._quantized_kv_start = quantized_kv_start

    def start(self, prompt: Sequence[int]) -> None:
        """Tell the drafter the prompt (token ids)."""
        if self._drafter is not None:
            try:
                self._drafter.start(prompt)
            except Exception as error:
                self._switch_off(error)

    def propose(self, left: int | None) -> Proposal:
        """Return a proposal of at most ``left`` tokens (None: no limit) that can be verified safely."""
        limit = self._limit(left)
        if self._drafter is None or self.vocabulary is None or limit <= 0:
            return NOTHING
        try:
            proposal = self._drafter.propose(limit)
            tokens = []
            for token in list(proposal.tokens)[:limit]:
                if not 0 <= int(token) < self.vocabulary:
                    break
                tokens.append(int(token))
            return Proposal(tokens, proposal.source) if tokens else NOTHING
        except Exception as error:
            self._switch_off(error)
            return NOTHING

    def commit(self, tokens: tuple[int, ...]) -> None:
        """Tell the drafter what the target committed."""
        if self._drafter is not None:
            try:
                self._drafter.commit(tokens)
            except Exception as error:
                self._switch_off(error)

    def _limit(self, left: int | None) -> int:
        """Return how many draft tokens the next pass may verify."""
        limit = self._count if left is None else min(self._count, left)
        if self._drafter is None or limit <= 0:
            return 0
        room = caches.room(self._cache)
        if room <= 1:
            warnings.warn(
                "drafting ends here: a windowed cache is full and cannot take rejected tokens back. "
                "Decoding goes on plainly; the output does not change.",
                RuntimeWarning,
                stacklevel=2,
            )
            self._drafter = None
            return 0
        if self._quantized_kv_start is not None:
            # Plain decoding quantises the cache at this length, so no pass may straddle it.
            ahead = self._quantized_kv_start - max(filter(None, caches.offsets(self._cache)), default=0)
            if ahead > 0:
                limit = min(limit, ahead - 1)
        return min(limit, room - 1)

    def _switch_off(self, error: Exception) -> None:
        """Go on without the drafter."""
        if self._drafter is not None:
            warn_switched_off(self._drafter, error)
            self._drafter = None
