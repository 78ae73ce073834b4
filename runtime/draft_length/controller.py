"""How many tokens to draft: the length that promises the most tokens per second, 0 included.

Every cycle measures the time of the drafter and of the target's pass, and how much of the proposal was accepted. From
these follow the expected tokens and seconds of a cycle by draft length (`DraftRecord`).

What the caller does with each token belongs to the time of a cycle. A plain pass begins while the caller works, so it
takes the longer of the two. The k with the best ratio is used. Two rules bound what this can cost:

- *Exploration has a budget*, `EXPLORATION_SHARE` of the time. A length that was never measured, or not lately, is tried
  when it would be the best at the cost of the next shorter measured one. A drafter that does not pay is tried when a
  good one would pay. While drafting pays, a plain pass is made now and then.
- *Losses are bounded.* The time that drafting really lost against plain decoding is summed up. Beyond `ALLOWANCE` plain
  passes and `MAX_LOSS` of the time since, there is no drafting, no matter what the estimates say.

A drafter that chooses the length of each proposal itself is asked for the longest one that does not go too far beyond
what was measured. It chooses by `Controller.pass_seconds`, and takes part in exploration and in the bound on losses.

Nothing here reads a clock or runs a model: `CycleTimer` measures.
"""

from collections import deque
from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from statistics import median_low
from typing import NamedTuple

from spectool import RuntimeUnsupported
from spectool.runtime.draft_length.record import (
    FADING,
    MAX_DRAFT_TOKENS,
    MAX_LOSS,
    MEMORY,
    DraftRecord,
    LossAccount,
)
from spectool.runtime.draft_length.timings import OUTLIER, RECENT_SAMPLES, STALE, PassTimes

MAX_PREDICTED_TOKENS = 64  # the most draft tokens of a text that the answer is expected to repeat
EXPLORATION_SHARE = 0.01  # share of the time of plain decoding that exploration may take
EXPLORATION_BUDGET = 2.0  # plain passes that exploration may cost at once, and at the beginning
LEAST_SPEEDUP = 1.05  # times the best known speed that a length must promise to be tried
HOPED_ACCEPTANCE = 0.9  # acceptance of each token that a drafter is assumed to have reached when it is tried again
COST_FADING = 0.998  # weight of the expected cost of asking, for each token since the drafter was last asked
DECIDED_CYCLES = 4  # cycles for which a decision holds: deciding takes longer than a look-up in a dictionary
BUSY_SHARE = 0.8  # of the processor time that a pass gets on an idle machine, below which its time is not learnt from
ENOUGH_VERIFIED = 16  # draft tokens verified before `Controller.state` reports anything


class ControllerState(NamedTuple):
    """What a controller has measured and concluded."""

    draft_length: int  # the best one, 0 for plain decoding; the mean one of a drafter that chooses it
    speedup: float | None  # tokens per second at that length over plain decoding; None if such passes were not timed
    acceptance: float  # expected share of accepted draft tokens at that length, or at length 1 where it is 0
    pass_ms: dict[int, float]  # milliseconds of a target pass by the number of tokens in it
    draft_ms: float  # milliseconds that the drafter takes in each cycle
    draft_token_ms: float  # milliseconds that it takes for each token in addition


