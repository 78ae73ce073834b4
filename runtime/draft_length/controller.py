"""How long drafts may be, and whether there are any: what passes cost, and what drafting has lost.

Every cycle measures the time of the drafter and of the target's pass. A drafter chooses the length of each proposal by
these costs (`HybridDrafter`). It is asked for the longest proposal that does not go too far beyond what was measured,
and three rules bound what this can cost:

- *Plain passes are measured now and then*, since everything is compared with them: the more rarely, the more drafting
  seems to gain.
- *Exploration has a budget.* A size of passes that was never measured, or not lately, is taken to be as cheap as the
  next smaller known one, or cheaper than expected by what the budget has left. What it costs more is taken off.
- *Losses are bounded.* The time that drafting really lost against plain decoding is summed up. Beyond `ALLOWANCE` plain
  passes and `MAX_LOSS` of the time since, there is no drafting, no matter what is promised.

What the caller does with each token belongs to the time of a cycle. A plain pass begins while the caller works, so it
takes the longer of the two.

Nothing here reads a clock or runs a model: `CycleTimer` measures.
"""

from collections import deque
from collections.abc import Mapping
from statistics import median_low
from typing import NamedTuple

from spectool import RuntimeUnsupported
from spectool.runtime.draft_length.record import LossAccount
from spectool.runtime.draft_length.timings import OUTLIER, RECENT_SAMPLES, DraftTimes, PassTimes
from spectool.runtime.settings import LONGEST_DRAFT, MAX_DRAFT_TOKENS

MAX_PREDICTED_TOKENS = LONGEST_DRAFT  # of a text that the answer is expected to repeat
EXPLORATION_SHARE = 0.01  # share of the time of plain decoding that comes back to the budget of exploration
EXPLORATION_BUDGET = 2.0  # plain passes that exploration may cost at once, and at the beginning
FEW_PLAIN = 8  # plain passes, below which one more may cost the share of exploration
PLAIN_SHARE = 0.002  # share of the tokens that measuring plain passes may cost afterwards while all cycles have drafts
PLAIN_COST = 0.05  # plain passes that such a pass is taken to cost at least
UPDATED_CYCLES = 4  # cycles for which the curve holds, unless a new size is measured: drawing it takes some time
BUSY_SHARE = 0.8  # of the processor time that a pass gets on an idle machine, below which its time is not learnt from
ENOUGH_VERIFIED = 16  # draft tokens verified before `Controller.state` reports anything
_DECAY = 0.98  # weight of a cycle with drafts in what is reported, when another has followed


class ControllerState(NamedTuple):
    """What a controller has measured."""

    draft_length: int  # draft tokens of a cycle in which the drafter was asked, on average, as the next two
    speedup: float | None  # tokens per second of these over plain decoding; None if plain passes were not timed
    acceptance: float  # accepted draft tokens / draft tokens
    pass_ms: dict[int, float]  # milliseconds of a target pass by the number of tokens in it
    draft_ms: float  # milliseconds that the drafter takes in each cycle
    draft_token_ms: float  # milliseconds that it takes for each token in addition


