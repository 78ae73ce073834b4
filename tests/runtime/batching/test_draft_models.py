"""Draft models for several texts at once, in passes that they share: each text is what it would be alone."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import load

from spectool.runtime.caches.shared import BatchCache
from spectool.runtime.caches.text_cache import AT_ONCE, TextCache
from spectool.runtime.decoding.generation import open_text
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import NOTHING, Drafter, DrafterSet, Drafting, Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.together import DraftPasses, SharedTexts
from spectool.runtime.loading import load_drafter
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.samplers import Sampling
from spectool.tests.runtime.batching.schedules import STREAM, Wanted, advance, near_ties, run, schedule, schedules
from spectool.tests.runtime.caches.holding import assert_holds
from spectool.tests.runtime.distributions import check_pairs
from spectool.tests.runtime.fake_drafters import Failing
from spectool.tests.runtime.models import perturbed, plain, tiny_model
from spectool.tests.runtime.renumbered import renumbered_target
from spectool.tests.tiers import nightly

KINDS = ["llama", "gemma3_text", "qwen3_5", "falcon_h1", "mamba2"]
PROMPT = [3, 1]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each pass of a draft model has served."""
    passes, feed = list[int](), SharedTexts.feed

    def noted(self: SharedTexts, wanted: Any) -> Any:
        passes.append(len(wanted))
        return feed(self, wanted)

    monkeypatch.setattr(SharedTexts, "feed", noted)
    return passes


LENGTHS = ["shared", "shared", "shared", None, 0, 3]


def mostly(drafters: DrafterSet) -> Any:
    """What prepares texts that come, go, leave and fail, most of them with drafts of one model."""

    def prepare(rng: random.Random, wanted: list[Wanted]) -> Any:
        for one in wanted[:2]:
            one.leaves_after = None
            one.options |= {"max_tokens": 40, "num_draft_tokens": "shared", "stop_tokens": ()}

        def make(one: Wanted) -> DrafterSet:
            forked = drafters.fork()
            assert forked is not None
            if rng.random() < 0.1:
                return DrafterSet([*forked.members, Failing([], rng.choice(["start", "propose", "commit"]), 2)])
            return forked

        return make

    return prepare


# Drafts of the same kind, and drafts of every kind for one target.
PAIRS = [("qwen3_5", "same"), *nightly(*(("llama", each) for each in KINDS[1:]))]
PAIRS += nightly(*((each, "same") for each in KINDS if each != "qwen3_5"))


@pytest.mark.parametrize(("kind", "draft"), PAIRS)
def test_every_text_is_its_own(kind: str, draft: str, shared: list[int]) -> None:
    model: Any = tiny_model(kind)
    drafting = perturbed(model, kind=kind, noise=0.05) if draft == "same" else tiny_model(draft, seed=7)
    base = DrafterSet([LookupDrafter(history=True), ModelDrafter(drafting, min_probability=0.2)])
    if draft != "same":  # one that is always wrong may not be asked for several
        schedules(model, 2, mostly(base), lengths=LENGTHS)
        return
    for _ in range(20):  # where one of two texts is short, they may share no pass of the draft model
        if max(shared, default=0) < 2:
            schedules(model, 1, mostly(base), lengths=LENGTHS)
    assert max(shared) > 1


@pytest.mark.parametrize("kinds", [["qwen3_5"], *nightly(KINDS)])
def test_shared_passes_draft_what_each_text_would_get_alone(kinds: list[str], shared: list[int]) -> None:
    """Drafts of a model for itself, all of which have to be right, in its own passes or in shared ones."""
    for kind in kinds:
        model: Any = tiny_model(kind)
        base, drafting, rng = ModelDrafter(model), list[Drafter](), random.Random(3)

        def make(one: Wanted, base: ModelDrafter = base, drafting: list[Drafter] = drafting) -> Drafter:
            drafting.append(base.fork())
            return drafting[-1]

        wanted = schedule(rng, 4, 256, 60, 40, ["shared"])
        for at, one in enumerate(wanted):
            one.at, one.leaves_after = 2 * at, None
            one.options |= {"max_tokens": 30, "stop_tokens": ()}
        assert run(model, wanted, make) > 1
        passes = sum(each.passes for each in drafting)
        assert passes <= 4 * 30, f"{kind}: {passes} passes for 120 tokens"
        assert near_ties(model, wanted) <= 1
    assert shared.count(1) < len(shared) / 2


