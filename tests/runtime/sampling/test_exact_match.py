"""Exact match with all of mlx-lm's processors and samplers: drafts do not change what they do."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.sample_utils import make_logits_processors

from spectool.runtime.sampling.samplers import LogitsProcessor
from spectool.tests.runtime.fake_drafters import Reference
from spectool.tests.runtime.models import drafted, plain, prompts
from spectool.tests.tiers import nightly

pytestmark = pytest.mark.usefixtures("interpreted")
PROMPT = [3, 1]
PROCESSORS: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {7: 1.5, 200: -3.0}},
    "repetition": {"repetition_penalty": 1.3},
    "short repetition": {"repetition_penalty": 0.8, "repetition_context_size": 3},
    "presence": {"presence_penalty": 0.7, "presence_context_size": 5},
    "frequency": {"frequency_penalty": 0.4},
    "all": {
        "logit_bias": {9: 0.5},
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "frequency_context_size": 7,
    },
}


def dry(tokens: mx.array, logits: mx.array) -> mx.array:
    """Make what would prolong a repetition less likely the longer it is, as DRY does."""
    text: list[int] = tokens.tolist()
    longest: dict[int, int] = {}
    for place in range(1, len(text)):
        length = 0
        while length < place and text[place - 1 - length] == text[-1 - length]:
            length += 1
        if length:
            longest[text[place]] = max(length, longest.get(text[place], 0))
    if longest:
        penalties = mx.array([0.8 * 1.75 ** (length - 1) for length in longest.values()])
        logits[:, mx.array(list(longest))] -= penalties
    return logits


def second_best(logprobs: mx.array) -> mx.array:
    """A sampler of nobody's, without chance."""
    return mx.argsort(-logprobs, axis=-1)[:, 1]


@pytest.mark.parametrize("sampler", [second_best, *nightly(None)], ids=["second best", "greedy"])
@pytest.mark.parametrize("kind", ["all", "dry", *nightly(*(each for each in PROCESSORS if each != "all"))])
@pytest.mark.parametrize("count", [2, *nightly(3)])
def test_every_processor_changes_drafted_and_plain_text_alike(model: Any, kind: str, sampler: Any, count: int) -> None:
    def processors() -> list[LogitsProcessor]:
        made = [dry] if kind == "dry" else make_logits_processors(**PROCESSORS[kind])
        assert made
        return list(made)

    changed = 0
    for prompt in prompts(count, seed=5):
        expected = plain(model, prompt, 24, logits_processors=processors(), sampler=sampler)
        changed += expected != plain(model, prompt, 24, sampler=sampler)
        for wrong in (0.0, 0.4):
            options: dict[str, Any] = {"logits_processors": processors(), "sampler": sampler}
            assert drafted(model, prompt, Reference(expected, wrong=wrong), 24, **options) == expected
    assert changed