class Controller:
    """Chooses the draft length of each cycle, in one generation after another with the same models on one machine.

    Generations that run at the same time need one controller each.

    Attributes:
        chosen: The best draft length by the estimates.
        longest: The longest draft length that may be chosen.
        longest_exact: The longest one whose passes are to be used at all, of predictions as well; None for no limit.
        verified: Draft tokens verified so far.
        passes: Seconds of target passes.
        drafts: What the drafter has shown.
        processor_share: Processor seconds per second of a pass on an idle machine; None if not known.
    """

    def __init__(self, most: int = MAX_DRAFT_TOKENS, passes: PassTimes | None = None) -> None:
        """Choose lengths of up to ``most`` tokens, by times of passes that may be shared with another controller.

        Raises:
            RuntimeUnsupported: ``most`` is not a whole number from 1 to `MAX_PREDICTED_TOKENS`.
        """
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MAX_PREDICTED_TOKENS:
            raise RuntimeUnsupported(f"most: expected a whole number from 1 to {MAX_PREDICTED_TOKENS}, got {most!r}")
        self.chosen = self.verified = 0
        self.processor_share: float | None = None
        self.passes = PassTimes(MAX_PREDICTED_TOKENS + 1) if passes is None else passes
        self.drafts = DraftRecord(most)
        self._losses = LossAccount()
        self._most = self.longest = most
        self.longest_exact: int | None = None
        self._delegates = False  # whether the drafter chooses the length of each proposal
        self._caller_times: deque[float] = deque(maxlen=RECENT_SAMPLES)  # seconds of the caller for a token, by cycle
        self._missed = 0  # tokens committed since the drafter was last asked
        self._prompt = 0  # tokens of the prompt, until the drafter is asked: it has not read them
        self._unasked = 0  # the same, including earlier generations
        self._committed = 1  # tokens of the latest cycle
        self._exploration_budget = EXPLORATION_BUDGET  # plain passes that exploration may still cost
        self._exploration = 0  # draft length to explore next; 0 for none
        self._exploration_cost = 0.0  # what it is expected to lose, in plain passes
        self._plain_cost = 0.0  # expected loss of a plain pass instead of the chosen length, in plain passes
        self._plain_budget = 0.0  # what plain passes may still cost while drafting pays, in plain passes
        self._cycles_to_decision = 0  # cycles until the next decision

    def __repr__(self) -> str:
        """The best length, and how many tokens that rests on."""
        return f"<Controller: draft length {self.chosen} after {self.verified} draft tokens verified>"

    def start_from(self, curve: Mapping[int, float], processor_share: float | None) -> None:
        """Start from seconds of a pass by rows, and the processor share of a pass, that were measured before."""
        self.passes.carry(curve)
        self.processor_share = processor_share

    def keep_exact(self, longest: int) -> None:
        """Choose no more than ``longest`` draft tokens, because the bits of longer passes are known to differ."""
        self.longest_exact, self.longest = longest, min(self.longest, longest)

    def for_prediction(self) -> "Controller":
        """A controller for drafts from a prediction, which are right at other times and for longer.

        It shares the times of passes.
        """
        controller = Controller(MAX_PREDICTED_TOKENS, self.passes)
        controller.processor_share = self.processor_share
        if self.longest < MAX_DRAFT_TOKENS:
            controller.longest = self.longest
        if self.longest_exact is not None:
            controller.keep_exact(self.longest_exact)
        return controller

    def begin(self, prompt: int = 0, chooses_length: bool = False) -> None:
        """Begin a generation after ``prompt`` tokens; what earlier ones learnt and lost still counts.

        A drafter that ``chooses_length`` itself, by `pass_seconds`, is asked for the longest one or not at all.
        """
        self._delegates = chooses_length
        self.passes.begin()
        self.drafts.times.begin()
        self._caller_times.clear()
        self._missed = self._cycles_to_decision = 0
        self._prompt = prompt

    def choose(self) -> int:
        """Number of tokens to ask the drafter for; 0 leaves it alone."""
        known = self.passes.known
        if not self.passes.plain_known or not self.longest:
            return 0
        if not self._cycles_to_decision:
            self._decide()
            whole = self._delegates and self.chosen == self.longest
            self._cycles_to_decision = DECIDED_CYCLES if whole or not self.chosen or known(self.chosen + 1) else 1
        self._cycles_to_decision -= 1
        if self._losses.left <= 0:
            return 0
        if not self.passes.compared:
            # What earlier generations measured holds for this one once a pass is compared with it.
            self._cycles_to_decision = 0
            return next((k for k in range(self.chosen, 0, -1) if known(k + 1)), 0)
        if self._exploration and self._exploration_cost <= self._exploration_budget:
            self._exploration_budget -= self._exploration_cost
            self._cycles_to_decision = 0
            return self._exploration
        if not self._delegates and self.chosen and self._plain_cost <= self._plain_budget:
            self._plain_budget = 0.0
            self._cycles_to_decision = 0
            return 0
        return self.chosen

    def learn(
        self,
        *,
        committed: int,
        asked: int = 0,
        proposed: int = 0,
        accepted: int = 0,
        draft_seconds: float = 0.0,
        pass_seconds: float | None = None,
        processor_seconds: float | None = None,
        caller_seconds: float | None = None,
        refed: int = 0,
        ahead: bool = False,
    ) -> None:
        """Record a cycle.

        Args:
            committed: Tokens committed.
            asked: Tokens that the drafter was asked for; 0 when it was not asked.
            proposed: Draft tokens that were verified.
            accepted: Draft tokens that the target agreed with.
            draft_seconds: As in `CycleTimer`.
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
        self.verified += proposed
        if pass_seconds and self._is_busy(pass_seconds, processor_seconds):
            pass_seconds = None
        if pass_seconds is not None and (proposed or not refed):
            if self._delegates and proposed and not self.passes.known(proposed + 1) and self.passes.plain_known:
                surprise = pass_seconds / self.passes.at_least()[proposed + 1] - 1
                self._exploration_budget -= min(max(surprise, 0.0), EXPLORATION_BUDGET)
            self.passes.add(0 if ahead else proposed + 1, pass_seconds)
        plain = max(self.passes.curve[0], self.caller_seconds) if self.passes.curve[0] else 0.0
        if asked:
            self.drafts.times.add(proposed, self._prompt + self._missed, draft_seconds)
            self.drafts.observe(asked, proposed, accepted, MEMORY * FADING**self._missed)
            self._missed = self._prompt = self._unasked = 0
        else:
            self._missed += committed
            self._unasked += committed
        if asked or refed:
            spent = min(draft_seconds, OUTLIER * self.drafts.times(proposed)) if asked else 0.0
            # Not this pass's own seconds: the first one of a size compiles, and later ones are noisier than ``plain``.
            spent += self.passes.typical(proposed + 1) + self.caller_seconds * committed
            if plain:
                self._losses.settle(committed - spent / plain, committed)
                self._plain_budget += EXPLORATION_SHARE * spent / plain
            if self._delegates:
                self._exploration_budget = min(EXPLORATION_BUDGET, self._exploration_budget + EXPLORATION_SHARE)
        else:
            self._exploration_budget += EXPLORATION_SHARE
            self._losses.rest()

    def _is_busy(self, pass_seconds: float, processor_seconds: float | None) -> bool:
        """Return whether other programs took the processor during a pass, as far as can be told."""
        if processor_seconds is None or self.processor_share is None:
            return False
        return processor_seconds < BUSY_SHARE * self.processor_share * pass_seconds

    def _decide(self) -> None:
        """Update the estimates, the best length, and the length to explore with its cost."""
        self.passes.update()
        self.drafts.update()
        if self._delegates:
            self.chosen = self._reach()
            return
        tokens, seconds = self.drafts.expected(self.passes.curve, self.caller_seconds)
        best = max(range(self._reach() + 1), key=lambda k: tokens[k] / seconds[k])
        speed = tokens[best] / seconds[best]
        self._plain_cost = speed * seconds[0] - 1
        self.chosen = best if self._plain_cost > MAX_LOSS else 0
        self._exploration = self._to_explore(speed, tokens, seconds)
        lag = self.drafts.times.per_missed * (self._prompt + self._missed) / seconds[0]
        price = seconds[self._exploration] / seconds[0] - tokens[self._exploration]
        self._exploration_cost = max(0.0, price * COST_FADING ** max(0, self._unasked - STALE) + lag)
        self._exploration_budget = min(self._exploration_budget, max(EXPLORATION_BUDGET, self._exploration_cost))

    def _to_explore(self, speed: float, tokens: list[float], seconds: list[float]) -> int:
        """A draft length that may turn out better than ``speed`` (tokens per second); 0 for none.

        ``tokens`` and ``seconds`` are the expected ones of each length.
        """
        known, expected = self.passes.known, self.drafts.expected
        if not self.chosen:
            # The length that would gain most for the cost of exploring it, if the drafter had become good.
            hoped, least = expected(self.passes.at_least(), self.caller_seconds, [HOPED_ACCEPTANCE] * self._most)
            plain = seconds[0]

            def cost_of(k: int) -> float:
                return max(EXPLORATION_SHARE, seconds[k] / plain - tokens[k])

            # Costly exploration comes late; a cheap one also shows whether everything has become faster.
            lengths = [k for k in range(1, self._reach() + 1) if cost_of(k) <= EXPLORATION_BUDGET] or [1]
            return max(lengths, key=lambda k: (hoped[k] - least[k] / plain) / cost_of(k))
        unknown = [k for k in range(1, self.longest + 1) if not known(k + 1)]
        if not unknown:
            return 0
        tokens, seconds = expected(self.passes.at_least(), self.caller_seconds)
        best = max(unknown, key=lambda k: tokens[k] / seconds[k])
        if tokens[best] / seconds[best] <= LEAST_SPEEDUP * speed:
            return 0
        # Halve the gap between measured lengths, or go on beyond the longest of them.
        low = next((k for k in range(best, 0, -1) if known(k + 1)), 0)
        high = next((k for k in range(best, self.longest + 1) if known(k + 1)), 0)
        return (low + high) // 2 if high else self._reach()

    def _reach(self) -> int:
        """The longest length that does not go too far beyond what was measured."""
        return min(2 * max(1, *self.passes.measured()) - 1, self.longest)

    def state(self) -> ControllerState | None:
        """What was learnt; None until plain passes are timed and `ENOUGH_VERIFIED` draft tokens are verified."""
        measured = {max(size, 1): time for size, time in self.passes.measured().items()}
        if 1 not in measured or self.verified < ENOUGH_VERIFIED:
            return None
        tokens, seconds = self.drafts.expected(self.passes.curve, self.caller_seconds)
        chosen, length = self.chosen, max(1, self.chosen)
        timed = self._delegates or chosen + 1 in measured
        proposed = sum(accumulate(self.drafts.proposed.steps[:chosen], mul))
        return ControllerState(
            draft_length=round(proposed) if self._delegates else chosen,
            speedup=tokens[chosen] * seconds[0] / seconds[chosen] if timed else None,
            acceptance=(tokens[length] - 1) / length,
            pass_ms={size: time * 1e3 for size, time in measured.items()},
            draft_ms=self.drafts.times.fixed * 1e3,
            draft_token_ms=self.drafts.times.per_token * 1e3,
        )

    @property
    def pass_seconds(self) -> list[float]:
        """Seconds of a pass by rows; those not measured lately seem cheap as long as exploration has a budget."""
        return self.passes.at_least() if self._exploration_budget > 0 else self.passes.curve

    @property
    def caller_seconds(self) -> float:
        """Seconds that the caller takes for a token, as far as this generation has shown."""
        return median_low(self._caller_times) if self._caller_times else 0.0
