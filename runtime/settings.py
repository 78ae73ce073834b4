"""Ranges and defaults that the library, the command line and the server share, above all of sampling."""

import math
from typing import NamedTuple

LEAST_DIVISOR = 1e-6  # logits divided by less than this leave float32
MOST_RECENT = 2**31 - 1  # tokens: the largest index of an MLX array
QUANTIZED_KV_START = 5000  # tokens in the cache, as in mlx-lm
LONGEST_DRAFT = 64  # tokens that may be drafted at once
MAX_DRAFT_TOKENS = 16  # of these, as many as `auto` chooses, except for predictions


class Setting(NamedTuple):
    """A number that says how tokens are chosen, and all that options and fields of requests say about it."""

    least: float
    most: float
    default: float
    help: str = ""  # of its option; without any, it has none
    whole: bool = False
    divisor: bool = False  # logits are divided by it: 0, or at least `LEAST_DIVISOR`
    field: str = ""  # its name in requests, where that is another one


SAMPLER = {
    "temp": Setting(
        *(0, math.inf, 0.0, "Temperature; 0 always takes the most probable token."), divisor=True, field="temperature"
    ),
    "top_p": Setting(0, 1, 1.0, "Sample from the most probable tokens that make up this share of probability."),
    "top_k": Setting(0, math.inf, 0, "Sample from the N most probable tokens; 0 for all.", whole=True),
    "min_p": Setting(0, 1, 0.0, "Leave out tokens below this share of the best one's probability."),
    "xtc_probability": Setting(0, 1, 0.0),  # of leaving out all tokens above the threshold but the least probable one
    "xtc_threshold": Setting(0, 0.5, 0.1),
}
"""Arguments of `Sampling`."""

# Logits with the largest bias stay a float32 under any of these; 0 is none, as in mlx-lm.
PENALTIES = {
    "repetition_penalty": Setting(0, 1e6, 0.0, "Penalise the last 20 tokens by this factor; 0 for none.", divisor=True),
    "repetition_context_size": Setting(0, MOST_RECENT, 20, whole=True),
    "presence_penalty": Setting(-1e6, 1e6, 0.0),
    "presence_context_size": Setting(0, MOST_RECENT, 20, whole=True),
    "frequency_penalty": Setting(-1e6, 1e6, 0.0),
    "frequency_context_size": Setting(0, MOST_RECENT, 20, whole=True),
}
"""Arguments of `make_logits_processors`."""

SETTINGS = SAMPLER | PENALTIES
"""All settings of sampling, from which the options of commands and the fields of requests follow."""
