"""How many tokens to draft: the length that is expected to give most tokens per second, 0 included.

Three things are measured in every cycle: the seconds of the target's pass by its number of rows, the seconds of the
drafter by the tokens it proposed, and at which position the target stopped agreeing. For each draft length k they give

    tokens(k)  = 1 + q1 + q1 q2 + ... + q1 .. qk        qj: token j is proposed and accepted, given those before it
    seconds(k) = drafter + pass + caller                averaged over the proposals of at most k tokens

and the k with the best ratio is chosen. What the caller does with each token belongs to the time of a cycle; a plain
pass begins while the caller works, so it takes the longer of the two. Two accounts, in plain passes, bound the costs:

- *Trials*: now and then another length is tried, because a drafter that does not pay may have become good, a length may
  never have been measured, and plain passes may have become faster. `TRIALS` of the time may go into this.
- *Losses*: what drafting has really lost against plain decoding is summed up. Beyond `ALLOWANCE`, and `MARGIN` of the
  time since, there is no drafting, no matter what the estimates say.

Nothing here reads a clock or runs a model: `GuardedDrafter` measures.
"""

from collections import deque
from collections.abc import Sequence
from statistics import median_low

from spectool.runtime.draft_length.timings import WINDOW, DraftTimes, PassTimes

LONGEST = 16  # draft tokens
TRIALS = 0.01  # share of the time that may go into trials
TRIAL_BUDGET = 2.0  # plain passes that trials may cost at once, and at the beginning
PROMISING = 1.05  # times the best known speed that a length not measured recently must promise to be tried
HOPED = 0.9  # acceptance that a drafter which does not pay is hoped to have reached when it is tried
MARGIN = 0.02  # share of the time that drafting may lose
ALLOWANCE = 8.0  # plain passes that it may lose in addition
SURPLUS = 32.0  # plain passes that it may lose again after it has won them
MEMORY = 0.93  # weight that a cycle keeps when the drafter is asked again
FADING = 0.98  # weight that it keeps with each token committed without asking the drafter
HELD = 4  # cycles that a decision holds for: deciding takes longer than a look-up in a dictionary
OUTLIER = 3.0  # times the expected seconds, beyond which a cycle was disturbed by something else


class _ByPosition:
    """Estimates how far along its positions a draft lasts: until it ends, or until it is rejected.

    Attributes:
        steps: Probability to pass each position when those before it were passed, shape [longest].
    """

    NEIGHBOUR = 4.0  # observations that the estimate at the position before counts for

    def __init__(self, longest: int) -> None:
        """Begin with even odds, as of two observations of the first position."""
        self._passed = [1.0] + [0.0] * (longest - 1)
        self._tried = [2.0] + [0.0] * (longest - 1)
        self.steps = [0.5] * longest

    def observe(self, reached: int, limit: int, weight: float) -> None:
        """Count that ``reached`` of ``limit`` positions were passed; earlier counts now weigh ``weight`` as much."""
        passed = self._passed = [count * weight for count in self._passed]
        tried = self._tried = [count * weight for count in self._tried]
        for position in range(reached):
            passed[position] += 1.0
            tried[position] += 1.0
        if reached < limit:
            tried[reached] += 1.0

    def update(self) -> None:
        """Bring ``steps`` up to date: each position's prior is the estimate at the one before it."""
        step = self._passed[0] / self._tried[0]
        self.steps = [step]
        for passed, tried in zip(self._passed[1:], self._tried[1:], strict=True):
            step = (passed + self.NEIGHBOUR * step) / (tried + self.NEIGHBOUR)
            self.steps.append(step)


