"""The drafters of one text. They cannot end it: one that fails is switched off with a warning, and the text goes on."""

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import takewhile
from math import isnan
from typing import TYPE_CHECKING, TypeVar

from spectool import RuntimeUnsupported
from spectool.runtime.drafters.drafter import NOTHING, Drafter, Drafting, Proposal

if TYPE_CHECKING:
    from spectool.runtime.sampling.randomness import Randomness
    from spectool.runtime.sampling.verification import Draw

LATEST = 64  # tokens that a model reads of a text where all that it has missed would take too long
FIRST = 4  # tokens of the text that it reads before these, since models attend to them (Xiao et al. 2024, section 3)
_Result = TypeVar("_Result")


class DrafterSlot:
    """A drafter that follows one text: a look-up at once, a model when it is asked.

    Attributes:
        drafter: The drafter; None once it has failed.
        cache: That of its model, also then; None without one.
        missed: Tokens of the text that it has not been told yet.
        unread: About how many of them its model has to read; it may know a prompt from an earlier text.
        reads_all: Whether it reads all of them, or begins again with the first and the latest tokens of the text.
        proposal: Its proposal of this cycle; empty if it was not asked.
        randomness: The random state of the text, which is entered whenever the drafter acts.
    """

    def __init__(
        self,
        drafter: Drafter,
        failures: list[str] | None = None,
        draw: "Draw | None" = None,
        vocabulary: int = sys.maxsize,
        randomness: "Randomness | None" = None,
    ) -> None:
        """Guard a drafter, whose name and error are added to ``failures`` when it fails.

        It drafts by ``draw``, if it can, of the ``vocabulary`` token ids of the target, and draws from the
        ``randomness`` of the text, or with None from MLX's own.
        """
        self.drafter: Drafter | None = drafter
        self.cache = drafter.cache
        self.name, self.is_model, self.longest = drafter.name, drafter.costs_a_pass, drafter.longest
        self._failures, self._draw, self._vocabulary = failures, draw, vocabulary
        self.randomness: Randomness | nullcontext[None] = nullcontext()
        if randomness is not None and drafter.draws:
            self.randomness = randomness
        self._begin(())

    @property
    def passes(self) -> int:
        """Passes that its model has made so far; 0 without one."""
        return 0 if self.drafter is None else self.drafter.passes

    def start(self, prompt: Sequence[int], *, afresh: bool = False) -> None:
        """Begin a text; ``afresh``, as if its model knew nothing of the prompt, which it may from an earlier text."""
        self._begin(prompt)
        if not self.is_model:
            self._attempt(lambda drafter: None)
        elif not afresh:
            self.unread -= self._attempt(lambda drafter: drafter.known(prompt), caught_up=False) or 0

    def follow(self, tokens: Sequence[int]) -> None:
        """Add what was committed; a cycle ends."""
        self.missed += tokens
        self.unread += len(tokens)
        self.proposal = NOTHING
        if not self.is_model:
            self._attempt(lambda drafter: None)

    def may_propose(self) -> bool:
        """Whether it may have a proposal in the next cycle."""
        if self.is_model:
            return self.drafter is not None
        return bool(self._attempt(lambda drafter: drafter.may_propose()))

    def propose(self, limit: int) -> Proposal:
        """Its proposal of at most ``limit`` tokens; empty from a drafter that fails."""
        self.proposal = self._attempt(lambda drafter: self._valid(drafter.propose(limit), limit)) or NOTHING
        return self.proposal

    def drafting(self, limit: int) -> Drafting[Proposal]:
        """`propose`, step by step, each to be taken within its ``randomness``."""
        if self.drafter is None:
            return NOTHING
        try:
            self._catch_up(self.drafter)
            made = yield from self.drafter.drafting(limit)
            self.proposal = self._valid(made, limit)
        except Exception as error:
            self._fail(error)
        return self.proposal

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """At most ``limit`` tokens after ``tokens`` of another drafter; empty from a drafter that fails."""
        return self._attempt(lambda drafter: self._valid(drafter.extend(tokens, limit), limit)) or NOTHING

    def _begin(self, prompt: Sequence[int]) -> None:
        self.missed, self.unread, self._begun, self.reads_all = list(prompt), len(prompt), False, True
        self._first = tuple(prompt[:FIRST])
        self.proposal = NOTHING

    def _valid(self, proposal: Proposal, limit: int) -> Proposal:
        """A proposal of at most ``limit`` tokens, as far as the target has them."""
        if len(proposal.tokens) > limit:
            proposal = proposal.cut(limit)
        drawn = proposal.distribution
        if drawn is not None and (drawn.ndim != 2 or drawn.shape[1] != self._vocabulary):
            raise RuntimeUnsupported(
                f"distribution of the drafts: expected shape [drafts, {self._vocabulary}], got {drawn.shape}"
            )
        if any(map(isnan, proposal.probabilities)):
            self._fail(RuntimeUnsupported("the logits of its model are no numbers"))
            # What was drawn before them stays: dropping it after seeing it would bias the output.
            proposal = proposal.cut(next(at for at, each in enumerate(proposal.probabilities) if isnan(each)))
            drawn = proposal.distribution if proposal.tokens else None
        tokens = tuple(map(int, proposal.tokens))
        if tokens and not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            tokens = tuple(takewhile(lambda token: 0 <= token < self._vocabulary, tokens))
        # A drawn token that is cut leaves its row: it was drawn, and cannot be right.
        return Proposal(tokens, str(proposal.source), tuple(proposal.probabilities[: len(tokens)]), drawn)

    def _attempt(self, act: Callable[[Drafter], _Result], *, caught_up: bool = True) -> _Result | None:
        """What ``act`` returns, with ``caught_up`` once the drafter has read the text; None where it fails or has."""
        if self.drafter is None:
            return None
        with self.randomness:
            try:
                if caught_up:
                    self._catch_up(self.drafter)
                return act(self.drafter)
            except Exception as error:
                self._fail(error)
                return None

    def _catch_up(self, drafter: Drafter) -> None:
        """Let it read what it has missed."""
        if self._begun and not self.missed:
            return
        missed, self.missed, self.unread = self.missed, [], 0
        if not self.reads_all and len(missed) > FIRST + LATEST:
            self._begun, missed = False, [*self._first, *missed[-LATEST:]]
        if self._begun:
            drafter.commit(tuple(missed))
            return
        self._begun = True
        drafter.draw_with(self._draw)
        drafter.start(missed)

    def _fail(self, error: Exception) -> None:
        """Switch the drafter off: it is not asked again in this text."""
        self.drafter, self.proposal = None, NOTHING
        if not isinstance(self.randomness, nullcontext):
            self.randomness.renew()  # half-done draws may have broken it
        reason = f"{type(error).__name__}: {error}"
        logging.getLogger(__name__).warning(
            f"drafter {self.name!r} is switched off for this generation: {reason}. "
            "Decoding goes on without it; the output does not change."
        )
        if self._failures is not None:
            self._failures.append(f"{self.name}: {reason}")


