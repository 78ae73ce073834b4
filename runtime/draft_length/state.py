"""What a controller has found out, for those who read it."""

from typing import NamedTuple

from spectool.runtime.draft_length.controller import Controller

ENOUGH = 16  # draft tokens verified, from which on something can be said of the draft length


class ControllerState(NamedTuple):
    """What a controller has found out, all of it from what it has measured."""

    draft_length: int  # the length it holds for best; 0 for plain decoding
    speedup: (
        float | None
    )  # tokens per second expected with it, against plain decoding; None if such passes were not made
    acceptance: float  # share of the draft tokens expected to be accepted with it, with 1 where it is 0
    pass_ms: dict[int, float]  # milliseconds of a target pass by the number of tokens in it, as measured
    draft_ms: float  # milliseconds of the drafter in a cycle, whatever it proposes
    draft_token_ms: float  # milliseconds of the drafter for each token


def controller_state(controller: Controller) -> ControllerState | None:
    """Return what was found out; None until plain passes are timed and `ENOUGH` draft tokens verified."""
    measured = controller.passes.measured()
    if 1 not in measured or controller.verified < ENOUGH:
        return None
    tokens, seconds = controller.expected()
    chosen, length = controller.chosen, max(1, controller.chosen)
    return ControllerState(
        draft_length=chosen,
        speedup=tokens[chosen] * seconds[0] / seconds[chosen] if chosen + 1 in measured else None,
        acceptance=(tokens[length] - 1) / length,
        pass_ms={size: time * 1e3 for size, time in measured.items()},
        draft_ms=controller.drafts.fixed * 1e3,
        draft_token_ms=controller.drafts.per_token * 1e3,
    )
