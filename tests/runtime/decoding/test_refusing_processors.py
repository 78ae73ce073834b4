"""Logits processors that refuse a text by raising: a draft ends there, and nothing else changes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.sampling.samplers import Sampling
from spectool.tests.runtime.caches.holding import assert_holds
from spectool.tests.runtime.distributions import check_pairs
from spectool.tests.runtime.fake_drafters import Fixed, Guesser, Reference
from spectool.tests.runtime.models import KINDS, perturbed, tiny_model
from spectool.tests.tiers import nightly

pytestmark = pytest.mark.usefixtures("interpreted")
PROMPT = [3, 1]
QUICK = ("llama4", "qwen3_5")


def masked(tokens: mx.array, logits: mx.array) -> mx.array:
    """Forbid the token before."""
    logits[:, tokens[-1:]] = -mx.inf
    return logits


def refused(tokens: mx.array, logits: mx.array) -> mx.array:
    """Refuse a text that says a token twice in a row, as a grammar does that finds no way on."""
    said = tokens.tolist()
    if any(before == after for before, after in pairwise(said)):
        raise ValueError(f"no text of this grammar begins with {said}")
    return logits


def grammar(tokens: mx.array, logits: mx.array) -> mx.array:
    return masked(tokens, refused(tokens, logits))


class Stubborn(Drafter):
    """Says the token before once more in every second case, which the grammar forbids, and says from what it draws."""

    name = "stubborn"

    def start(self, prompt: Sequence[int]) -> None:
        self._last = prompt[-1]

    def commit(self, tokens: Sequence[int]) -> None:
        self._last = tokens[-1]

    def propose(self, limit: int) -> Proposal:
        tokens, rows, last = list[int](), list[list[float]](), self._last
        for coin in mx.random.uniform(shape=(limit,)).tolist():  # type: ignore[union-attr]
            other = 2 if last != 2 else 4
            rows.append([0.5 if token in (last, other) else 0.0 for token in range(8)])
            last = last if coin < 0.5 else other
            tokens.append(last)
        return Proposal(tokens, self.name, distribution=mx.array(rows))


def generated(model: Any, drafter: Drafter | None, count: int, **options: Any) -> list[int]:
    steps = generate_step(PROMPT, model, drafter=drafter, max_tokens=count, logits_processors=[grammar], **options)
    return [token for token, _, _ in steps]


@pytest.mark.parametrize("kind", [*QUICK, *nightly(*(each for each in KINDS if each not in QUICK))])
def test_greedy_text_is_that_of_plain_decoding(kind: str) -> None:
    model = tiny_model(kind)
    expected = generated(model, None, 24)
    assert len(expected) == 24
    for drafter in (
        Fixed([5, 5, 5]),
        Guesser(vocabulary=3),
        Reference(expected, wrong=0.3),
        ModelDrafter(perturbed(model, kind=kind)),
    ):
        total = DraftStatistics()
        assert generated(model, drafter, 24, num_draft_tokens=4, statistics=total) == expected
        assert not total.failures


def test_right_drafts_before_the_refused_one_are_kept() -> None:
    model = tiny_model()
    expected = generated(model, None, 12)
    cycles: list[Any] = []
    drafter = Fixed([*expected[:3], expected[2], 7])
    assert generated(model, drafter, 12, num_draft_tokens=5, on_cycle=cycles.append) == expected
    # A text with the fourth draft is refused: that one is judged, and what follows it is not.
    assert (cycles[0].proposal, cycles[0].accepted) == (tuple([*expected[:3], expected[2]][:3]), 3)


@pytest.mark.parametrize(
    ("drafter", "verify", "runs"),
    [
        ("guesses", "exact", 50),
        *nightly(
            ("model", "rejection", 150),
            ("model", "exact", 100),
            ("guesses", "exact", 150),
            ("stubborn", "rejection", 500),
        ),
    ],
)
def test_drawn_text_keeps_its_distribution(drafter: str, verify: str, runs: int) -> None:
    model = tiny_model(vocabulary=8, scale=2.0)
    made = {
        "stubborn": Stubborn(),
        "guesses": Fixed([2, 2, 4], "guesses"),
        "model": ModelDrafter(perturbed(model, vocabulary=8, noise=0.4)),
    }[drafter]
    sampling, total = Sampling(temp=0.9), DraftStatistics()
    mx.random.seed(7)
    sampler = sampling if verify == "rejection" else sampling.__call__  # whose distribution nobody knows
    options = {"sampler": sampler, "num_draft_tokens": 3, "statistics": total}
    tokens = np.array([generated(model, made, 3, **options) for _ in range(runs)])
    check_pairs(f"{drafter}, {verify}", tokens, model, PROMPT, sampling, (masked,))
    assert not total.failures


@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize("drafted", [True, False])
def test_a_committed_text_that_is_refused_ends_the_generation(drafted: bool, draws: bool) -> None:
    model = tiny_model()
    options: dict[str, Any] = {"sampler": Sampling(temp=1.0), "seed": 4} if draws else {}
    free = [token for token, _, _ in generate_step(PROMPT, model, max_tokens=12, **options)]

    def refuse(tokens: mx.array, logits: mx.array) -> mx.array:
        if tokens.size >= len(PROMPT) + 5:
            raise ValueError("five are enough")
        return logits

    cache, got = make_prompt_cache(model), []
    drafter = Reference(free) if drafted else None
    steps = generate_step(
        PROMPT, model, drafter=drafter, max_tokens=12, logits_processors=[refuse], prompt_cache=cache, **options
    )
    with pytest.raises(ValueError, match="five are enough"):
        for token, _, _ in steps:
            got.append(token)
    assert len(got) == 5
    assert draws or got == free[:5]
    assert_holds(model, cache, PROMPT + got[:-1])


def test_nothing_is_asked_after_the_end_of_a_text() -> None:
    model = tiny_model()
    text = generated(model, None, 10)
    end = next(token for number, token in enumerate(text) if number > 2 and token not in text[:number])

    def refuse(tokens: mx.array, logits: mx.array) -> mx.array:
        assert end not in tokens.tolist()[len(PROMPT) :], "a text that has ended goes on"
        return grammar(tokens, logits)

    for drafter in (None, Reference(text), Reference(text, wrong=0.5)):
        steps = generate_step(PROMPT, model, drafter=drafter, stop_tokens={end}, logits_processors=[refuse])
        assert [token for token, _, _ in steps] == text[: text.index(end) + 1]
