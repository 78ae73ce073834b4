"""The draft model's cache: it follows the text, feeds nothing twice and survives interruptions."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.draft_model import ModelDrafter, vocabulary_mismatch
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.loading import load_drafter
from spectool.runtime.sampling.samplers import Sampling
from spectool.runtime.sampling.verification import Draw
from spectool.tests.runtime.models import Counted, plain, tiny_model
from spectool.tests.runtime.renumbered import renumbered_target
from spectool.tests.tiers import nightly
from spectool.tokenization.incremental.common_prefix import common_prefix

PROMPT = [7, 8, 9, 7, 8]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.fixture
def counted(model: Any) -> Counted:
    return Counted(model)


def test_proposes_greedily_what_plain_decoding_gives(model: Any) -> None:
    drafter = ModelDrafter(model)
    assert isinstance(drafter, Drafter)
    drafter.start(PROMPT)
    assert list(drafter.propose(6).tokens) == plain(model, PROMPT, 6)


def test_what_its_cache_holds_of_a_prompt_is_known(model: Any) -> None:
    drafter = ModelDrafter(model)
    drafter.start(PROMPT)
    drafter.propose(1)
    assert drafter.known([*PROMPT, 1, 2]) == len(PROMPT) and drafter.known([PROMPT[0], 1]) == 1
    drafter.cache.forget()
    assert drafter.known(PROMPT) == 0


def test_one_pass_for_each_draft_token_and_the_prompt_once(model: Any, counted: Counted) -> None:
    text = plain(model, PROMPT, 20)
    drafter = ModelDrafter(counted)
    drafter.start(PROMPT)
    assert counted.passes == [4]
    drafter.propose(3)
    assert counted.passes == [4, 1, 1, 1]
    # All three right: the last draft and the target's own token are new to the cache.
    drafter.commit(text[:4])
    drafter.propose(2)
    assert counted.passes[4:] == [2, 1]
    # The first one wrong: what it led to is trimmed.
    drafter.commit([99])
    assert list(drafter.propose(2).tokens) == plain(model, [*PROMPT, *text[:4], 99], 2)
    assert counted.passes[6:] == [1, 1]


def test_commits_without_proposals_are_fed_together(model: Any, counted: Counted) -> None:
    drafter = ModelDrafter(counted)
    drafter.start(PROMPT)
    for token in (20, 21, 22):
        drafter.commit([token])
    assert list(drafter.propose(3).tokens) == plain(model, [*PROMPT, 20, 21, 22], 3)
    assert counted.passes == [4, 4, 1, 1]


def test_the_next_turn_feeds_only_what_is_new(model: Any, counted: Counted) -> None:
    drafter = ModelDrafter(counted)
    drafter.start(PROMPT)
    drafter.propose(4)
    drafter.commit([50, 51])
    counted.passes.clear()
    turn = [*PROMPT, 50, 51, 60, 61, 62]
    drafter.start(turn)
    # The cache holds PROMPT; the last token waits for the proposal.
    assert counted.passes == [4]
    assert list(drafter.propose(3).tokens) == plain(model, turn, 3)
    drafter.start([9, 9])
    assert list(drafter.propose(3).tokens) == plain(model, [9, 9], 3)
    drafter.start([])
    assert not drafter.propose(3).tokens and not drafter.cache.tokens, "an empty prompt"
    drafter.start([9, 8])
    assert list(drafter.propose(3).tokens) == plain(model, [9, 8], 3)


@pytest.mark.parametrize("fail_at", [1, 2, 4])
def test_an_interrupted_pass_is_forgotten(model: Any, counted: Counted, fail_at: int) -> None:
    drafter = ModelDrafter(counted)
    counted.fail_at = fail_at
    with pytest.raises(KeyboardInterrupt):
        drafter.start(PROMPT)
        drafter.propose(5)
    counted.fail_at = -1
    drafter.start(PROMPT)
    assert list(drafter.propose(5).tokens) == plain(model, PROMPT, 5)


def test_no_pass_is_made_for_drafts_that_are_probably_wrong(model: Any) -> None:
    def drafts(min_probability: float, draw: Any = None) -> tuple[list[int], int]:
        counted = Counted(model)
        drafter = ModelDrafter(counted, min_probability=min_probability)
        drafter.draw_with(draw)
        drafter.start(PROMPT)
        before = len(counted.passes)
        return list(drafter.propose(12).tokens), len(counted.passes) - before

    ids = plain(model, PROMPT, 12)
    logits = model(mx.array([PROMPT + ids]))[0, len(PROMPT) - 1 : -1]
    likely = np.cumprod(np.array(mx.max(mx.softmax(logits, axis=-1), axis=-1)))
    for floor in (0.0, *likely[[0, 2, 6]] * 1.001, 1.0):
        expected = next((place + 1 for place, p in enumerate(likely) if p < floor), 12)
        assert drafts(floor) == (ids[:expected], expected), "the token that gets too unlikely is the last one"
    tokens, passes = drafts(1.0, Draw(Sampling(temp=1.0), (), int(logits.shape[-1])))
    assert (len(tokens), passes) == (1, 1), "drawn drafts end there as well"
    drafter = ModelDrafter(model)
    drafter.start(PROMPT)
    stated = np.cumprod(drafter.propose(12).probabilities)
    assert np.allclose(stated, likely, rtol=1e-4), "it says how sure it is"


def test_a_smaller_vocabulary_is_switched_off_where_it_ends(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    small = ModelDrafter(tiny_model(vocabulary=100))
    with pytest.raises(RuntimeUnsupported, match="token 200: the model has 100 rows"):
        small.start([1, 200, 3])
    steps = generate_step(mx.array([1, 200, 3]), model, drafter=small, num_draft_tokens=8, max_tokens=9)
    got = [token for token, _, _ in steps]
    assert "'model' is switched off" in caplog.text
    assert got == plain(model, [1, 200, 3], 9)


@pytest.mark.parametrize("kind", ["qwen3_5", "mamba2", *nightly("gemma3_text", "ministral3", "falcon_h1")])
def test_any_kind_of_cache_drafts_as_a_fresh_one_does(kind: str) -> None:
    model = tiny_model(kind)
    counted = Counted(model)
    drafter = ModelDrafter(counted)
    rng = random.Random(0)
    text = list(PROMPT)
    drafter.start(text)
    for cycle in range(15):
        fresh = ModelDrafter(model)
        fresh.start(text)
        counted.passes.clear()
        drafts = list(drafter.propose(4).tokens)
        assert drafts == list(fresh.propose(4).tokens), cycle
        # A state before each draft is at hand, so that only committed tokens are new.
        assert counted.passes[1:] == [1, 1, 1]
        assert counted.passes[0] <= 5
        right = rng.randint(0, 4)
        committed = [*drafts[:right], *([(drafts[right] + 1) % 256] if right < 4 else [7])]
        drafter.commit(committed)
        text += committed
    # Another text, far back: from the start, if need be.
    drafter.start(text[:20])
    fresh.start(text[:20])
    assert drafter.propose(4).tokens == fresh.propose(4).tokens


def test_vocabularies_are_compared_by_id() -> None:
    target = {"a": 0, "b": 1, "c": 2, "d": 3}
    assert vocabulary_mismatch({"a": 0, "b": 1, "c": 2, "<extra>": 4}, target) is None
    differing = vocabulary_mismatch({"a": 0, "b": 7, "c": 2, "d": 3}, target)
    assert differing and "target has 4, and 1 of these with other ids" in differing
    other = vocabulary_mismatch({"a": 0, "x": 1, "y": 2}, target)
    assert other and "target has 1, and 0 of these" in other


@pytest.mark.parametrize("translated", [False, *nightly(True)])
def test_a_cycle_compares_only_what_is_new(translated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the text is: the cache is known to hold the rest."""
    compared = list[int]()

    def counted(one: Sequence[int], other: Sequence[int]) -> int:
        compared.append(min(len(one), len(other)))
        return common_prefix(one, other)

    monkeypatch.setattr("spectool.runtime.caches.text_cache.common_prefix", counted)
    drafter: Drafter = ModelDrafter(tiny_model())
    if translated:
        draft, alignment = renumbered_target(tmp_path)
        found = load_drafter(demo_path("target"), draft_model=draft, alignment=alignment, history=False)
        assert found is not None
        (drafter,) = found.members
    drafter.start([5 + token % 200 for token in range(600)])
    for cycle in range(20):
        right = list(drafter.propose(3).tokens)
        if cycle:
            assert sum(compared) <= 16
        compared.clear()
        drafter.commit([*right, 7, 9])
    assert right
