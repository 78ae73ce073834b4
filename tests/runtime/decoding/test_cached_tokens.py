"""Going on from a filled prompt cache: drafters and processors see the whole text, progress is told."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors

from spectool.runtime.decoding.generation import generate_step

from ..fake_drafters import Oracle
from ..models import plain, prompts, tiny_model

SPLIT = 9


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


def test_the_same_tokens_as_from_the_whole_prompt(model: Any) -> None:
    prompt = max(prompts(6), key=len)
    processors = make_logits_processors(repetition_penalty=1.5, repetition_context_size=len(prompt))
    expected = plain(model, prompt, 20, logits_processors=processors)
    assert expected != plain(model, prompt[SPLIT:], 20, logits_processors=processors)
    cache = make_prompt_cache(model)
    model(mx.array([prompt[:SPLIT]]), cache=cache)
    oracle = Oracle(expected, wrong=0.3)
    steps = generate_step(
        mx.array(prompt[SPLIT:]),
        model,
        drafter=oracle,
        num_draft_tokens=8,
        max_tokens=20,
        logits_processors=processors,
        prompt_cache=cache,
        cached_tokens=prompt[:SPLIT],
    )
    assert [token for token, _, _ in steps] == expected
    assert oracle.started == prompt


def test_progress_counts_the_prompt_as_mlx_lm_does(model: Any) -> None:
    from mlx_lm.generate import generate_step as host_generate_step

    prompt = mx.array(max(prompts(6), key=len))

    def told(step: Any) -> list[tuple[int, int]]:
        calls: list[tuple[int, int]] = []

        def note(fed: int, total: int) -> None:
            calls.append((fed, total))

        list(step(prompt, model, max_tokens=3, prefill_step_size=4, prompt_progress_callback=note))
        return calls

    assert told(generate_step) == told(host_generate_step)
    assert told(generate_step)[0] == (0, prompt.size) and told(generate_step)[-1] == (prompt.size, prompt.size)


def test_progress_that_raises_ends_the_prompt_and_leaves_the_cache_as_it_was(model: Any) -> None:
    prompt = mx.array(max(prompts(6), key=len))
    cache = make_prompt_cache(model)

    def enough(fed: int, total: int) -> None:
        if fed >= 8:
            raise TimeoutError

    steps = generate_step(prompt, model, prompt_cache=cache, prefill_step_size=4, prompt_progress_callback=enough)
    with pytest.raises(TimeoutError):
        next(steps)
    assert cache[0].offset == 0