class TextDrafters:
    """All drafters of one text, its ``slots``, and how far it has come.

    Attributes:
        look_ups: Those that cost no passes of a model.
        model: The one that does; None where there is none.
        context: Tokens of the text.
        cycles: Cycles so far in which they could have been asked.
    """

    def __init__(self, slots: Sequence[DrafterSlot]) -> None:
        self.slots = slots
        self.look_ups = [slot for slot in slots if not slot.is_model]
        self.model = next((slot for slot in slots if slot.is_model), None)
        self.context = self.cycles = 0

    def start(self, prompt: Sequence[int], *, afresh: bool = False) -> None:
        """Begin a text; ``afresh``, so that what is drafted does not depend on earlier ones."""
        self.context, self.cycles = len(prompt), 0
        for slot in self.slots:
            slot.start(prompt, afresh=afresh)

    def follow(self, tokens: Sequence[int]) -> None:
        """Add what was committed."""
        self.context += len(tokens)
        for slot in self.slots:
            slot.follow(tokens)

    def close(self) -> None:
        """End the text: its model has a cache of its own again."""
        if self.model is not None and self.model.cache is not None:
            self.model.cache.leave()

    def may_propose(self) -> bool:
        """Whether one of them may have a proposal in the next cycle."""
        return any(slot.may_propose() for slot in self.slots)
