"""How many tokens to draft: the length that promises the most tokens per second, 0 included.

Every cycle measures the time of the drafter and of the target's pass, and how much of the proposal was
accepted. From these follow, for each draft length k, the expected tokens and seconds of a cycle:

    tokens(k)  = 1 + q1 + q1 q2 + ... + q1 .. qk        qj: token j is proposed and accepted, given those before
    seconds(k) = drafter + pass + caller, averaged over the lengths that proposals of at most k tokens turn out to have

What the caller does with each token belongs to the time of a cycle. A plain pass begins while the caller works, so it
takes the longer of the two. The k with the best ratio is used. Two rules bound what this can cost:

- *Exploration has a budget*, `EXPLORATION_SHARE` of the time. A length that was never measured, or not lately, is tried
  when it would be the best at the cost of the next shorter measured one. A drafter that does not pay is tried when a
  good one would pay. While drafting pays, a plain pass is made now and then.
- *Losses are bounded.* The time that drafting really lost against plain decoding is summed up. Beyond `ALLOWANCE` plain
  passes and `MAX_LOSS` of the time since, there is no drafting, no matter what the estimates say.

Nothing here reads a clock or runs a model: `GuardedDrafter` measures.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import NamedTuple

from spectool.runtime.draft_length.timings import RECENT_SAMPLES, STALE, DraftTimes, PassTimes

MAX_DRAFT_TOKENS = 16
MAX_PREDICTED_TOKENS = 64  # the same of a text that the answer is expected to repeat
EXPLORATION_SHARE = 0.01  # share of the time of plain decoding that exploration may take
MAX_LOSS = 0.02  # share of the time that drafting may lose in all
ALLOWANCE = 8.0  # plain passes that drafting may lose before that
SURPLUS = 32.0  # plain passes won by drafting that may be lost again
EXPLORATION_BUDGET = 2.0  # plain passes that exploration may cost at once, and at the beginning
LEAST_SPEEDUP = 1.05  # times the best known speed that a length must promise to be tried
HOPED_ACCEPTANCE = 0.9  # acceptance of each token that a drafter is assumed to have reached when it is tried again
MEMORY = 0.93  # weight of a cycle when another has followed
COST_FADING = 0.998  # weight of the expected cost of asking, for each token since the drafter was last asked
FADING = 0.98  # weight of a cycle for each plain token since, which teaches nothing about the drafter
DECIDED_CYCLES = 4  # cycles for which a decision holds: deciding takes longer than a look-up in a dictionary
BUSY_SHARE = 0.8  # of the processor time that a pass gets on an idle machine, below which its time is not learnt from
ENOUGH_VERIFIED = 16  # draft tokens verified before `Controller.state` reports anything
OUTLIER = 3.0  # a cycle that takes more than this many times the expected seconds was disturbed


class ControllerState(NamedTuple):
    """What a controller has measured and concluded."""

    draft_length: int  # the best one; 0 for plain decoding
    speedup: float | None  # tokens per second at that length over plain decoding; None if such passes were not timed
    acceptance: float  # expected share of accepted draft tokens at that length, or at length 1 where it is 0
    pass_ms: dict[int, float]  # milliseconds of a target pass by the number of tokens in it
    draft_ms: float  # milliseconds that the drafter takes in each cycle
    draft_token_ms: float  # milliseconds that it takes for each token in addition


class _ByPosition:
    """How far a draft gets along its positions: until it is no longer proposed, or no longer accepted.

    Attributes:
        steps: Probability of getting past each position after those before it, shape [most].
    """

    NEIGHBOUR = 4.0  # observations that the estimate of the previous position counts for

    def __init__(self, most: int) -> None:
        self._passed = [0.0] * most
        self._tried = [0.0] * most
        self._passed[0], self._tried[0] = 1.0, 2.0
        self.steps = [0.5] * most

    def observe(self, reached: int, limit: int, weight: float) -> None:
        """Count that ``reached`` of ``limit`` positions were passed; earlier counts weigh ``weight`` times as much."""
        passed = self._passed = [count * weight for count in self._passed]
        tried = self._tried = [count * weight for count in self._tried]
        for position in range(reached):
            passed[position] += 1.0
            tried[position] += 1.0
        if reached < limit:
            tried[reached] += 1.0

    def update(self) -> None:
        """Recompute ``steps``; the prior of each position is the estimate of the one before it."""
        step = self._passed[0] / self._tried[0]
        self.steps = [step]
        for passed, tried in zip(self._passed[1:], self._tried[1:], strict=True):
            step = (passed + self.NEIGHBOUR * step) / (tried + self.NEIGHBOUR)
            self.steps.append(step)


class Controller:
    """Chooses the draft length of each cycle, in one generation after another with the same models on one machine.

    Generations that run at the same time need one controller each.

    Attributes:
        chosen: The best draft length by the estimates.
        longest: The longest draft length that may be chosen.
        verified: Draft tokens verified so far.
        passes: Seconds of target passes.
        drafts: Seconds of the drafter.
        processor_share: Processor seconds per second of a pass on an idle machine; None if not known.
    """

    def __init__(self, most: int = MAX_DRAFT_TOKENS, passes: PassTimes | None = None) -> None:
        """Choose lengths of up to ``most`` tokens, by times of passes that may be shared with another controller."""
        self.chosen = self.verified = 0
        self.processor_share: float | None = None
        self.passes = PassTimes(MAX_PREDICTED_TOKENS + 1) if passes is None else passes
        self.drafts = DraftTimes()
        self._most = self.longest = most
        self._accepted = _ByPosition(most)
        self._proposed = _ByPosition(most)
        self._callers: deque[float] = deque(maxlen=RECENT_SAMPLES)  # seconds of the caller for each token of a cycle
        self._missed = 0  # tokens committed since the drafter was last asked
        self._prompt = 0  # tokens of the prompt, until the drafter is asked: it has not read them
        self._unasked = 0  # the same, including earlier generations
        self._committed = 1  # tokens of the latest cycle
        self._loss_allowance = ALLOWANCE  # plain passes that drafting may still lose
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

    def begin(self, prompt: int = 0) -> None:
        """Begin a generation after ``prompt`` tokens; what earlier ones learnt and lost still counts."""
        self.passes.begin()
        self.drafts.begin()
        self._callers.clear()
        self._missed = self._cycles_to_decision = 0
        self._prompt = prompt

    def choose(self) -> int:
        """Number of tokens to ask the drafter for; 0 leaves it alone."""
        known = self.passes.known
        if not known(1) or not self.longest:
            return 0
        if not self._cycles_to_decision:
            self._decide()
            self._cycles_to_decision = DECIDED_CYCLES if known(self.chosen + 1) else 1
        self._cycles_to_decision -= 1
        if self._loss_allowance <= 0:
            return 0
        if not self.passes.compared:
            # What earlier generations measured holds for this one once a pass is compared with it.
            self._cycles_to_decision = 0
            return next(k for k in range(self.chosen, -1, -1) if known(k + 1))
        if self._exploration and self._exploration_cost <= self._exploration_budget:
            self._exploration_budget -= self._exploration_cost
            self._cycles_to_decision = 0
            return self._exploration
        if self.chosen and self._plain_cost <= self._plain_budget:
            self._plain_budget = 0.0
            self._cycles_to_decision = 0
            return 0
        return self.chosen

    def learn(
        self,
        *,
        asked: int,
        proposed: int,
        accepted: int,
        committed: int,
        draft_seconds: float,
        pass_seconds: float | None,
        processor_seconds: float | None = None,
        caller_seconds: float | None = None,
        refed: int = 0,
    ) -> None:
        """Record a cycle.

        Args:
            asked: Tokens that the drafter was asked for; 0 when it was not asked.
            proposed: Draft tokens that were verified.
            accepted: Draft tokens that the target agreed with.
            committed: Tokens committed.
            draft_seconds: Time of the drafter, in ``propose`` and ``commit``.
            pass_seconds: Wall time of the target from the end of the proposal to the committed tokens; None where it
                was not measured. A pass that began ahead counts from the end of the one before it.
            processor_seconds: Processor time of this process in the same interval. Where other programs took the
                processor, the time of the pass says nothing about the model.
            caller_seconds: Time between the previous cycle and this one; None where a pass was under way.
            refed: Tokens that the pass fed once more because drafts before them were rejected. They belong to the price
                of drafting, so a pass with them never counts as a plain one.
        """
        if caller_seconds is not None:
            self._callers.append(caller_seconds / self._committed)
        self._committed = committed
        self.verified += proposed
        if pass_seconds and self._is_busy(pass_seconds, processor_seconds):
            pass_seconds = None
        if pass_seconds is not None and (proposed or not refed):
            self.passes.add(proposed + 1, pass_seconds)
        plain = max(self.passes.curve[1], self.caller_seconds) if self.passes.curve[1] else 0.0
        if asked:
            self.drafts.add(proposed, self._prompt + self._missed, draft_seconds)
            weight = MEMORY * FADING**self._missed
            self._accepted.observe(accepted, asked, weight)
            self._proposed.observe(proposed, asked, weight)
            self._missed = self._prompt = self._unasked = 0
        else:
            self._missed += committed
            self._unasked += committed
        if asked or refed:
            spent = min(draft_seconds, OUTLIER * self.drafts(proposed)) if asked else 0.0
            # The first pass over this many tokens also compiles, which no later one has to pay for again.
            typical = self.passes.curve[proposed + 1]
            if pass_seconds is not None and self.passes.known(proposed + 1):
                typical = min(pass_seconds, OUTLIER * typical)
            spent += typical + self.caller_seconds * committed
            if plain:
                self._loss_allowance = min(SURPLUS, self._loss_allowance + (1 + MAX_LOSS) * committed - spent / plain)
                self._plain_budget += EXPLORATION_SHARE * spent / plain
        else:
            self._exploration_budget += EXPLORATION_SHARE
            self._loss_allowance = max(self._loss_allowance, min(ALLOWANCE, self._loss_allowance + MAX_LOSS))

    def _is_busy(self, pass_seconds: float, processor_seconds: float | None) -> bool:
        """Return whether other programs took the processor during a pass, as far as can be told."""
        if processor_seconds is None or self.processor_share is None:
            return False
        return processor_seconds < BUSY_SHARE * self.processor_share * pass_seconds

    def _decide(self) -> None:
        """Update the estimates, the best length, and the length to explore with its cost."""
        for estimate in (self.passes, self.drafts, self._accepted, self._proposed):
            estimate.update()
        tokens, seconds = self.expected()
        best = max(range(self._reach() + 1), key=lambda k: tokens[k] / seconds[k])
        speed = tokens[best] / seconds[best]
        self._plain_cost = speed * seconds[0] - 1
        self.chosen = best if self._plain_cost > MAX_LOSS else 0
        self._exploration = self._to_explore(speed, tokens, seconds)
        lag = self.drafts.per_missed * (self._prompt + self._missed) / seconds[0]
        price = seconds[self._exploration] / seconds[0] - tokens[self._exploration]
        self._exploration_cost = max(0.0, price * COST_FADING ** max(0, self._unasked - STALE) + lag)
        self._exploration_budget = min(self._exploration_budget, max(EXPLORATION_BUDGET, self._exploration_cost))

    def _to_explore(self, speed: float, tokens: list[float], seconds: list[float]) -> int:
        """A draft length that may turn out better than ``speed`` (tokens per second); 0 for none.

        ``tokens`` and ``seconds`` are the expected ones of each length.
        """
        known = self.passes.known
        if not self.chosen:
            # The length that would gain most for the cost of exploring it, if the drafter had become good.
            hoped, least = self.expected([HOPED_ACCEPTANCE] * self._most, optimistic=True)
            plain = seconds[0]

            def cost_of(k: int) -> float:
                return max(EXPLORATION_SHARE, seconds[k] / plain - tokens[k])

            # Costly exploration comes late; a cheap one also shows whether everything has become faster.
            lengths = [k for k in range(1, self._reach() + 1) if cost_of(k) <= EXPLORATION_BUDGET] or [1]
            return max(lengths, key=lambda k: (hoped[k] - least[k] / plain) / cost_of(k))
        unknown = [k for k in range(1, self.longest + 1) if not known(k + 1)]
        if not unknown:
            return 0
        tokens, seconds = self.expected(optimistic=True)
        best = max(unknown, key=lambda k: tokens[k] / seconds[k])
        if tokens[best] / seconds[best] <= LEAST_SPEEDUP * speed:
            return 0
        # Halve the gap between measured lengths, or go on beyond the longest of them.
        low = next((k for k in range(best, 0, -1) if known(k + 1)), 0)
        high = next((k for k in range(best, self.longest + 1) if known(k + 1)), 0)
        return (low + high) // 2 if high else self._reach()

    def _reach(self) -> int:
        """The longest length that does not go too far beyond what was measured."""
        return min(2 * max(self.passes.measured()) - 1, self.longest)

    def expected(
        self, steps: Sequence[float] | None = None, *, optimistic: bool = False
    ) -> tuple[list[float], list[float]]:
        """Expected tokens and seconds of a cycle by draft length, shape [most + 1] each.

        ``steps`` are the probabilities that each token is accepted when those before it were, by default as learnt. An
        ``optimistic`` answer takes passes not measured lately to be as cheap as the next shorter measured one.
        """
        curve = self.passes.at_least() if optimistic else self.passes.curve
        fixed, per_token, caller = self.drafts.fixed, self.drafts.per_token, self.caller_seconds
        tokens, seconds = [1.0], [max(curve[1], caller)]
        count, product, lasting, spent, cost = 1.0, 1.0, 1.0, 0.0, fixed + curve[1]
        for k, (step, going) in enumerate(zip(steps or self._accepted.steps, self._proposed.steps, strict=True), 1):
            product *= step
            count += product
            tokens.append(count)
            # Proposals that end here have k - 1 tokens, even if a longer one was asked for.
            spent += lasting * (1.0 - going) * cost
            lasting *= going
            cost = fixed + per_token * k + curve[k + 1]
            seconds.append(spent + lasting * cost + caller * count)
        return tokens, seconds

    def state(self) -> ControllerState | None:
        """What was learnt; None until plain passes are timed and `ENOUGH_VERIFIED` draft tokens are verified."""
        measured = self.passes.measured()
        if 1 not in measured or self.verified < ENOUGH_VERIFIED:
            return None
        tokens, seconds = self.expected()
        chosen, length = self.chosen, max(1, self.chosen)
        return ControllerState(
            draft_length=chosen,
            speedup=tokens[chosen] * seconds[0] / seconds[chosen] if chosen + 1 in measured else None,
            acceptance=(tokens[length] - 1) / length,
            pass_ms={size: time * 1e3 for size, time in measured.items()},
            draft_ms=self.drafts.fixed * 1e3,
            draft_token_ms=self.drafts.per_token * 1e3,
        )

    @property
    def caller_seconds(self) -> float:
        """Seconds that the caller takes for a token, as far as this generation has shown."""
        return median_low(self._callers) if self._callers else 0.0
