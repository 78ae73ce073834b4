"""What drafting is to bring: from costs and guesses, the speed against plain decoding.

    speed-up(k) = tokens per pass / cycle          both in plain passes of the target
    cycle(k)    = drafting + verification + loop

By the published model, where nothing is timed, drafting k tokens takes (k + 1) r plain passes, r = S_D / S_T by the
bytes that a pass streams, and verification 1 + beta k^2, so that with 1 + alpha k tokens a pass

    speed-up(alpha, k) = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)

breaks even at alpha = r + beta k, or exactly at (cycle(k) - 1) / k = r (k + 1) / k + beta k.

Source: cross-family speculative decoding for Polish, section 6.2, equations 3 to 6 and table 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectool.advise.figures import Figure, computed, unknown
from spectool.cost_model import CostModel
from spectool.runtime.cost_model import fit_cost_model

M2_PRO_BETA = 0.19  # of the published experiments, and of no other machine


@dataclass(frozen=True, slots=True)
class Verification:
    """What a pass costs that verifies drafts.

    Attributes:
        beta: Overhead that grows with the square of the draft length, in plain passes.
        passes: Plain passes that one over k + 1 tokens takes, by k, where it was timed; then it is used, not beta.
        loop: What a cycle takes longer than a plain step of the host's own loop, in plain passes.
    """

    beta: Figure
    passes: Mapping[int, float]
    loop: float = 0.0

    def __call__(self, drafted: float) -> float:
        """Return the plain passes of a pass over ``drafted`` draft tokens and one more."""
        if self.passes and drafted <= max(self.passes):
            points = {0: 1.0, **self.passes}
            return float(np.interp(drafted, sorted(points), [points[k] for k in sorted(points)]))
        return 1 + (self.beta.value or 0.0) * drafted**2

    @property
    def is_assumed(self) -> bool:
        """Whether nobody has said or timed it."""
        return self.beta.kind == "assumed"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"beta": self.beta.as_dict(), "passes": {str(k): v for k, v in self.passes.items()}, "loop": self.loop}


def fitted(passes: Mapping[int, float], how: str, loop: float = 0.0) -> Verification:
    """Return a verification that was timed, beta fitted to it by least squares.

    Args:
        passes: Plain passes that one over k + 1 tokens takes, by k.
        how: Where they come from, a phrase.
        loop: As `Verification.loop`.
    """
    model = fit_cost_model({1: 1.0, **{k + 1: cost for k, cost in passes.items()}}, lambda k: 0.0)
    beta = unknown("no pass over drafts was timed") if model is None else Figure(model.beta, f"measured: {how}")
    return Verification(beta, dict(passes), loop)


@dataclass(frozen=True, slots=True)
class Guesses:
    """What a drafter proposes in a cycle of one draft length, and what becomes of it.

    Attributes:
        tokens_per_pass: Tokens committed / passes.
        acceptance: Accepted / proposed draft tokens (alpha).
        proposed: Draft tokens proposed in a pass that has any, mean.
        coverage: Share of passes that have any.
    """

    tokens_per_pass: Figure
    acceptance: Figure
    proposed: float
    coverage: float = 1.0


def of_acceptance(acceptance: Figure, proposed: float) -> Guesses:
    """Return guesses of as many tokens each time, a share of which is accepted: 1 + alpha k tokens a pass.

    Args:
        acceptance: Accepted / proposed target tokens.
        proposed: Target tokens, which may be fewer than the draft's.
    """
    if acceptance.value is None:
        return Guesses(acceptance, acceptance, proposed)
    tokens = computed(1 + acceptance.value * proposed, "1 + acceptance * tokens proposed")
    return Guesses(tokens, acceptance, proposed)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to expect of a drafter at one draft length.

    Attributes:
        k: Draft tokens in a cycle at most.
        tokens_per_pass: Tokens committed / passes.
        acceptance: Accepted / proposed draft tokens.
        needed: Acceptance from which on it is faster than plain decoding; above 1 nothing helps.
        published: The same by the published break-even, r + beta k; None where r is not known or nothing is translated.
        perfect: Tokens per pass of a draft that is always right: what translation leaves, at most k + 1, since the loop
            verifies no more than k tokens. Where some proposals are cut and others fall short, a little too high.
        speedup: Speed against plain decoding.
        best: Speed of that perfect draft.
        unburdened: Speed if verifying cost nothing beyond a plain pass.
    """

    k: int
    tokens_per_pass: Figure
    acceptance: Figure
    needed: Figure
    published: float | None
    perfect: float | None
    speedup: Figure
    best: Figure
    unburdened: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value.as_dict() if isinstance(value, Figure) else value for name, value in values.items()}


def by_sizes(draft: Figure, target: Figure) -> Figure:
    """Return r, the time of a draft step in plain passes, by the bytes that each streams (equation 5)."""
    if draft.value is None or target.value is None:
        return unknown("it takes the bytes of both models")
    return computed(draft.value / target.value, "bytes of the draft / bytes of the target")


def drafting_by_ratio(r: Figure, k: int) -> Figure:
    """Return the plain passes of drafting k tokens: k + 1 steps, one of them to catch up (equation 3)."""
    return r if r.value is None else computed((k + 1) * r.value, "(k + 1) r")


def expect(
    k: int,
    guesses: Guesses,
    drafting: Figure,
    verification: Verification,
    perfect: float | None,
    r: Figure | None = None,
) -> Expectation:
    """Put costs and guesses together.

    Args:
        k: Draft tokens in a cycle at most.
        guesses: What is proposed, and becomes of it.
        drafting: Plain passes of a proposal.
        verification: Of passes over drafts.
        perfect: Tokens per pass of a perfect draft; None where nothing bounds it but k.
        r: Plain passes of a draft step, for the published break-even.
    """
    ceiling = k + 1.0 if perfect is None else min(perfect, k + 1.0)
    if drafting.value is None:
        nothing = unknown(drafting.origin.partition(": ")[2])
        return Expectation(
            k, guesses.tokens_per_pass, guesses.acceptance, nothing, None, ceiling, nothing, nothing, None
        )
    share, proposed = guesses.coverage, guesses.proposed
    pure = drafting.value + 1 + verification.loop
    cycle = pure + share * (verification(proposed) - 1)
    whole = pure + verification(k) - 1
    reached = guesses.tokens_per_pass
    needed = unknown("nothing is proposed")
    if share * proposed:
        needed = computed(
            (cycle - 1) / (share * proposed), "acceptance at which a cycle costs what its tokens cost plainly"
        )
    lacks = unknown("it takes the acceptance")
    return Expectation(
        k,
        reached,
        guesses.acceptance,
        needed,
        None
        if r is None or r.value is None or verification.beta.value is None
        else CostModel(r.value, verification.beta.value).break_even(k),
        ceiling,
        lacks if reached.value is None else computed(reached.value / cycle, "tokens per pass / cost of a cycle"),
        computed(ceiling / whole, "a draft that is always right"),
        None if reached.value is None else reached.value / pure,
    )
