"""A text in a batch is the text that the same request gets alone, with every kind of cache."""

import random
from collections import defaultdict
from itertools import islice, pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors

from spectool.runtime.decoding.generation import open_text
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.samplers import Sampling
from spectool.tests.runtime.batching.schedules import STREAM, Wanted, advance, run, schedules
from spectool.tests.runtime.caches.holding import assert_holds
from spectool.tests.runtime.distributions import check_pairs
from spectool.tests.runtime.fake_drafters import Failing, Fixed, Guesser, Reference
from spectool.tests.runtime.models import LONE, plain, prompts, tiny_model
from spectool.tests.tiers import nightly

PROMPT = [3, 1]
KINDS = ["llama", "nemotron-nas", "qwen3", "gemma3_text", "ministral3", "qwen3_5", "falcon_h1", "mamba2"]
TIERED = ["qwen3_5", *nightly(*(each for each in KINDS if each != "qwen3_5"))]


def check_schedules(kind: str, count: int) -> None:
    """With drafters of every sort, each for one text."""
    model: Any = tiny_model(kind)

    def prepare(rng: random.Random, wanted: list[Wanted]) -> Any:
        look_ups = DrafterSet([LookupDrafter(history=True)])

        def make(one: Wanted) -> Drafter | DrafterSet | None:
            sort = rng.choice(["none", "history", "right", "partly right", "guesser", "failing"])
            if sort in ("none", "history", "guesser"):
                return {"history": look_ups.fork(), "guesser": Guesser(seed=rng.randrange(99))}.get(sort)
            text = plain(model, [*one.held, *one.prompt], one.options["max_tokens"])
            if sort == "failing":
                return Failing(text, "propose", 3)
            return Reference(text, wrong=0.3 if sort == "partly right" else 0.0, seed=rng.randrange(9))

        return make

    schedules(model, count, prepare)


@pytest.mark.parametrize("kind", TIERED)
def test_every_text_is_its_own(kind: str) -> None:
    check_schedules(kind, 1)


