"""Answers for simulated machines: look-ups that are right as often as they say, and draft models that say nothing."""

import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from spectool.lab.hindsight import Saved
from spectool.runtime.drafters.drafter import Proposal

CURVES: dict[str, Callable[[int], float]] = {
    "flat": lambda rows: 1 + 0.012 * (rows - 1),
    "rising": lambda rows: 1 + 0.05 * (rows - 1),
    "linear": float,
    "between": lambda rows: 0.8 + 0.2 * rows,
    "steps of 8": lambda rows: float((rows + 7) // 8),
    "another kernel from 2 on": lambda rows: 1.0 if rows == 1 else 2 + 0.02 * rows,
}
LOOK_UPS = {"sure": [(0.25, 0.9)], "mixed": [(0.15, 0.95), (0.3, 0.5), (0.2, 0.2)], "unsure": [(0.4, 0.25)]}
TOKENS, PROMPT, ANSWERS, READING = 64, 40, 30, 0.03
WRONG = 1 << 20  # a token that is never right


class Model(NamedTuple):
    """A draft model."""

    right: float  # probability of each token
    cost: float  # of a token, in plain passes


MODELS = {"cheap": Model(0.7, 0.1), "dear": Model(0.7, 0.5), "half right": Model(0.5, 0.25), "bad": Model(0.05, 0.3)}


def texts(shares: Sequence[tuple[float, float]], model: Model, seed: int, answers: int = ANSWERS) -> list[Saved]:
    """Answers in which token i is i; at a share of the positions a look-up is so sure of each token."""
    rng, found = random.Random(seed), list[Saved]()

    def proposal(at: int, right: float, stated: bool) -> Proposal:
        end = next((k for k in range(16) if rng.random() >= right), 16)
        return Proposal([at + k if k < end else WRONG for k in range(16)], "", [right] * 16 if stated else ())

    for _ in range(answers):
        look_ups = []
        for at in range(TOKENS):
            draw, reach = rng.random(), accumulate(share for share, _ in shares)
            sure = next((p for (_, p), most in zip(shares, reach, strict=True) if draw < most), 0.0)
            look_ups.append(proposal(at, sure, True) if sure else Proposal((), ""))
        models = [proposal(at, model.right, False) for at in range(TOKENS)]
        found.append(Saved([-2] * PROMPT, list(range(TOKENS)), {"look-up": look_ups, "model": models}))
    return found
