"""What drafting is to bring: from costs and guesses, the speed against plain decoding.

    speed-up(k) = tokens per pass / cycle          both in plain passes of the target
    cycle(k)    = drafting + verification + loop

By the published model, where nothing is timed, drafting k tokens takes (k + 1) r plain passes, r = S_D / S_T by the
bytes that a pass streams, and verification 1 + beta k^2, so that with 1 + alpha k tokens a pass

    speed-up(alpha, k) = (1 + alpha k) / ((k + 1) r + 1 + beta k^2)

breaks even at alpha = r + beta k, or exactly at (cycle(k) - 1) / k = r (k + 1) / k + beta k.

Acceptance that breaks even and speed at most are of the same proposals, as many as the drafter makes and as often: a
drafter that needs more than 100% gives less than plain decoding at most.

Source: cross-family speculative decoding for Polish, section 6.2, equations 3 to 6 and table 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectool.measure.advise.figures import Figure, computed, unknown
from spectool.runtime.draft_length.cost_fit import fit_cost_model
from spectool.runtime.draft_length.cost_model import CostModel

M2_PRO_BETA = 0.19  # of the published experiments, and of no other machine


@dataclass(frozen=True, slots=True)
class Verification:
    """What a pass costs that verifies drafts.

    Attributes:
        beta: Overhead that grows with the square of the draft length, in plain passes.
        passes: Plain passes that one over k + 1 tokens takes, by k, where it was timed; then it is used, not beta.
            Between those timed it is interpolated; beyond them it rises as it did from one token to the longest.
        loop: What a cycle takes longer than a plain step of the host's own loop, in plain passes.
    """

    beta: Figure
    passes: Mapping[int, float]
    loop: float = 0.0

    def __call__(self, drafted: float) -> Figure:
        """Return the plain passes of a pass over ``drafted`` draft tokens and one more."""
        if not self.passes:
            return Figure(1 + (self.beta.value or 0.0) * drafted**2, self.beta.origin)
        longest = max(self.passes)
        if drafted > longest:
            rise = (self.passes[longest] - 1) / longest
            how = f"passes over more than {longest} draft tokens rise as they do up to {longest}"
            return computed(1 + rise * drafted, how)
        points = {0: 1.0, **self.passes}
        cost = float(np.interp(drafted, sorted(points), [points[k] for k in sorted(points)]))
        return Figure(cost, self.beta.origin if drafted in points else f"{self.beta.origin}, interpolated")

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
        perfect: Tokens per pass if all that it proposes were right, as often as it proposes: at most k + 1, since the
            loop verifies no more than k tokens. Where some proposals are cut and others fall short, a little too high.
        verification: Plain passes of a pass over what it proposes.
        speedup: Speed against plain decoding.
        best: Speed if all that it proposes were right; below 1 where ``needed`` is above 1.
        unburdened: Speed if verifying cost nothing beyond a plain pass.
        best_unburdened: Speed if all were right, likewise.
    """

    k: int
    tokens_per_pass: Figure
    acceptance: Figure
    needed: Figure
    published: float | None
    perfect: float
    verification: Figure
    speedup: Figure
    best: Figure
    unburdened: float | None
    best_unburdened: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value.as_dict() if isinstance(value, Figure) else value for name, value in values.items()}


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


def expect(
    k: int,
    guesses: Guesses,
    drafting: Figure,
    verification: Verification,
    r: Figure | None = None,
) -> Expectation:
    """Put costs and guesses together.

    Args:
        k: Draft tokens in a cycle at most.
        guesses: What is proposed, and becomes of it.
        drafting: Plain passes of a proposal.
        verification: Of passes over drafts.
        r: Plain passes of a draft step, for the published break-even.
    """
    share, proposed, reached = guesses.coverage, guesses.proposed, guesses.tokens_per_pass
    perfect, verifying = 1 + share * proposed, verification(proposed)
    if drafting.value is None:
        nothing = unknown(drafting.origin.partition(": ")[2])
        return Expectation(
            k, reached, guesses.acceptance, nothing, None, perfect, verifying, nothing, nothing, None, None
        )
    pure = drafting.value + 1 + verification.loop
    cycle = pure + share * ((verifying.value or 1.0) - 1)
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
        perfect,
        verifying,
        lacks if reached.value is None else computed(reached.value / cycle, "tokens per pass / cost of a cycle"),
        computed(perfect / cycle, "if all that it proposes were right"),
        None if reached.value is None else reached.value / pure,
        perfect / pure,
    )
