"""What drafting is to bring: from costs and guesses, the speed against plain decoding, in figures with an origin.

    speed-up(k) = tokens per pass / cycle          both in plain passes of the target
    cycle(k)    = drafting + verification + loop

Where nothing is timed, the published model holds. Drafting k tokens takes (k + 1) r plain passes, r = S_D / S_T by the
bytes that a pass streams. Verification takes 1 + beta k^2, so that with 1 + alpha k tokens a pass

    speed-up(alpha, k) = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)

breaks even at alpha = r + beta k, or exactly at (cycle(k) - 1) / k = r (k + 1) / k + beta k.

Acceptance that breaks even and speed at most are of the same proposals, as many as the drafter makes and as often. So
a drafter that needs more than 100% gives less than plain decoding at most.

Source: cross-family speculative decoding for Polish, section 6.2, equations 3 to 6 and table 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from spectool.runtime.draft_length.cost_model import CostModel, fit_cost_model
from spectool.runtime.draft_length.timings import PassTimes

M2_PRO_BETA = 0.19  # of the published experiments, and of no other machine
LONGEST = 64  # draft tokens in a cycle


@dataclass(frozen=True)
class Figure:
    """A number and its origin."""

    value: float | None  # the number; None where it is not known
    origin: str  # ``measured``, ``stated``, ``assumed``, ``computed`` or ``unknown``, and after a colon how

    @property
    def kind(self) -> str:
        """The first word of the origin."""
        return self.origin.partition(":")[0]

    @property
    def how(self) -> str:
        """The rest of it."""
        return self.origin.partition(": ")[2]


def _figure(kind: str, value: float, how: str) -> Figure:
    return Figure(value, f"{kind}: {how}")


measured = partial(_figure, "measured")  # found by looking, counting or timing here
assumed = partial(_figure, "assumed")  # nobody has looked at it here
computed = partial(_figure, "computed")  # follows from others
stated = partial(Figure, origin="stated")  # the user gave it


def unknown(why: str) -> Figure:
    """Return no number."""
    return Figure(None, f"unknown: {why}")


@dataclass(frozen=True)
class Verification:
    """What a pass costs that verifies drafts.

    Where passes were timed they are used, not beta, and continued as the runtime continues them (`PassTimes`).
    """

    beta: Figure  # overhead that grows with the square of the draft length, in plain passes
    passes: Mapping[int, float] = field(default_factory=dict)  # plain passes that one over k + 1 tokens takes, by k
    loop: float = 0.0  # what a cycle takes longer than a plain step of the host's own loop, in plain passes

    def __call__(self, drafted: float) -> Figure:
        """Return the plain passes of a pass over ``drafted`` draft tokens and one more."""
        if not self.passes:
            return Figure(1 + (self.beta.value or 0.0) * drafted**2, self.beta.origin)
        times, longest = PassTimes(LONGEST + 1), max(self.passes)
        for k, cost in ({0: 1.0} | dict(self.passes)).items():
            for _ in range(2):  # a time counts from its second sample on
                times.add(k + 1, cost)
        times.update()
        cost = float(np.interp(drafted, range(LONGEST + 1), times.curve[1:]))
        if drafted > longest:
            return computed(cost, f"passes over more than {longest} draft tokens rise as they do up to {longest}")
        timed = drafted == 0 or drafted in self.passes
        return Figure(cost, self.beta.origin if timed else f"{self.beta.origin}, interpolated")


def fitted(passes: Mapping[int, float], how: str, loop: float = 0.0) -> Verification:
    """Return a verification that was timed, beta fitted by least squares; ``how`` says where, in a phrase."""
    model = fit_cost_model({1: 1.0, **{k + 1: cost for k, cost in passes.items()}}, lambda k: 0.0)
    beta = unknown("no pass over drafts was timed") if model is None else measured(model.beta, how)
    return Verification(beta, dict(passes), loop)


@dataclass(frozen=True)
class Guesses:
    """What a drafter proposes in a cycle of one draft length, what becomes of it, and what it costs."""

    tokens_per_pass: Figure  # tokens committed / passes
    acceptance: Figure  # accepted / proposed draft tokens (alpha)
    proposed: float  # draft tokens proposed in a pass that has any, mean
    drafting: Figure  # plain passes that a proposal takes
    coverage: float = 1.0  # share of passes that have any


def of_acceptance(acceptance: Figure, proposed: float, drafting: Figure) -> Guesses:
    """Return guesses of as many target tokens each time, a share of which is accepted: 1 + alpha k tokens a pass."""
    tokens = acceptance
    if acceptance.value is not None:
        tokens = computed(1 + acceptance.value * proposed, "1 + acceptance * tokens proposed")
    return Guesses(tokens, acceptance, proposed, drafting)


@dataclass(frozen=True)
class Expectation:
    """What to expect of a drafter at one draft length.

    ``perfect`` is at most k + 1, since the loop verifies no more than k tokens. Where some proposals are cut and others
    fall short, it is a little too high.
    """

    k: int  # draft tokens in a cycle at most
    tokens_per_pass: Figure  # tokens committed / passes
    acceptance: Figure  # accepted / proposed draft tokens
    perfect: float  # tokens per pass if all that it proposes were right, as often as it proposes
    verification: Figure  # plain passes of a pass over what it proposes
    needed: Figure  # acceptance from which on it is faster than plain decoding; above 1 nothing helps
    speedup: Figure  # speed against plain decoding
    best: Figure  # speed if all that it proposes were right
    published: float | None = None  # as ``needed``, by the published break-even, r + beta k; None where r is not known
    unburdened: float | None = None  # speed if verifying cost nothing beyond a plain pass
    best_unburdened: float | None = None  # speed if all were right, likewise


def by_sizes(draft: Figure, target: Figure) -> Figure:
    """Return r, the time of a draft step in plain passes, by the bytes that each streams (equation 5)."""
    if draft.value is None or target.value is None:
        missing = [name for name, figure in (("target", target), ("draft", draft)) if figure.value is None]
        options, models = (" and ".join(form.format(name) for name in missing) for form in ("--{}-bytes", "the {}'s"))
        return unknown(f"state {options}, or name {models} model")
    return computed(draft.value / target.value, "bytes of the draft / bytes of the target")


def drafting_by_ratio(r: Figure, k: int) -> Figure:
    """Return the plain passes of drafting k tokens: k + 1 steps, one of them to catch up (equation 3)."""
    return r if r.value is None else computed((k + 1) * r.value, "(k + 1) r")


def expect(k: int, guesses: Guesses, verification: Verification, r: Figure | None = None) -> Expectation:
    """Put guesses and what verifying them costs together; ``r``, a draft step, is in plain passes."""
    right, reached = guesses.coverage * guesses.proposed, guesses.tokens_per_pass  # draft tokens in a pass
    perfect, verifying = 1 + right, verification(guesses.proposed)
    told = (k, reached, guesses.acceptance, perfect, verifying)
    if guesses.drafting.value is None:
        nothing = unknown(guesses.drafting.how)
        return Expectation(*told, nothing, nothing, nothing)
    pure = guesses.drafting.value + 1 + verification.loop
    cycle = pure + guesses.coverage * ((verifying.value or 1.0) - 1)
    needed = unknown("nothing is proposed")
    if right:
        needed = computed((cycle - 1) / right, "acceptance at which a cycle costs what its tokens cost plainly")
    speedup, unburdened, published = unknown("it takes the acceptance"), None, None
    if reached.value is not None:
        speedup = computed(reached.value / cycle, "tokens per pass / cost of a cycle")
        unburdened = reached.value / pure
    if r is not None and r.value is not None and verification.beta.value is not None:
        published = CostModel(r.value, verification.beta.value).break_even(k)
    best = computed(perfect / cycle, "if all that it proposes were right")
    return Expectation(*told, needed, speedup, best, published, unburdened, perfect / pure)
