"""Prompt look-up by vLLM's rule, and the DictSpec paper's hybrid: baselines to compare `LookupDrafter` with.

The last tokens are looked for in the text so far, the longest run of them first. What followed their earliest
occurrence is proposed, as far as the text goes.

Source: vLLM 0.11, ``vllm/v1/spec_decode/ngram_proposer.py`` (5 tokens by default); Saxena 2023, prompt lookup decoding.
The hybrid asks it only where the dictionary is silent: DictSpec, section 3.3.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spectool.runtime.drafters.drafter import Drafter, Proposal

if TYPE_CHECKING:
    from spectool.runtime.sampling.verification import Draw

TOKENS = 5


class PromptLookupDrafter(Drafter):
    """Drafts what followed the earliest occurrence of the last tokens."""

    name = "prompt look-up"

    def __init__(self, shortest: int = TOKENS, longest: int = TOKENS) -> None:
        """Look for the last ``shortest`` to ``longest`` tokens (``prompt_lookup_min`` and ``_max`` of vLLM)."""
        self._lengths = range(longest, shortest - 1, -1)
        self.start(())

    def start(self, prompt: Sequence[int]) -> None:
        """Begin after ``prompt`` (token ids)."""
        self._tokens: list[int] = []
        self._followed: dict[tuple[int, ...], int] = {}  # n-gram -> place of the token after its first occurrence
        self.commit(prompt)

    def propose(self, limit: int) -> Proposal:
        """Propose at most ``limit`` tokens; some microseconds."""
        for length in self._lengths:
            place = self._followed.get(tuple(self._tokens[-length:]))
            if place is not None:
                return Proposal(tuple(self._tokens[place : place + limit]), self.name)
        return Proposal((), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Add committed tokens."""
        for token in tokens:
            place = len(self._tokens)
            for length in self._lengths:
                if length <= place:
                    self._followed.setdefault(tuple(self._tokens[place - length :]), place)
            self._tokens.append(int(token))


class FallbackDrafter(Drafter):
    """The guess of the first drafter that has one."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        """Ask ``drafters`` in turn."""
        self._drafters = tuple(drafters)
        self.name = ", else ".join(drafter.name for drafter in drafters)
        self.costs_a_pass = any(drafter.costs_a_pass for drafter in drafters)
        self.cache = next((drafter.cache for drafter in drafters if drafter.cache is not None), None)

    def draw_with(self, draw: "Draw | None") -> None:
        """Pass it on to those that can draw."""
        for drafter in self._drafters:
            drafter.draw_with(draw)

    def start(self, prompt: Sequence[int]) -> None:
        """Begin with all of them."""
        for drafter in self._drafters:
            drafter.start(prompt)

    def propose(self, limit: int) -> Proposal:
        """The first proposal that is not empty."""
        proposals = (drafter.propose(limit) for drafter in self._drafters)
        return next((proposal for proposal in proposals if proposal.tokens), Proposal((), self.name))

    def commit(self, tokens: Sequence[int]) -> None:
        """Commit the tokens to all of them."""
        for drafter in self._drafters:
            drafter.commit(tokens)
