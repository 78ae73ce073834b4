"""Drafts replayed against known text, cycle by cycle and timed: no pass of the target is needed for that."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spectool.measure.advise.expect import Guesses
from spectool.measure.advise.figures import measured
from spectool.runtime.decoding.drafter import Drafter, accepted_length
from spectool.runtime.decoding.statistics import DraftStatistics


@dataclass(frozen=True, slots=True)
class Replay:
    """What a drafter did.

    Attributes:
        statistics: Passes, tokens, proposals.
        seconds: Time of the drafter, in proposing and in taking note of what was committed.
    """

    statistics: DraftStatistics
    seconds: float

    def guesses(self, on: str) -> Guesses:
        """Return the figures of a cycle; ``on`` names the text."""
        counted = self.statistics
        return Guesses(
            measured(counted.tokens_per_pass, on),
            measured(counted.acceptance_rate, on),
            counted.proposed / counted.drafted_passes if counted.drafted_passes else 0.0,
            counted.coverage,
        )


def replay(
    texts: Iterable[tuple[Sequence[int], Sequence[int]]],
    drafter: Drafter,
    k: int,
    statistics: DraftStatistics | None = None,
) -> Replay:
    """Replay texts as `runtime.decoding.generation` would generate them, each behind its prompt.

    As there, the last token is never drafted: the target adds it anyway. A drafter that watches the clock, as the
    hybrid does, would not do here what it does there.

    Args:
        texts: Token ids of prompt and text, of each.
        drafter: Whose proposals are compared with the text. What it does with the prompt is not timed.
        k: Draft tokens in a cycle at most.
        statistics: To add to; new ones if not given.
    """
    counted, seconds = statistics or DraftStatistics(), 0.0
    for prompt, text in texts:
        drafter.start(prompt)
        position = 0
        while position < len(text):
            limit = min(k, len(text) - position - 1)
            began = time.perf_counter()
            proposal = drafter.propose(limit) if limit else None
            drafts = proposal.tokens[:limit] if proposal else ()
            accepted = accepted_length(drafts, text[position:])
            committed = text[position : position + accepted + 1]
            drafter.commit(committed)
            seconds += time.perf_counter() - began
            counted.record(proposal.source if proposal else "", len(drafts), accepted, len(committed))
            position += len(committed)
    return Replay(counted, seconds)
