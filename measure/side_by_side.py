"""The same prompts decoded plainly and with each drafter: speeds next to each other, outputs compared."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np

from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.decoding.drafter import Drafter, accepted_length
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.host.generation import generate_step as plain_generate_step
from spectool.runtime.host.generation import make_prompt_cache

PLAIN = "plain decoding"
_CONTEXT = 64  # tokens before a timed pass


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an output first leaves the plain one.

    Attributes:
        prompt: Number of the prompt.
        position: Tokens that were equal before.
        gap: Distance of the plain model's two best logits there. A pass over several tokens rounds
            differently from single steps; a gap of that size is a near-tie, not an error.
    """

    prompt: int
    position: int
    gap: float


@dataclass(slots=True)
class Row:
    """What one way of decoding did over all prompts.

    Attributes:
        name: The drafter, or `PLAIN`.
        statistics: Passes, tokens, proposals.
        seconds: Generation time, prompt passes included.
        outputs: Tokens generated for each prompt.
        differences: Outputs that leave the plain one, with their gap.
    """

    name: str
    statistics: DraftStatistics = field(default_factory=DraftStatistics)
    seconds: float = 0.0
    outputs: list[list[int]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def run_side_by_side(
    model: Any,
    prompts: Sequence[Sequence[int]],
    drafters: Mapping[str, Drafter],
    max_tokens: int,
    stop_tokens: frozenset[int] = frozenset(),
    num_draft_tokens: int = 8,
    on_prompt: Callable[[], object] = lambda: None,
) -> list[Row]:
    """Decode every prompt in every way, prompt by prompt so that a busy machine slows all alike.

    Plain decoding is mlx-lm's own loop, which computes the next token while the last is read.

    Args:
        model: An mlx-lm model.
        prompts: Token ids of each prompt.
        drafters: Drafters by the name of their row.
        max_tokens: Tokens to generate for each prompt.
        stop_tokens: Ids that end a generation.
        num_draft_tokens: Longest proposal, in tokens.
        on_prompt: Called after each prompt.

    Returns:
        A row for plain decoding and one for each drafter.
    """
    plain, drafted = Row(PLAIN), [Row(name) for name in drafters]
    for number, prompt in enumerate(prompts):
        started = time.perf_counter()
        output = _decode_plainly(model, prompt, max_tokens, stop_tokens)
        plain.seconds += time.perf_counter() - started
        plain.outputs.append(output)
        for _ in output:
            plain.statistics.record("", 0, 0, 1)
        for row, drafter in zip(drafted, drafters.values(), strict=True):
            started = time.perf_counter()
            steps = generate_step(
                mx.array(list(prompt)),
                model,
                drafter=drafter,
                num_draft_tokens=num_draft_tokens,
                max_tokens=max_tokens,
                stop_tokens=stop_tokens,
                statistics=row.statistics,
            )
            row.outputs.append([token for token, _, _ in steps])
            row.seconds += time.perf_counter() - started
            difference = find_difference(model, number, prompt, output, row.outputs[number])
            if difference is not None:
                row.differences.append(difference)
        on_prompt()
    return [plain, *drafted]


def pass_cost(model: Any, tokens: int, repeat: int = 15) -> float:
    """Time a pass over ``tokens`` tokens against one over a single token; the ratio of the medians.

    About 1 where verifying is nearly free (a GPU, a Mac); near ``tokens`` where it saves nothing.
    """
    cache = make_prompt_cache(model)
    checkpoints = Checkpoints(cache)
    checkpoints.mark(_CONTEXT)
    mx.eval(model(mx.ones((1, _CONTEXT), dtype=mx.int32), cache=cache))
    times: dict[int, list[float]] = {1: [], tokens: []}
    for _ in range(repeat):
        for count, samples in times.items():
            checkpoints.mark(count)
            started = time.perf_counter()
            mx.eval(model(mx.ones((1, count), dtype=mx.int32), cache=cache))
            samples.append(time.perf_counter() - started)
            checkpoints.rewind(_CONTEXT)
    return median(times[tokens]) / median(times[1])


def _decode_plainly(model: Any, prompt: Sequence[int], max_tokens: int, stop_tokens: frozenset[int]) -> list[int]:
    output: list[int] = []
    for token, _ in plain_generate_step(mx.array(list(prompt)), model, max_tokens=max_tokens):
        output.append(int(token))
        if token in stop_tokens:
            break
    return output


def find_difference(
    model: Any, number: int, prompt: Sequence[int], plain: Sequence[int], other: Sequence[int]
) -> Difference | None:
    """Compare two outputs of one prompt; None when they are equal token for token."""
    if list(plain) == list(other):
        return None
    position = accepted_length(other, plain)
    logits = model(mx.array([*prompt, *plain[:position]])[None])[0, -1]
    best: list[float] = np.array(mx.sort(logits)[-2:].astype(mx.float32)).tolist()
    return Difference(number, position, best[1] - best[0])