@pytest.mark.parametrize(("kind", "cycles"), [("qwen3_5", 14), *nightly(*((kind, 25) for kind in KINDS))])
def test_shared_caches_follow_the_texts(kind: str, cycles: int, shared: list[int]) -> None:
    """Drafts of which many are wrong, of texts that rest, miss a lot, and go on: each as if its cache were fresh."""
    model = tiny_model(kind)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng, passes = random.Random(seed), DraftPasses()
    slots = [DrafterSlot(ModelDrafter(model)) for _ in range(3)]
    texts = [[number + 1, 5, 9] for number in range(3)]
    for slot, text in zip(slots, texts, strict=True):
        slot.start(text)
    read = [0] * 3  # tokens of each text when it last got drafts
    for cycle in range(cycles):
        asked = [at for at in range(3) if at < 2 or cycle % 11 == 0] if cycle < cycles - 5 else [0]
        read = [len(text) if at in asked else read[at] for at, text in enumerate(texts)]
        made = dict(zip(asked, passes.draft([(slots[at], 3) for at in asked]), strict=True))
        for at, text in enumerate(texts):
            drafts = list(made[at].tokens) if at in made else []
            assert at not in made or drafts == plain(model, text, 3), (cycle, at)
            new = [*drafts[: rng.randint(0, 3)], rng.randrange(3, 256)]
            new += [rng.randrange(3, 256) for _ in range(rng.choice([0] * 9 + [100]))]
            slots[at].follow(new)
            text += new
    assert max(shared) == 3
    for at, (slot, text) in enumerate(zip(slots, texts, strict=True)):
        assert slot.drafter is not None and slot.cache is not None
        cache, tokens = slot.cache.content()
        assert_holds(model, cache, tokens)
        assert len(tokens) >= read[at] - AT_ONCE, "what the next turn need not read: it goes back one pass at most"
        assert tokens == text[: len(tokens)] or kind in ("llama", "gemma3_text"), "others cannot take back"


