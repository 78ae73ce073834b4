"""Drafts replayed against known text, and timed: no pass of the target is needed for that."""

import time
from collections.abc import Callable, Sequence
from statistics import median

from spectool.measure.advise.expect import Guesses, assumed, measured
from spectool.measure.emulate.replay import replay
from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.decoding.statistics import DraftStatistics

Text = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt, and of what stands behind it."""


class _Timed(Drafter):
    """A drafter on one text, timed, and not asked for the last token: the target adds it anyway."""

    def __init__(self, drafter: Drafter, tokens: int) -> None:
        self.name, self.seconds = drafter.name, 0.0
        self._inner, self._left = drafter, tokens

    def start(self, prompt: Sequence[int]) -> None:
        self._inner.start(prompt)

    def propose(self, limit: int) -> Proposal:
        began, limit = time.perf_counter(), min(limit, self._left - 1)
        proposal = self._inner.propose(limit).cut(limit) if limit else Proposal((), "")
        self.seconds += time.perf_counter() - began
        return proposal

    def commit(self, tokens: Sequence[int]) -> None:
        began = time.perf_counter()
        self._inner.commit(tokens)
        self.seconds += time.perf_counter() - began
        self._left -= len(tokens)


def replayed(
    texts: Sequence[Text], drafter: Drafter, k: int, on: str, plain_step: Callable[[Sequence[int]], float] | None = None
) -> Guesses:
    """Replay texts as `runtime.decoding.generation` would generate them, each behind its prompt.

    A drafter that watches the clock, as the hybrid does, would not do here what it does there.

    Args:
        texts: To replay.
        drafter: Whose proposals are compared with the text. What it does with a prompt is not timed.
        k: Draft tokens in a cycle at most.
        on: Names the text.
        plain_step: Times a step of plain decoding after a prompt, seconds; None where there is no target.
    """
    counted, costs = DraftStatistics(), []
    for prompt, text in texts:
        step = None if plain_step is None else plain_step(prompt)  # now, so that a busy machine slows both alike
        timed, before = _Timed(drafter, len(text)), counted.passes
        replay([text], timed, k, prompts=[prompt], statistics=counted)
        if step is not None:
            costs.append(timed.seconds / (counted.passes - before) / step)
    proposed = counted.proposed / counted.drafted_passes if counted.drafted_passes else 0.0
    tokens, acceptance = measured(counted.tokens_per_pass, on), measured(counted.acceptance_rate, on)
    drafting = assumed(0.0, "a look-up takes microseconds")
    if costs:
        drafting = measured(median(costs), "time of the drafter in a cycle")
    return Guesses(tokens, acceptance, proposed, drafting, counted.coverage)
