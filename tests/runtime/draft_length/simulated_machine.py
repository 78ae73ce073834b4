"""A simulated machine, whose seconds are exact, and drafters of which it says how often they are right."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.drafters.drafter import NOTHING, Drafter, Proposal, accepted_length
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.settings import MAX_DRAFT_TOKENS

# Seconds of a pass by its tokens; one token takes 1.
CURVES: dict[str, Callable[[int], float]] = {
    "flat, a GPU": lambda tokens: 1 + 0.012 * (tokens - 1),
    "linear, the reference BLAS": float,
    "between": lambda tokens: 0.8 + 0.2 * tokens,
    "steps of 8": lambda tokens: float((tokens + 7) // 8),
    "another kernel from 2 on": lambda tokens: 1.0 if tokens == 1 else 2 + 0.02 * tokens,
}
# Seconds of a drafter by the tokens it was asked for.
DRAFTERS: dict[str, Callable[[int], float]] = {
    "lookup": lambda count: 0.0005 + 0.0001 * count,
    "small model": lambda count: 0.02 + 0.07 * count,
    "large model": lambda count: 0.3 + 0.2 * count,
}
RIGHT = 0  # the token that is always the next one
STEADY = 500  # tokens after which throughput is steady
QUIET = {"noise": 0.0, "outliers": 0.0}
NOISY = {"noise": 0.05, "outliers": 0.01}


class Step(NamedTuple):
    length: int  # tokens proposed
    tokens: int  # committed
    seconds: float  # without noise
    plain: float  # what the same tokens take without drafts
    at: int  # tokens committed before
    asked: bool


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Simulated(Drafter):
    """Takes the time of a machine, and is as often right as it says there."""

    name = "simulated"

    def __init__(self, machine: "Machine") -> None:
        self.machine, self.costs_a_pass, self.missed = machine, machine.draft != "lookup", 0

    def start(self, prompt: Sequence[int]) -> None:
        self.missed = len(prompt)

    def propose(self, limit: int) -> Proposal:
        machine, count = self.machine, min(limit, self.machine.longest_proposal)
        seconds = DRAFTERS[machine.draft](count) + machine.per_missed * self.missed
        machine.clock.now += machine.pace(machine.at) * seconds
        self.missed, share = 0, machine.acceptance(machine.at)
        return Proposal([RIGHT if machine.rng.random() < share else RIGHT + 1 for _ in range(count)], self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        self.missed += len(tokens)


@dataclass
class Machine:
    """Costs and acceptance; what it tells the controller is noisy, what it counts is not."""

    curve: Callable[[int], float]
    draft: str
    acceptance: Callable[[int], float]  # by tokens committed so far
    seed: int = 0
    noise: float = 0.0  # standard deviation of the logarithm of a time
    outliers: float = 0.0  # share of the times that come out ten times too long; the first of each size always does
    longest_proposal: int = MAX_DRAFT_TOKENS
    per_missed: float = 0.0  # seconds for each token that the drafter missed when it was not asked
    growth: float = 0.0  # share by which a pass gets slower with each token of the context
    pace: Callable[[int], float] = lambda at: 1.0  # times as long as everything takes, by tokens committed so far
    consumer: float = 0.0  # seconds that a consumer takes for a token, during which a pass begun early goes on
    prompt: int = 0  # tokens that the drafter reads when it is first asked in a generation, as missed ones
    seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        print(f"seed {self.seed}")
        self.rng, self.clock, self.at = random.Random(self.seed), Clock(), 0
        self.controller, self.drafter = Controller(), HybridDrafter([Simulated(self)], clock=self.clock)

    def run(self, tokens: int) -> list[Step]:
        """The first generation."""
        return self.generate(tokens)

    def generate(self, tokens: int, context: int = 0) -> list[Step]:
        """Generate ``tokens`` after a context of ``context`` tokens; what earlier generations learnt still counts."""
        steps, controller, self.at = list[Step](), self.controller, 0
        controller.begin(self.prompt)
        self.drafter.costs = controller
        self.drafter.start([RIGHT] * self.prompt)
        following: int | None = None  # length of the next cycle, where that is settled before this one ends
        begun, waited, pending = False, None, list[int]()
        while self.at < tokens:
            length = controller.choose() if following is None else following
            following = None if length else controller.choose()
            begins, before, proposal = following == 0, self.clock.now, NOTHING
            if length:
                if pending:
                    self.drafter.commit(pending)
                proposal = self.drafter.propose(length)
            proposed, drafting = len(proposal.tokens), self.clock.now - before
            accepted = accepted_length(proposal.tokens, [RIGHT] * proposed)
            pending = [*([] if length else pending), *[RIGHT] * (accepted + 1)]
            slower = 1 + self.growth * (context + self.at)
            verifying = self.pace(self.at) * self.curve(proposed + 1) * slower
            if begun:
                verifying = max(verifying, self.consumer)
            self.clock.now += verifying
            if length:
                self.drafter.commit(pending)
                pending = []
            controller.learn(
                asked=length > 0,
                proposed=proposed,
                committed=accepted + 1,
                draft_seconds=self.measured(drafting, length=0) if length else None,
                pass_seconds=self.measured(verifying, length=proposed + 1) if begun == begins else None,
                ahead=begun,
                caller_seconds=None if begun else waited,
            )
            plain = max(self.pace(self.at) * self.curve(1) * slower, self.consumer) * (accepted + 1)
            waited = self.consumer * (accepted + 1)
            spent = drafting + verifying + (0 if begins else waited)
            steps.append(Step(proposed, accepted + 1, spent, plain, self.at, drafting > 0))
            begun = begins
            self.at += accepted + 1
        return steps

    def answer(self, tokens: int, count: int, contexts: Sequence[int]) -> list[list[Step]]:
        """Run ``count`` short generations, each after a randomly chosen context."""
        return [self.generate(tokens, self.rng.choice(contexts)) for _ in range(count)]

    def measured(self, seconds: float, length: int) -> float:
        """What a clock tells."""
        if not self.noise:
            return seconds
        first = length not in self.seen
        self.seen.add(length)
        slow = 10 if first or self.rng.random() < self.outliers else 1
        return seconds * slow * self.rng.lognormvariate(0, self.noise)

    def speed(self, length: int, acceptance: float) -> float:
        """Expected tokens per second with ``length`` draft tokens."""
        tokens = sum(acceptance**k for k in range(length + 1))
        return tokens / (self.curve(length + 1) + (DRAFTERS[self.draft](length) if length else 0.0))

    def best(self, acceptance: float) -> float:
        return max(self.speed(length, acceptance) for length in range(MAX_DRAFT_TOKENS + 1))


def speedup(steps: Sequence[Step], begin: int = STEADY, end: int = 10**9) -> float:
    """Speed against plain decoding between two numbers of tokens."""
    part = [step for step in steps if begin <= step.at < end]
    return sum(step.plain for step in part) / sum(step.seconds for step in part)
