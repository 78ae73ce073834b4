"""One sentence: draft with what and how far ahead, do not draft, or measure first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spectool.measure.advise.expect import M2_PRO_BETA, Expectation, Figure
from spectool.measure.advise.pair import Pair

Kind = Literal["draft", "dictionary", "history"]


@dataclass(frozen=True)
class DraftModel:
    """What is known of a draft model, or of its tokenizer alone."""

    tokenizers: Pair  # its tokenizer beside the target's
    weights: Figure  # bytes
    cache: Figure  # bytes of keys and values of a whole context
    r: Figure  # plain passes of a draft step, by sizes
    # distributions beside the target's; cross-entropy and KL in nats, acceptance by rejection sampling
    divergence: dict[str, Any] | None = None


@dataclass(frozen=True)
class Candidate:
    """One drafter."""

    name: str  # as the user named it
    kind: Kind  # draft (a model, or the tokenizer of one), dictionary or history
    expectations: Sequence[Expectation]  # by draft length, as asked
    memory: Figure  # bytes that it and the target take, weights and caches
    fits: bool | None  # whether the machine has them; None where that is not known
    model: DraftModel | None = None  # what is known of its model; None for what is made of the target's tokens
    todo: tuple[str, ...] = ()  # commands that make up for what is missing, the last of them a benchmark
    notes: tuple[str, ...] = ()  # what a reader of the figures should know
    unmeasured: bool = False  # whether models are measured and this one is not, so that its bytes alone speak


_GAIN = 1.05  # speed-up from which on drafting is called a gain
_LOSS = 0.95  # speed-up below which it is a loss; in between it makes no difference
_ASSUMED = f"if verifying costs what the published model says of an M2 Pro (beta {M2_PRO_BETA})"
_MEASURE = "measure it with --measure"
_At = tuple[Candidate, Expectation]  # a drafter at one draft length
Verdict = Literal["draft", "do not draft", "break-even", "unknown"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to do."""

    verdict: Verdict  # in a word
    sentence: str  # with the reason
    drafter: str | None = None  # what to draft with; None where there is nothing to draft with yet
    num_draft_tokens: int | None = None  # draft length; None likewise
    todo: tuple[str, ...] = ()  # commands that would make it surer


def recommend(candidates: Sequence[Candidate]) -> Recommendation:
    """Decide.

    A gain of less than a twentieth is none. What history alone would bring decides only where it gains, since it is
    always there. Where nobody has said what verifying costs, and free verification would turn a loss into a gain,
    nothing is decided. Nor is it of a draft that was not measured beside others that were.
    """
    fitting = [each for each in candidates if each.fits is not False]
    known = [(each, at) for each in fitting for at in each.expectations if at.speedup.value is not None]
    open_ones = [
        (each, max(each.expectations, key=_best)) for each in fitting if each.expectations[0].speedup.value is None
    ]
    gains = [(each, at) for each, at in known if _speed(at) >= _GAIN]
    if gains:
        return _draft(*max(gains, key=lambda one: _speed(one[1])), open_ones)
    hopeful = [(each, at) for each, at in open_ones if each.unmeasured or at.best.value is None or _best(at) >= _GAIN]
    hopeful = hopeful or [(each, at) for each, at in open_ones if _is_assumed(at) and _freest(each)[0] >= _GAIN]
    if hopeful:
        return _unknown(hopeful)
    losses = [(each, at) for each, at in known if each.kind != "history"]
    if losses:
        return _no_gain(losses)
    return Recommendation("do not draft", f"Do not draft: {_hopeless(candidates, open_ones)}.")


def _draft(candidate: Candidate, found: Expectation, open_ones: Sequence[_At]) -> Recommendation:
    with_history = {"draft": "", "dictionary": " and history", "history": " alone, without any artifact"}
    reason = (
        f"{candidate.name}{with_history[candidate.kind]}, k = {found.k}: {_speed(found):.2f} times plain decoding "
        f"expected, since {_accepted(found)}"
    )
    better = [each for each, at in open_ones if at.best.value is None or _best(at) > _speed(found)]
    if better:
        reason += f"; {', '.join(each.name for each in better)} may do better, whose acceptance is not known"
    todo = tuple(command for each in better for command in each.todo) or candidate.todo
    return Recommendation("draft", f"Draft with {reason}{_provided(found)}.", candidate.name, found.k, todo)


