"""The draft source over an mlx-lm model: whatever its cache holds, it drafts what a model without one does."""

import random
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from spectool.runtime.caches import own
from spectool.runtime.drafters import model_source
from spectool.runtime.drafters.drafter import alone
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.translation.byte_aligned import FirstTokenRule
from spectool.tests.runtime.models import Counted, tiny_model
from spectool.tests.tiers import nightly
from spectool.tokenization.incremental.common_prefix import common_prefix

VOCABULARY = 64
BOS = 1


@pytest.fixture(scope="module", params=["llama", "ministral3", "qwen3_5"])
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model(request.param, vocabulary=VOCABULARY, scale=3)


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model(vocabulary=VOCABULARY, scale=3)


def draft(
    source: ModelSource, context: Sequence[int], constraint: FirstTokenRule, limit: int, unchanged: int = 0
) -> tuple[list[int], bool]:
    return alone(source.drafting(context, constraint, limit, unchanged), source.cache)


def more(source: ModelSource) -> list[int]:
    return alone(source.going_on(), source.cache)


class Twin:
    """No cache: every distribution from the whole text, every candidate by its score."""

    def __init__(self, model: Any, bos: int | None, size: int) -> None:
        self.model, self.bos, self.size = model, bos, size

    def scores(self, text: Sequence[int]) -> NDArray[np.float64]:
        logits = np.array(self.model(mx.array([text]))[0, -1].astype(mx.float32))[: self.size].astype(np.float64)
        return logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()

    def text(self, ids: Sequence[int]) -> list[int]:
        return list(ids) if self.bos is None or (ids and ids[0] == self.bos) else [self.bos, *ids]

    def first(self, ids: Sequence[int], constraint: FirstTokenRule) -> tuple[dict[tuple[int, bool], float], float]:
        """Score of every candidate that passes, and of all that stand to choice together."""
        text = self.text(ids)
        if not text:
            return {}, 0.0
        plain, scale, healed = self.scores(text), 0.0, []
        if ids and len(text) > 1 and ids[-1] < self.size and constraint.extensions.size:
            before = self.scores(text[:-1])
            scale = before[text[-1]]
            healed = [((y, True), before[y]) for y in constraint.extensions.tolist() if y < self.size]
        tokens = range(self.size) if constraint.first is None else constraint.first.tolist()
        found = {(y, False): plain[y] + scale for y in tokens if y < self.size} | dict(healed)
        every = float(np.logaddexp.reduce(list(found.values()))) if found else 0.0
        return {(y, h): score for (y, h), score in found.items() if constraint.allows(y, h)}, every

    def check(
        self, ids: list[int], constraint: FirstTokenRule, limit: int, answer: tuple[list[int], bool], floor: float = 0.0
    ) -> None:
        """Every token is the best, or as good up to rounding; the last alone takes all below the floor."""
        drafts, healed = answer
        found, every = self.first(ids, constraint)
        if not found or not limit:
            assert answer == ([], False)
            return
        assert 0 < len(drafts) <= limit
        likely = [found[drafts[0], healed] - every]
        assert found[drafts[0], healed] == pytest.approx(max(found.values()), abs=1e-3)
        text = [*self.text(ids)[: -1 if healed else None], drafts[0]]
        for token in drafts[1:]:
            scores = self.scores(text)
            assert scores[token] == pytest.approx(scores.max(), abs=1e-3)
            likely.append(likely[-1] + scores[token] - float(np.logaddexp.reduce(scores)))
            text.append(token)
        assert all(np.exp(p) > floor - 1e-3 for p in likely[:-1])
        assert len(drafts) == limit or np.exp(likely[-1]) < floor + 1e-3


def passes(token: int, healed: bool) -> bool:
    return (token * 7 + 3 * healed) % 3 > 0


def some(rng: random.Random, most: int = VOCABULARY + 8) -> NDArray[Any]:
    return np.array(rng.sample(range(most), rng.randint(1, 20)), dtype=np.int32)


def constraint_of(rng: random.Random) -> FirstTokenRule:
    return FirstTokenRule(
        some(rng) if rng.random() < 0.6 else np.zeros(0, dtype=np.int32),
        some(rng) if rng.random() < 0.2 else None,
        passes if rng.random() < 0.5 else lambda token, healed: True,
    )


def next_context(rng: random.Random, ids: list[int], answer: tuple[list[int], bool]) -> list[int]:
    """What a translator may make of it: drafts accepted, the tail spelled anew, or another text."""
    drafts, healed = answer
    kind = rng.random()
    if kind < 0.5:
        base = ids[: len(ids) - healed] + drafts[: rng.randint(0, len(drafts))]
    elif kind < 0.9:
        base = ids[: max(0, len(ids) - rng.randint(0, 3))]
    else:
        base = ids[: rng.randint(0, len(ids))]
    return base + [rng.randrange(2, VOCABULARY) for _ in range(rng.randint(0, 3))]