class Controller:
    """Bounds the draft length of each cycle, in one generation after another with the same models on one machine.

    Generations that run at the same time need one controller each.

    Attributes:
        longest: The longest draft length that may be chosen.
        verified: Draft tokens verified so far.
        passes: Seconds of target passes.
        pass_seconds: What a pass is taken to cost, by rows.
        draft_times: Seconds of the drafter.
        processor_share: Processor seconds per second of a pass on an idle machine; None if not known.
    """

    def __init__(self, most: int = MAX_PREDICTED_TOKENS) -> None:
        """Allow lengths of up to ``most`` tokens.

        Raises:
            RuntimeUnsupported: ``most`` is not a whole number from 1 to `MAX_PREDICTED_TOKENS`.
        """
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MAX_PREDICTED_TOKENS:
            raise RuntimeUnsupported(f"most: expected a whole number from 1 to {MAX_PREDICTED_TOKENS}, got {most!r}")
        self.verified = 0
        self.processor_share: float | None = None
        self.passes, self.draft_times = PassTimes(MAX_PREDICTED_TOKENS + 1), DraftTimes()
        self.longest = most
        self._losses = LossAccount()
        self._caller_times: deque[float] = deque(maxlen=RECENT_SAMPLES)  # seconds of the caller for a token, by cycle
        self._first = True  # whether the next cycle is the first one of a generation
        self._missed = 0  # tokens that the drafter has yet to read
        self._committed = 1  # tokens of the latest cycle
        self._exploration_budget = EXPLORATION_BUDGET  # plain passes that exploration may still cost
        self.pass_seconds = self.passes.curve
        self._plain_budget = 0.0  # plain passes that measuring one may cost
        self._reach = 0  # the longest length that does not go too far beyond what was measured
        self._cycles_to_update = 0  # cycles until the curve is drawn again
        self._recent = [0.0] * 5  # cycles with drafts, their draft tokens, the accepted ones, all tokens, and seconds

    def __repr__(self) -> str:
        """The usual length of drafts, and how many tokens that rests on."""
        cycles, proposed, *_ = self._recent
        return (
            f"<Controller: draft length {proposed / max(1.0, cycles):.0f} after {self.verified} draft tokens verified>"
        )

    def start_from(self, curve: Mapping[int, float], processor_share: float | None) -> None:
        """Start from seconds of a pass by rows, and the processor share of a pass, that were measured before."""
        self.passes.carry(curve)
        self.processor_share = processor_share

    def keep_exact(self, longest: int) -> None:
        """Choose no more than ``longest`` draft tokens, because the bits of longer passes are known to differ."""
        self.longest = min(self.longest, longest)

    def begin(self, prompt: int = 0) -> None:
        """Begin a generation after ``prompt`` tokens; what earlier ones learnt and lost still counts."""
        self.passes.begin()
        self.draft_times.begin()
        self._caller_times.clear()
        self._missed, self._cycles_to_update, self._first = prompt, 0, True

    def choose(self, most: int = MAX_DRAFT_TOKENS) -> int:
        """Number of tokens, up to ``most``, that a drafter may propose; 0 leaves it alone."""
        passes = self.passes
        if not passes.plain_known or not self.longest or self._losses.left <= 0:
            return 0
        if self._cycles_to_update <= 0:
            passes.update()
            self.draft_times.update()
            self._reach = self._longest_affordable()
            self.pass_seconds = passes.at_least(max(0.0, self._exploration_budget))
            self._cycles_to_update = UPDATED_CYCLES if passes.compared else 1
        if self._plain_budget >= max(PLAIN_COST, self._speedup - 1.0):
            self._plain_budget = 0.0
            return 0
        length = min(self._reach, most)
        # What earlier generations measured holds for this one once a pass is compared with it.
        return length if passes.compared else next((k for k in range(length, 0, -1) if passes.known(k + 1)), 0)

    def learn(
        self,
        *,
        committed: int,
        asked: bool = False,
        proposed: int = 0,
        draft_seconds: float | None = None,
        pass_seconds: float | None = None,
        processor_seconds: float | None = None,
        caller_seconds: float | None = None,
        refed: int = 0,
        ahead: bool = False,
    ) -> None:
        """Record a cycle.

        Args:
            committed: Tokens committed.
            asked: Whether the drafter or the prediction was asked.
            proposed: Draft tokens that were verified.
            draft_seconds: As in `CycleTimer`; None where the drafter was not asked.
            pass_seconds: The same; None where it was not measured, or says nothing about such passes.
            processor_seconds: The same. Where other programs took the processor, the pass says nothing either.
            caller_seconds: The same.
            refed: Tokens that the pass fed once more because drafts before them were rejected. They belong to the price
                of drafting, so a pass with them never counts as a plain one.
            ahead: Whether the pass, one without drafts, had begun before the token of the one before it was read.
        """
        if caller_seconds is not None:
            self._caller_times.append(caller_seconds / self._committed)
        self._committed = committed
        first, self._first = self._first, False
        self.verified += proposed
        self._cycles_to_update -= 1
        if pass_seconds and self._is_busy(pass_seconds, processor_seconds):
            pass_seconds = None
        if pass_seconds is not None and (proposed or not refed):
            if proposed and not self.passes.known(proposed + 1) and self.passes.plain_known:
                surprise = (pass_seconds - self.pass_seconds[proposed + 1]) / self.passes.curve[1]
                self._exploration_budget -= min(max(surprise, 0.0), EXPLORATION_BUDGET)
                self._cycles_to_update = 0
            self.passes.add(0 if ahead else proposed + 1, pass_seconds)
        self._exploration_budget = min(EXPLORATION_BUDGET, self._exploration_budget + EXPLORATION_SHARE)
        spent = 0.0
        if draft_seconds is None:
            self._missed += committed
        else:
            self.draft_times.add(proposed, self._missed, draft_seconds)
            self._missed, spent = 0, min(draft_seconds, OUTLIER * self.draft_times(proposed))
        if not (asked or refed):
            self._losses.rest()
            return
        # Not this pass's own seconds: the first one of a size compiles, and later ones are noisier than plain ones.
        spent += self.passes.typical(proposed + 1) + self.caller_seconds * committed
        if plain := self._plain_seconds:
            won = committed - spent / plain
            # What the caller takes is not known in the first cycle, so nothing is won there.
            self._losses.settle(min(won, 0.0) if first else won, committed)
        new = (1, proposed, min(proposed, committed - 1), committed, spent)
        share = PLAIN_SHARE if self.passes.plain_count >= FEW_PLAIN else EXPLORATION_SHARE
        self._plain_budget = self._plain_budget + share * committed if proposed else 0.0
        self._recent = [_DECAY * before + each for before, each in zip(self._recent, new, strict=True)]

    def _is_busy(self, pass_seconds: float, processor_seconds: float | None) -> bool:
        """Return whether other programs took the processor during a pass, as far as can be told."""
        if processor_seconds is None or self.processor_share is None:
            return False
        return processor_seconds < BUSY_SHARE * self.processor_share * pass_seconds

    def state(self) -> ControllerState | None:
        """What was learnt; None until plain passes are timed and `ENOUGH_VERIFIED` draft tokens are verified."""
        measured = {max(size, 1): time for size, time in self.passes.measured().items()}
        if 1 not in measured or self.verified < ENOUGH_VERIFIED:
            return None
        cycles, proposed, accepted, *_ = self._recent
        return ControllerState(
            draft_length=round(proposed / cycles) if cycles else 0,
            speedup=self._speedup or None,
            acceptance=accepted / proposed if proposed else 0.0,
            pass_ms={size: time * 1e3 for size, time in measured.items()},
            draft_ms=self.draft_times.fixed * 1e3,
            draft_token_ms=self.draft_times.per_token * 1e3,
        )

    def _longest_affordable(self) -> int:
        """The longest length that does not go too far beyond what was measured, nor costs more than may be lost."""
        curve, rows = self.passes.curve, max(1, *self.passes.measured())
        length = min(2 * rows - 1, self.longest)
        while length >= rows and curve[length + 1] > curve[1] * (1.0 + self._losses.left):
            length -= 1
        return length

    @property
    def caller_seconds(self) -> float:
        """Seconds that the caller takes for a token, as far as this generation has shown."""
        return median_low(self._caller_times) if self._caller_times else 0.0

    @property
    def _speedup(self) -> float:
        """Tokens per second of the recent cycles with drafts over plain decoding; 0 before there are any."""
        *_, tokens, seconds = self._recent
        return tokens * self._plain_seconds / seconds if seconds else 0.0

    @property
    def _plain_seconds(self) -> float:
        """Seconds of a cycle without drafts; 0 before any is known."""
        plain = self.passes.curve[0]
        return max(plain, self.caller_seconds) if plain else 0.0