class Controller:
    """Chooses the draft length of each cycle, in one generation after another with the same models on one machine.

    Generations that run at the same time need one each.

    Attributes:
        longest: Maximum number of draft tokens.
        chosen: Draft length that is best by the estimates.
        verified: Draft tokens verified so far.
        passes: Seconds of target passes.
        drafts: Seconds of the drafter.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        """Choose among 0 to ``longest`` (>= 1) draft tokens."""
        self.longest = longest
        self.chosen = self.verified = 0
        self.passes = PassTimes(longest + 1)
        self.drafts = DraftTimes()
        self._accepted = _ByPosition(longest)
        self._proposed = _ByPosition(longest)
        self._callers: deque[float] = deque(maxlen=WINDOW)  # seconds of the caller for each token of a cycle
        self._committed = 1  # tokens of the latest cycle
        self._prompt = 0  # tokens of the prompt, until the drafter is asked: it has not read them
        self._missed = 0  # tokens committed since the drafter was last asked
        self._allowance = ALLOWANCE  # plain passes that drafting may still lose
        self._trial_budget = TRIAL_BUDGET  # plain passes that trials may still cost
        self._trial, self._trial_cost = 0, 0.0  # draft length to try next, and what it is expected to lose
        self._held = 0  # cycles until the next decision

    def __repr__(self) -> str:
        """Return the best length and how much that rests on."""
        return f"<Controller: draft length {self.chosen} after {self.verified} draft tokens verified>"

    def begin(self, prompt: int = 0) -> None:
        """Begin a generation after ``prompt`` tokens; what was learnt and lost in earlier ones still counts."""
        self.passes.begin()
        self._callers.clear()
        self._missed = self._held = 0
        self._prompt = prompt

    def choose(self) -> int:
        """Return the number of tokens to ask the drafter for; 0 if it is not to be asked."""
        known = self.passes.known
        if not self.passes.measured():
            return 0
        if not self._held:
            self._decide()
            self._held = HELD if known(self.chosen + 1) else 1
        self._held -= 1
        if self._allowance <= 0:
            return 0
        if not self.passes.settled:
            self._held = 0
            return next(k for k in range(self.chosen, -1, -1) if known(k + 1) or not k)
        # What trials may cost at once is reserved for drafts; plain passes are paid for by what comes in beyond it.
        reserved = 0.0 if self._trial else TRIAL_BUDGET
        if self._trial_cost <= self._trial_budget - reserved:
            self._trial_budget -= self._trial_cost
            self._held = 0
            return self._trial
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
        caller_seconds: float | None = None,
        again: int = 0,
    ) -> None:
        """Learn from a cycle.

        Args:
            asked: Tokens that the drafter was asked for; 0 when it was not asked.
            proposed: Draft tokens that were verified.
            accepted: Draft tokens that the target agreed with.
            committed: Tokens committed.
            draft_seconds: Time of the drafter, in proposing and in reading what was committed.
            pass_seconds: Wall time of the target from the end of the proposal to the tokens committed; None if it was
                not measured. A pass that began ahead counts from the end of the one before it.
            caller_seconds: Time between the cycle before this one and this one; None if a pass was under way.
            again: Tokens that the pass fed once more because drafts before them were rejected. They belong to the
                price of drafting: no pass with them counts as a plain one.
        """
        if caller_seconds is not None:
            self._callers.append(caller_seconds / self._committed)
        self._committed = committed
        self.verified += proposed
        if pass_seconds is not None and (proposed or not again):
            self.passes.add(proposed + 1, pass_seconds)
        if asked:
            self.drafts.add(proposed, self._prompt + self._missed, draft_seconds)
            weight = MEMORY * FADING**self._missed
            self._accepted.observe(accepted, asked, weight)
            self._proposed.observe(proposed, asked, weight)
            self._missed = self._prompt = 0
        else:
            self._missed += committed
        plain = max(self.passes.curve[1], self.caller_seconds)
        if not (asked or again):
            self._trial_budget += TRIALS
            self._allowance = max(self._allowance, min(ALLOWANCE, self._allowance + MARGIN))
        elif self.passes.curve[1]:
            spent = self.passes.curve[proposed + 1]
            # The first pass over this many rows prepares the later ones, which does not happen twice.
            if pass_seconds is not None and self.passes.known(proposed + 1):
                spent = min(pass_seconds, OUTLIER * spent)
            spent += min(draft_seconds, OUTLIER * self.drafts(proposed)) if asked else 0.0
            spent = (spent + self.caller_seconds * committed) / plain
            self._allowance = min(SURPLUS, self._allowance + (1 + MARGIN) * committed - spent)
            if self.chosen:  # no trial pays for another one
                self._trial_budget += TRIALS * spent

    def _decide(self) -> None:
        """Bring the estimates up to date; set the best length, and the one to try next with its cost."""
        for estimate in (self.passes, self.drafts, self._accepted, self._proposed):
            estimate.update()
        tokens, seconds = self.expected()
        speeds = [count / time for count, time in zip(tokens[: self._reach + 1], seconds, strict=False)]
        best, plain = speeds.index(max(speeds)), seconds[0]
        gain = speeds[best] * plain - 1
        self.chosen = best if gain > MARGIN else 0
        self._trial = self._unknown(speeds[best]) if self.chosen else self._hoped(tokens, seconds)
        if self._trial:
            loss = seconds[self._trial] / plain - tokens[self._trial]
            self._trial_cost = max(0.0, loss + self.drafts.per_missed * (self._prompt + self._missed) / plain)
        else:
            self._trial_cost = gain
        self._trial_budget = min(self._trial_budget, TRIAL_BUDGET + self._trial_cost)

    def _hoped(self, tokens: list[float], seconds: list[float]) -> int:
        """Return the length that gains most for what trying it costs, if the drafter has become good."""
        hoped, least = self.expected([HOPED] * self.longest, optimistic=True)
        plain = seconds[0]
        costs = [max(TRIALS, time / plain - count) for count, time in zip(tokens, seconds, strict=True)]
        lengths = [k for k in range(1, self._reach + 1) if costs[k] <= TRIAL_BUDGET] or [1]
        return max(lengths, key=lambda k: (hoped[k] - least[k] / plain) / costs[k])

    def _unknown(self, speed: float) -> int:
        """Return a length not measured recently that may be faster than ``speed`` (tokens per second); 0 for none."""
        known = self.passes.known
        tokens, seconds = self.expected(optimistic=True)
        unknown = [k for k in range(1, self.longest + 1) if not known(k + 1)]
        best = max(unknown, key=lambda k: tokens[k] / seconds[k], default=0)
        if not best or tokens[best] / seconds[best] <= PROMISING * speed:
            return 0
        # Halve the gap between measured lengths, or go on beyond the longest of them.
        low = next((k for k in range(best, 0, -1) if known(k + 1)), 0)
        high = next((k for k in range(best, self.longest + 1) if known(k + 1)), 0)
        return (low + high) // 2 if high else self._reach

    @property
    def _reach(self) -> int:
        """The longest length that does not go too far beyond what was measured."""
        return min(2 * max(self.passes.measured()) - 1, self.longest)

    def expected(
        self, steps: Sequence[float] | None = None, *, optimistic: bool = False
    ) -> tuple[list[float], list[float]]:
        """Return the expected tokens and seconds of a cycle by draft length, shape [longest + 1] each.

        Args:
            steps: Probability that each token is accepted when those before it were; as learnt, if not given.
            optimistic: Take passes not measured recently for as cheap as the next shorter measured one.
        """
        curve = self.passes.at_least() if optimistic else self.passes.curve
        caller = self.caller_seconds
        tokens, seconds = [1.0], [max(curve[1], caller)]
        reached, lasting, ended = 1.0, 1.0, 0.0  # ended: seconds of proposals that end before k tokens
        cost = self.drafts(0) + curve[1]
        for k, (step, going) in enumerate(zip(steps or self._accepted.steps, self._proposed.steps, strict=True), 1):
            reached *= step
            tokens.append(tokens[-1] + reached)
            ended += lasting * (1.0 - going) * cost
            lasting *= going
            cost = self.drafts(k) + curve[k + 1]
            seconds.append(ended + lasting * cost + caller * tokens[-1])
        return tokens, seconds

    @property
    def caller_seconds(self) -> float:
        """Seconds that the caller takes for a token, as far as this generation has shown."""
        return median_low(self._callers) if self._callers else 0.0
