"""Ranges and defaults that the library, the command line and the server share, above all of sampling."""

import math
from typing import NamedTuple

LEAST_DIVISOR = 1e-6  # logits divided by less than this leave float32
MOST_RECENT = 2**31 - 1  # tokens: the largest index of an MLX array
QUANTIZED_KV_START = 5000  # tokens in the cache, as in mlx-lm
LONGEST_DRAFT = 64  # tokens that may be drafted at once
MAX_DRAFT_TOKENS = 16  # of these, as many as `auto` chooses, except for predictions
GROUP_SIZES = (32, 64, 128)  # numbers that MLX can quantise together


class Setting(NamedTuple):
    """A number, what it may be, and what it does."""

    least: float
    most: float
    default: float
    help: str = ""
    whole: bool = False


SAMPLER = {
    # not between 0 and `LEAST_DIVISOR`
    "temp": Setting(0, math.inf, 0.0, "Temperature; 0 always takes the most probable token."),
    "top_p": Setting(0, 1, 1.0, "Sample from the most probable tokens that make up this share of probability."),
    "top_k": Setting(0, math.inf, 0, "Sample from the N most probable tokens; 0 for all.", whole=True),
    "min_p": Setting(0, 1, 0.0, "Leave out tokens below this share of the best one's probability."),
    "min_tokens_to_keep": Setting(1, math.inf, 1, whole=True),  # even where min_p would not
    "xtc_probability": Setting(0, 1, 0.0),  # of leaving out all tokens above the threshold but the least probable one
    "xtc_threshold": Setting(0, 0.5, 0.1),
}
"""The settings of the sampler: arguments of `Sampling` and fields of requests; the help is that of their options."""

# Logits with the largest bias stay a float32 under any of these; 0 is none, as in mlx-lm.
PENALTIES = {
    "repetition_penalty": Setting(LEAST_DIVISOR, 1e6, 0.0),
    "presence_penalty": Setting(-1e6, 1e6, 0.0),
    "frequency_penalty": Setting(-1e6, 1e6, 0.0),
}
