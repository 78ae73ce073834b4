"""Settings: those of one generation, and the ranges and defaults of sampling, also for the commands and the server."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from spectool.runtime.decoding.drafter import Cycle, Drafter
    from spectool.runtime.decoding.prediction import PredictionDrafter
    from spectool.runtime.decoding.sampling import LogitsProcessor, Sampler
    from spectool.runtime.decoding.statistics import DraftStatistics
    from spectool.runtime.draft_length.controller import Controller
    from spectool.runtime.grammar import Grammar

LEAST_DIVISOR = 1e-6  # logits divided by less than this leave float32
MOST_RECENT = 2**31 - 1  # tokens: the largest index of an MLX array


class Setting(NamedTuple):
    """A number, and what it may be."""

    least: float
    most: float
    default: float
    whole: bool = False


SAMPLER = {
    "temp": Setting(0, math.inf, 0.0),  # but not between 0 and `LEAST_DIVISOR`
    "top_p": Setting(0, 1, 1.0),
    "min_p": Setting(0, 1, 0.0),
    "min_tokens_to_keep": Setting(1, math.inf, 1, whole=True),
    "top_k": Setting(0, math.inf, 0, whole=True),
    "xtc_probability": Setting(0, 1, 0.0),
    "xtc_threshold": Setting(0, 0.5, 0.1),
}
# Logits with the largest bias stay a float32 under any of these; 0 is none, as in mlx-lm.
PENALTIES = {
    "repetition_penalty": Setting(LEAST_DIVISOR, 1e6, 0.0),
    "presence_penalty": Setting(-1e6, 1e6, 0.0),
    "frequency_penalty": Setting(-1e6, 1e6, 0.0),
}


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """How one text is written: the arguments of `generate_step`, which explains them."""

    drafter: "Drafter | None" = None
    prediction: "PredictionDrafter | None" = None
    num_draft_tokens: "int | Controller | None" = None
    max_tokens: int = 256
    stop_tokens: Collection[int] = frozenset()
    sampler: "Sampler | None" = None
    logits_processors: "Sequence[LogitsProcessor] | None" = None
    grammar: "Grammar | None" = None
    seed: int | None = None
    verify: Literal["exact", "rejection"] | None = None
    max_kv_size: int | None = None
    prompt_cache: list[Any] | None = None
    cached_tokens: Sequence[int] = ()
    prefill_step_size: int = 2048
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    statistics: "DraftStatistics | None" = None
    on_cycle: "Callable[[Cycle], None] | None" = None