@pytest.mark.parametrize("step", [3, *nightly(1)])
def test_a_model_that_fails_in_a_shared_pass_or_on_its_way(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Whatever fails, and however far it has come: the texts go on, and no row stays behind."""
    model, noise = tiny_model("qwen3_5"), random.Random(5)
    at, counts = {"call": -1, "join": -1, "leave": -1}, Counter[str]()

    def failing(name: str, act: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            result = act(*arguments, **options) if counts[name] != at[name] or noise.random() < 0.5 else None
            if counts[name] == at[name]:
                raise OSError("disk gone")
            return result

        return run

    rows = type("Rows", (BatchCache,), {name: failing(name, getattr(BatchCache, name)) for name in ("join", "leave")})
    monkeypatch.setattr("spectool.runtime.drafters.together.BatchCache", rows)
    drafting: Any = perturbed(model, kind="qwen3_5", noise=0.05)
    other = type("Other", (type(drafting),), {"__call__": failing("call", type(drafting).__call__)})
    drafting.__class__ = other
    for name, call in [("call", 9), ("call", 30), ("join", 1), ("join", 3), ("leave", 1), ("leave", 2)][::step]:
        at.update(dict.fromkeys(at, -1) | {name: call})
        counts.clear()
        base, policy = ModelDrafter(drafting), Policy(longest=4)
        batch, got = Loop(model, 3, policy, stream=STREAM), dict[Any, list[int]]()
        for number in range(3):
            settings = GenerationSettings(
                drafter=base.fork(), num_draft_tokens=policy, max_tokens=12 + 4 * number, prompt_cache=None
            )
            batch.add(target := open_text([3, number], model, settings))
            got[target] = []
        while len(batch):
            advance(batch, got)
        assert counts[name] >= call, (name, call)
        assert list(got.values()) == [plain(model, [3, number], 12 + 4 * number) for number in range(3)]
        assert all(each.settings.drafter.cache.shared is None for each in got), (name, call)


@pytest.mark.parametrize("other", [True, False])
def test_a_drafter_that_feeds_without_a_cache_gets_nothing(other: bool) -> None:
    class Odd(Drafter):
        name, costs_a_pass, got = "odd", True, list[Any]()

        def drafting(self, limit: int) -> Drafting[Proposal]:
            self.got.append((yield mx.array([3])))
            return NOTHING

    model, policy = tiny_model(), Policy(longest=2)
    batch, got = Loop(model, 2, policy, stream=STREAM), dict[Any, list[int]]()
    for drafter in (Odd(), ModelDrafter(model) if other else None):
        text = open_text(PROMPT, model, GenerationSettings(drafter=drafter, num_draft_tokens=policy, max_tokens=8))
        batch.add(text)
        got[text] = []
    while len(batch):
        advance(batch, got)
    assert list(got.values()) == [plain(model, PROMPT, 8)] * 2
    assert Odd.got and not any(Odd.got)


def test_rows_that_cannot_be_left_begin_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two were not drafted for in a while."""
    texts = SharedTexts(tiny_model())
    caches = [TextCache(texts.model) for _ in range(3)]
    texts.begin(caches)
    texts.feed(dict.fromkeys(caches, mx.array([5])))
    monkeypatch.setattr(BatchCache, "leave", lambda *_, **__: 1 / 0)
    for _ in range(12):
        texts.begin(caches[2:])
    assert [cache.shared for cache in caches] == [None] * 3
    assert [len(logits) for logits in texts.feed(dict.fromkeys(caches[1:], mx.array([5, 6]))).values()] == [2, 2]


def test_a_row_is_not_taken_back_further_than_its_windows_go() -> None:
    texts, tokens = SharedTexts(tiny_model("gemma3_text")), list(range(3, 53))
    caches = [TextCache(texts.model) for _ in range(2)]
    for _ in range(6):
        texts.begin(caches)
        texts.feed(dict.fromkeys(caches, mx.array(tokens)))
        for cache in caches:
            cache.tokens += tokens
    assert caches[0].rewind(290) == [] and caches[0].shared is texts
    assert caches[1].rewind(4) == tokens[:4] and not caches[1].tokens, "it begins again"


@pytest.mark.nightly
def test_drafts_with_another_tokenizer(tmp_path: Path, shared: list[int]) -> None:
    """A draft that knows the target, in other ids: it is nearly always right, also in shared passes."""
    model, tokenizer = load(str(demo_path("target")))
    draft, alignment = renumbered_target(tmp_path)
    base = load_drafter(tokenizer, draft_model=draft, alignment=alignment)
    assert base is not None
    schedules(model, 20, mostly(base), 1500, lengths=LENGTHS)
    assert sum(count > 1 for count in shared) > 20


@pytest.mark.nightly
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_drafts_keep_the_distribution(kind: str, shared: list[int]) -> None:
    """Drafts that are drawn in shared passes, and verified as blocks, while other texts leave and other drafts fail."""
    mx.random.seed(41)
    model: Any = tiny_model(kind, vocabulary=8, scale=2.0)
    sampling = Sampling(temp=0.8)
    base = ModelDrafter(perturbed(model, kind=kind, vocabulary=8, noise=0.3))
    wanted = [
        Wanted(PROMPT, {"max_tokens": 3, "num_draft_tokens": "shared", "sampler": sampling}, at // 5)
        for at in range(200)
    ]
    others = [Wanted(PROMPT, wanted[0].options, at, leaves_after=1 + at % 2) for at in range(40)]

    def make(one: Wanted) -> Drafter:
        failing = Failing([], ["start", "propose", "commit"][one.at % 3], 1)
        return failing if one.leaves_after == 1 else base.fork()

    run(model, [*wanted, *others], make, 5)
    assert sum(count > 1 for count in shared) > 20
    check_pairs(f"{kind}, seed 41", np.array([one.got for one in wanted]), model, PROMPT, sampling)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fifteen_hundred_operations(kind: str) -> None:
    """At temperature 0; each schedule has three to seven texts, which join, leave, fail and end."""
    model: Any = tiny_model(kind)
    drafting = perturbed(model, kind=kind, noise=0.05)
    schedules(model, 30, mostly(DrafterSet([LookupDrafter(history=True), ModelDrafter(drafting)])), lengths=LENGTHS)