@pytest.mark.parametrize("bos, size", [(BOS, 50), *nightly((None, None), (None, 50), (BOS, None))])
@pytest.mark.parametrize("seed, floor", [(1, 0.05), *nightly((0, 0.0))])
def test_drafts_equal_those_without_a_cache(
    monkeypatch: pytest.MonkeyPatch, model: Any, bos: int | None, size: int | None, seed: int, floor: float
) -> None:
    monkeypatch.setattr(model_source, "MOST_ASKED", VOCABULARY)
    monkeypatch.setattr(model_source, "WORST", -np.inf)
    monkeypatch.setattr(own, "PREFILL_TOKENS", 7)
    rng = random.Random(seed)
    source = ModelSource(model, bos=bos, size=size, min_probability=floor)
    twin = Twin(model, bos, size or VOCABULARY)
    ids, before = list[int](), list[int]()
    healings = ended = 0
    for _ in range(40):
        if rng.random() < 0.05:
            ids = [rng.randrange(VOCABULARY) for _ in range(rng.randint(0, 50))]
        elif rng.random() < 0.05:
            ids = [BOS, *ids]
        constraint, limit = constraint_of(rng), rng.randint(0, 5)
        answer = draft(source, ids, constraint, limit, rng.randint(0, common_prefix(before, ids)))
        before = ids
        twin.check(ids, constraint, limit, answer, floor)
        ended += 0 < len(answer[0]) < limit
        healings += answer[1]
        ids = next_context(rng, ids[:80] if len(ids) < 80 else ids[:5], answer)
    assert healings > 3, seed
    assert (ended > 3) is (floor > 0), seed


EXTENSIONS = FirstTokenRule(extensions=np.arange(VOCABULARY, dtype=np.int32))
PLAIN_ONLY = FirstTokenRule(allows=lambda token, healed: not healed)
HEALED_ONLY = FirstTokenRule(extensions=np.arange(VOCABULARY, dtype=np.int32), allows=lambda token, healed: healed)


def test_a_pass_for_each_draft_token_with_healing_and_without(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "PREFILL_TOKENS", 20)
    counted = Counted(llama)
    source = ModelSource(counted)
    ids = list(range(2, 52))
    first, _ = draft(source, ids, FirstTokenRule(), 3)
    assert counted.passes == [20, 20, 9, 1, 1, 1]
    # Everything accepted, and one token of the target's own: only the last draft and that are new.
    ids = [*ids, *first, 7]
    counted.passes.clear()
    second, _ = draft(source, ids, FirstTokenRule(), 3)
    assert counted.passes == [2, 1, 1]
    # Healing reads the last two positions, so one known token is fed again and no pass added.
    ids = [*ids, second[0]]
    counted.passes.clear()
    third, healed = draft(source, ids, HEALED_ONLY, 3)
    assert healed
    assert counted.passes == [2, 1, 1]
    # The healed token was fed in the place of the last one.
    ids = [*ids[:-1], *third[:2], 9]
    counted.passes.clear()
    draft(source, ids, FirstTokenRule(), 1)
    assert counted.passes == [1]


class Traced(Counted):
    """Inside `mx.compile` its logits are placeholders, which MLX refuses to evaluate."""

    placeholder = mx.zeros(1)

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        return super().__call__(tokens, cache) + self.placeholder


def test_a_chain_stays_on_the_device(llama: Any) -> None:
    """Only the boundary check has to see a token, the first one; the 7 after it are evaluated at once."""
    traced = Traced(llama)
    source = ModelSource(traced)

    def propose(placeholder: mx.array) -> mx.array:
        traced.placeholder = placeholder
        alone(source.going_on(7), source.cache)
        return placeholder

    draft(source, list(range(2, 20)), EXTENSIONS, 1)
    traced.passes.clear()

    mx.enable_compile()
    with pytest.raises(ValueError, match="eval an array during function transformations"):
        mx.compile(propose)(mx.zeros(1))
    mx.disable_compile()
    assert len(traced.passes) == 7


def test_asks_no_more_than_the_limit_and_in_order(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_source, "MOST_ASKED", 4)
    monkeypatch.setattr(model_source, "WORST", -np.inf)
    asked: list[tuple[int, bool]] = []

    def never(token: int, healed: bool) -> bool:
        asked.append((token, healed))
        return False

    ids = [5, 6, 7]
    constraint = FirstTokenRule(EXTENSIONS.extensions, allows=never)
    assert draft(ModelSource(llama), ids, constraint, 3) == ([], False)
    assert len(asked) == len(set(asked)) == 4
    scores = Twin(llama, None, VOCABULARY).first(ids, EXTENSIONS)[0]
    assert [scores[key] for key in asked] == pytest.approx(
        sorted((scores[key] for key in asked), reverse=True), abs=1e-3
    )
    assert scores[asked[0]] == pytest.approx(max(scores.values()), abs=1e-3)


@pytest.mark.parametrize("second, taken", [(-1.0, True), (-12.0, False)])
def test_only_what_is_nearly_as_probable_takes_the_place_of_a_refused_token(
    llama: Any, second: float, taken: bool
) -> None:
    source = ModelSource(llama)
    logits = np.full(VOCABULARY, -20.0, np.float32)
    logits[[7, 9]] = 0, second

    def read(found: mx.array) -> mx.array:
        return mx.broadcast_to(mx.array(logits), (len(found), VOCABULARY))

    source.read = read  # type: ignore[method-assign]
    not_7 = FirstTokenRule(allows=lambda token, healed: token != 7)
    assert draft(source, [5, 6], not_7, 1) == (([9], False) if taken else ([], False))


@pytest.mark.parametrize("bos", [BOS, *nightly(None)])
@pytest.mark.parametrize("constraint", [FirstTokenRule(), EXTENSIONS, HEALED_ONLY], ids=["any", "extensions", "healed"])
def test_more_is_what_a_longer_draft_has(model: Any, bos: int | None, constraint: FirstTokenRule) -> None:
    """Also where a recurrent state has to be fed again, and the cache is as good as after the longer draft."""
    asked, whole = ModelSource(model, bos=bos), ModelSource(model, bos=bos)
    ids = list(range(2, 12))
    for _ in range(4):
        for limit in (1, 3):
            drafts, healed = draft(asked, ids, constraint, limit)
            further = [*drafts, *more(asked), *more(asked)]
            assert (further, healed) == draft(whole, ids, constraint, limit + 2)
        ids = [*ids[: len(ids) - healed], *further[:3], 5]