def _unknown(hopeful: Sequence[_At]) -> Recommendation:
    candidate, found = max(hopeful, key=lambda one: _best(one[1]))
    most = f"at most {_best(found):.2f} times plain decoding, at k = {found.k} and always right{_provided(found)}"
    if found.best.value is None:
        lacks = "; ".join(dict.fromkeys(at.best.how for _, at in hopeful))
        reason = f"what {', '.join(each.name for each, _ in hopeful)} costs is not known; {lacks}"
    elif _best(found) >= _GAIN:
        cheap = _cheapest(candidate)
        needed = f"gains from an acceptance of {_percent(cheap.needed)} at k = {cheap.k} on"
        reason = f"{candidate.name} {needed}, and gives {most}; measure it"
    elif candidate.unmeasured:
        reason = f"{candidate.name} was not measured; by the bytes of the models it gives {most}"
    else:
        reason = f"{candidate.name} gives {most}, and up to {_if_free(*_freest(candidate))}; {_MEASURE}"
    others = [
        f"{each.name} ({_percent(_cheapest(each).needed)})" if _best(at) >= _GAIN else each.name
        for each, at in hopeful
        if each is not candidate and at.best.value is not None
    ]
    likewise = f" Likewise {', '.join(others)}." if others else ""
    return Recommendation(
        "unknown", f"It cannot be told yet whether to draft: {reason}.{likewise}", todo=candidate.todo
    )


def _no_gain(losses: Sequence[_At]) -> Recommendation:
    """Say that known drafters do not gain; unless only a cost of verification says so that nobody has measured."""
    candidate, found = max(losses, key=lambda one: _speed(one[1]))
    gives = f"{candidate.name} gives {_speed(found):.2f} times plain decoding at k = {found.k}"
    free, k = max((at.unburdened or 0.0, at.k) for _, at in losses)
    if _is_assumed(found) and free >= _GAIN and _speed(found) < _LOSS:
        reason = f"{gives}{_provided(found)}, and up to {_if_free(free, k)}"
        return Recommendation(
            "unknown", f"It cannot be told yet whether to draft: {reason}; {_MEASURE}.", todo=candidate.todo
        )
    reason = f"{gives}, the best there is: {_accepted(found)}{_provided(found)}"
    if _speed(found) >= _LOSS:
        return Recommendation("break-even", f"About break-even, so do without: {reason}.", todo=candidate.todo)
    return Recommendation("do not draft", f"Do not draft: {reason}.")


def _hopeless(candidates: Sequence[Candidate], open_ones: Sequence[_At]) -> str:
    large = [each.name for each in candidates if each.fits is False]
    if large:
        return f"{', '.join(large)} and the target do not fit into memory"
    if not open_ones:
        hedge = _provided(max(candidates[0].expectations, key=_speed))
        return f"history alone gains nothing on this text{hedge}, and no other drafter was named"
    candidate, found = max(open_ones, key=lambda one: _best(one[1]))
    hedge = _provided(found) + (f", and {_if_free(*_freest(candidate))}" if _is_assumed(found) else "")
    return (
        f"even if it were always right, {candidate.name} would give {_best(found):.2f} times plain decoding at k = "
        f"{found.k}, the best there is{hedge}"
    )


def _cheapest(candidate: Candidate) -> Expectation:
    """Return the draft length that breaks even at the lowest acceptance."""
    return min(candidate.expectations, key=lambda each: each.needed.value or float("inf"))


def _freest(candidate: Candidate) -> tuple[float, int]:
    """Return the speed if it is always right and verifying is free, and the draft length of that."""
    return max((each.best_unburdened or 0.0, each.k) for each in candidate.expectations)


def _is_assumed(found: Expectation) -> bool:
    """Whether nobody has said or timed what verifying costs."""
    return found.verification.kind == "assumed"


def _provided(found: Expectation) -> str:
    """Return the condition that a figure stands under where nobody has said or timed what verifying costs there."""
    conditions = {"assumed": f", {_ASSUMED}", "computed": f", if {found.verification.how}"}
    return conditions.get(found.verification.kind, "")


def _accepted(found: Expectation) -> str:
    accepted = f"{_percent(found.acceptance)} of the draft tokens are accepted ({found.acceptance.kind})"
    if (found.needed.value or 0.0) > 1:
        return f"{accepted}, and even all of them would not break even"
    return f"{accepted} and {_percent(found.needed)} would break even"


def _if_free(speed: float, k: int) -> str:
    return f"{speed:.2f} times at k = {k} if it is free"


def _speed(found: Expectation) -> float:
    return found.speedup.value or 0.0


def _best(found: Expectation) -> float:
    return found.best.value or 0.0


def _percent(share: Figure) -> str:
    return "an unknown share" if share.value is None else f"{share.value:.0%}"