@pytest.mark.slow
def test_five_hundred_schedules() -> None:
    for kind in KINDS:
        check_schedules(kind, 500 // len(KINDS) + 1)


@pytest.fixture(scope="module")
def eight() -> Any:
    return tiny_model(vocabulary=8, scale=2.0)


def drawn(model: Any, count: int, rows: int, lengths: list[int], **options: Any) -> list[list[int]]:
    """Texts of three tokens in a batch, each after the same prompt, with guesses of different lengths."""
    guess = plain(model, PROMPT, 3)
    wanted = [
        Wanted(PROMPT, {"max_tokens": 3, "num_draft_tokens": lengths[at % len(lengths)], **options}, at // rows)
        for at in range(count)
    ]
    for at, one in enumerate(wanted):
        if "seed" in options:
            one.options["seed"] = options["seed"] + at
    run(model, wanted, lambda one: Fixed(guess), rows)
    return [one.got for one in wanted]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("count", [60, *nightly(200)])
def test_a_batch_keeps_the_distribution(eight: Any, count: int) -> None:
    mx.random.seed(31)
    sampling, processors = Sampling(temp=0.8, min_p=0.02), tuple(make_logits_processors({2: 0.7}, 1.3, 2))
    tokens = np.array(drawn(eight, count, 5, [0, 1, 2, 8], sampler=sampling, logits_processors=processors))
    check_pairs("batch, seed 31", tokens, eight, PROMPT, sampling, processors)


@pytest.mark.usefixtures("interpreted")
def test_a_seeded_text_is_the_same_in_any_batch(eight: Any) -> None:
    before = mx.random.state[0].tolist()  # type: ignore[index]
    texts = [drawn(eight, 12, rows, [2], sampler=Sampling(temp=1.0), seed=7) for rows in (1, 3, 5)]
    assert texts[0] == texts[1] == texts[2]
    assert len(set(map(tuple, texts[0]))) > 1
    assert mx.random.state[0].tolist() == before  # type: ignore[index]


@pytest.mark.usefixtures("interpreted")
def test_a_seeded_draft_is_no_longer_alone_than_among_others(eight: Any) -> None:
    text, options = plain(eight, PROMPT, 60), {"max_tokens": 60, "num_draft_tokens": 64, "seed": 7}
    wanted = [Wanted(PROMPT, {**options, "sampler": Sampling(temp=0.7)}, at) for at in (0, 0, 60)]  # the last one alone
    run(eight, wanted, lambda one: Reference(text))
    assert wanted[0].got == wanted[1].got == wanted[2].got


def test_a_seeded_draft_goes_on_after_the_same_token_alone_and_among_others(eight: Any) -> None:
    """Its prediction is lost and found again, where a text alone might have begun a pass without drafts."""

    def written(seed: int, others: int) -> list[int]:
        batch, got = Loop(eight, 3, Policy(), stream=STREAM), dict[Any, list[int]]()
        options: Any = {
            "seed": seed,
            "sampler": Sampling(temp=1.0),
            "prediction": PredictionDrafter([2, 1, 4, 0, 3, 7]),
        }
        seeded = open_text(PROMPT, eight, GenerationSettings(max_tokens=120, num_draft_tokens=4, **options))
        others_settings = GenerationSettings(max_tokens=150, num_draft_tokens=0)
        for text in (seeded, *(open_text([3, at], eight, others_settings) for at in range(others))):
            batch.add(text)
            got[text] = []
        while not seeded.ended:
            advance(batch, got)
        return got[seeded]

    for seed in range(4):
        assert written(seed, 0) == written(seed, 2), seed


def test_a_long_prompt_is_read_while_shorter_ones_keep_coming(eight: Any) -> None:
    batch, got = Loop(eight, 8, Policy(), stream=STREAM), dict[Any, list[int]]()
    long = open_text([token % 8 for token in range(200)], eight, GenerationSettings(max_tokens=2, prefill_step_size=20))
    batch.add(long)
    got[long] = []
    for _ in range(60):
        if len(batch) < 8:
            short = open_text(PROMPT * 5, eight, GenerationSettings(max_tokens=2))
            batch.add(short)
            got[short] = []
        advance(batch, got)
    assert len(got[long]) == 2 and len(got) > 20


def test_a_text_that_joins_does_not_wait_for_the_end_of_another(eight: Any) -> None:
    batch, got = Loop(eight, 2, Policy(), stream=STREAM), dict[Any, list[int]]()
    for max_tokens in (40, 4):
        batch.add(target := open_text(PROMPT, eight, GenerationSettings(max_tokens=max_tokens)))
        got[target] = []
        for _ in range(8):
            advance(batch, got)
    first, second = map(len, got.values())
    assert second == 4 and 8 < first < 20


@pytest.fixture
def widths(eight: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of a row in each pass, under a clock that says 1 second for a pass and 0.02 for each of them."""
    widths, now, run_model = list[int](), [0.0], type(eight).__call__

    def timed(model: Any, inputs: mx.array, *args: Any, **options: Any) -> mx.array:
        widths.append(inputs.shape[1])
        now[0] += 1 + 0.02 * inputs.shape[1]
        return run_model(model, inputs, *args, **options)

    monkeypatch.setattr(type(eight), "__call__", timed)
    monkeypatch.setattr("spectool.runtime.decoding.loop.perf_counter", lambda: now[0])
    return widths


def test_many_prompts_are_read_between_two_passes_of_few_texts(eight: Any, widths: list[int]) -> None:
    batch, texts = Loop(eight, 8, Policy(), stream=STREAM, reading_passes=2.0), dict[Any, list[int]]()
    for at in range(8):
        settings = GenerationSettings(max_tokens=30, num_draft_tokens=0)
        batch.add(target := open_text([token % 8 for token in range(40 + at)], eight, settings))
        texts[target] = []
        while not at and len(texts[target]) < 3:
            advance(batch, texts)
    del widths[:]
    while len(batch):
        advance(batch, texts)
    last = max(at for at, width in enumerate(widths) if width > 1)
    assert sum(width for width in widths if width > 1) == sum(range(40, 47))
    assert widths[:last].count(1) <= 3, "as many prompts as wait for each text are read before its next pass"
    assert [*map(len, texts.values())] == [30] * 8


@pytest.mark.nightly
def test_a_long_prompt_leaves_the_others_their_passes(eight: Any, request: pytest.FixtureRequest) -> None:
    long = [token % 8 for token in range(6_000)]

    def widths_of(reading_passes: float | None) -> list[int]:
        batch, texts = Loop(eight, 2, Policy(), stream=STREAM, reading_passes=reading_passes), dict[Any, list[int]]()
        del widths[:]
        for prompt, tokens in ((PROMPT, 30), (long, 3)):
            settings = GenerationSettings(max_tokens=tokens, num_draft_tokens=0, prefill_step_size=512)
            batch.add(target := open_text(prompt, eight, settings))
            texts[target] = []
        while len(batch):
            advance(batch, texts)
        assert list(texts.values()) == expected
        return list(widths)

    expected = [plain(eight, PROMPT, 30), plain(eight, long, 3)]
    widths = request.getfixturevalue("widths")
    widths_of(None)  # what a batch finds out about a model once takes a pass as well
    whole = [width for width in widths_of(None) if width > 1]
    assert whole == [512] * 11 + [367]
    bounded = widths_of(3.0)
    others_end = bounded.index(512)
    meanwhile, after = bounded[:others_end], bounded[others_end:]
    assert meanwhile.count(1) >= 30 and max(meanwhile) <= 3 * 1.02 / 0.02, "a piece takes no longer than three passes"
    assert sum(width for width in meanwhile if width > 1) > 2000, "pieces grow to what three passes take"
    assert all(1 in pair for pair in pairwise(meanwhile)), "there is a pass between two pieces"
    assert set(after[:-4]) == {512}, "once nobody else writes, pieces are whole"
    assert sum(width for width in bounded if width > 1) == sum(whole)


@pytest.mark.parametrize("kind", ["qwen3_5", *nightly("llama", "mamba2")])
@pytest.mark.parametrize("refused", [3, *nightly(0, 7)])
@pytest.mark.parametrize("begun", [0, 1])
def test_a_text_that_fails_leaves_its_own_cache_right(kind: str, refused: int, begun: int) -> None:
    """With drafts that are partly wrong, as another text shares its passes, or is read while it fails."""
    model: Any = tiny_model(kind)

    def refuse(tokens: mx.array, logits: mx.array) -> mx.array:
        if tokens.size >= len(PROMPT) + refused:
            raise ValueError("not in this language")
        return logits

    drafter = Reference(plain(model, PROMPT, 20), wrong=0.5, seed=refused)
    failing = GenerationSettings(max_tokens=20, drafter=drafter, num_draft_tokens=4, logits_processors=[refuse])
    batch = Loop(model, 2, Policy(), stream=STREAM)
    other, target = open_text([5, 2, 9, 4], model, GenerationSettings(max_tokens=12)), open_text(PROMPT, model, failing)
    got: dict[Any, list[int]] = {other: [], target: []}
    batch.add(other if begun else target)
    for step in range(200):
        if step == begun:
            batch.add(target if begun else other)
        for one in batch.step():
            try:
                got[one] += [token for token, _, _ in one.take()]
            except ValueError as error:
                assert one is target and str(error) == "not in this language"
            if one.ended:
                assert batch.remove(one) == len(one.prompt) + len(got[one]) - 1
                assert_holds(model, one.cache, [*one.prompt, *got[one]][:-1])
        if not len(batch):
            break
    assert got == {other: plain(model, [5, 2, 9, 4], 12), target: plain(model, PROMPT, 20)[:refused]}


def test_texts_that_leave_together_leave_nothing_behind(eight: Any) -> None:
    """Their pass is under way, and the next text has nothing to do with it."""
    batch = Loop(eight, 3, Policy(), stream=STREAM)
    leaving = [open_text(PROMPT, eight, GenerationSettings(max_tokens=40)) for _ in range(2)]
    for target in leaving:
        batch.add(target)
    for _ in range(6):
        advance(batch, {target: [] for target in leaving})
    assert [batch.remove(target) for target in leaving] == [len(PROMPT) - 1 + one.yielded for one in leaving]
    batch.add(last := open_text(PROMPT, eight, GenerationSettings(max_tokens=6)))
    got: dict[Any, list[int]] = {last: []}
    while len(batch):
        advance(batch, got)
    assert got[last] == plain(eight, PROMPT, 6)


@pytest.mark.parametrize("kind", TIERED)
@pytest.mark.parametrize("others", [0, 1])
def test_a_text_that_leaves_says_what_its_cache_holds(kind: str, others: int) -> None:
    """Whenever it leaves: before its prompt is read, before its first token, or later."""
    model: Any = tiny_model(kind)
    before, prompt = [5, 8, 13], [2, 7, 1, 9]
    known = []
    for steps in range(8):
        batch, gained = Loop(model, 2, Policy(), stream=STREAM), defaultdict[Any, list[int]](list)
        cache = make_prompt_cache(model)
        mx.eval(model(mx.array([before]), cache=cache))
        settings = GenerationSettings(max_tokens=30, prompt_cache=cache, cached_tokens=before, prefill_step_size=2)
        leaving = open_text(prompt, model, settings)
        for target in [open_text(PROMPT, model, GenerationSettings(max_tokens=40))] * others + [leaving]:
            batch.add(target)
        for _ in range(steps):
            advance(batch, gained)
        got = gained[leaving]
        held = batch.remove(leaving)
        known.append(held)
        if held is not None:
            assert not got or held == len(prompt) + len(got) - 1
            assert_holds(model, cache, [*before, *prompt, *got][: len(before) + held])
    assert known[0] == 0 and known[-1] is not None and known[-1] > len(prompt)
    assert not others or len(prompt) - 1 in known, "alone, the first token comes with the end of the prompt"


@pytest.mark.parametrize("kind", ["gemma3_text", "ministral3"])
@pytest.mark.parametrize("parts", [False, True], ids=["it joins another", "it is alone again"])
def test_a_text_ends_within_the_drafts_of_the_step_in_which(parts: bool, kind: str) -> None:
    """As at a stop string, which only the reader knows: its windows hold what they held at that place."""
    model: Any = tiny_model(kind)
    drafter = Reference(plain(model, PROMPT, 200), wrong=0.0, seed=0)
    batch, got = Loop(model, 2, Policy(), stream=STREAM), defaultdict[Any, list[int]](list)
    target = open_text(PROMPT, model, GenerationSettings(max_tokens=200, drafter=drafter, num_draft_tokens=4))
    batch.add(target)
    while len(got[target]) < 100:
        advance(batch, got)
    batch.add(other := open_text([5, 2], model, GenerationSettings(max_tokens=3)))
    changed = batch.step()
    while parts and not other.ended:
        for one in changed:
            got[one] += [token for token, _, _ in one.take()]
        changed = batch.step()
    assert len(target.gained) > 2 and (other in changed) == parts
    got[target] += [token for token, _, _ in islice(target.take(), 2)]
    assert batch.remove(target) == len(PROMPT) - 1 + len(got[target])
    assert_holds(model, target.cache, [*PROMPT, *got[target]][:-1])


@pytest.mark.parametrize("kind", ["gemma3_text", "ministral3"])
def test_a_draft_is_no_longer_than_a_shared_window_can_undo(kind: str) -> None:
    """Predictions of which every fiftieth token is wrong, with more draft tokens than a window has spare slots."""
    model: Any = tiny_model(kind)
    texts = {tuple(prompt): plain(model, prompt, 120) for prompt in prompts(2)}
    wanted = []
    for prompt, text in texts.items():
        prediction = PredictionDrafter([token if at % 50 != 49 else 1 for at, token in enumerate(text)])
        options = {"max_tokens": 120, "num_draft_tokens": 100, "prediction": prediction}
        wanted.append(Wanted(list(prompt), options, 0))
    assert run(model, wanted, lambda one: None) == 2
    assert [one.got for one in wanted] == list(texts.values())


@pytest.mark.parametrize("kind", ["llama4", *LONE])
def test_what_cannot_share_passes_is_alone(kind: str) -> None:
    model = tiny_model(kind)
    batch = Loop(model, 4, Policy(), stream=STREAM)
    assert batch.accepts(make_prompt_cache(model))
    batch.add(target := open_text(PROMPT, model, GenerationSettings(max_tokens=4)))
    assert not batch.accepts(make_prompt_cache(model))
    got: dict[Any, list[int]] = {target: []}
    while len(batch):
        advance(batch, got)
    assert got[target] == plain(model, PROMPT, 4)
