"""Random schedules: texts that come and go at any token, each compared with itself alone."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from spectool.runtime.decoding.generation import generate_step, open_text
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.policy.policy import Policy
from spectool.tests.runtime.caches.holding import assert_holds
from spectool.tests.runtime.decoding.test_lossless import TIE, compare

STREAM = mx.default_stream(mx.default_device())


@dataclass
class Wanted:
    """A text that a schedule asks for."""

    prompt: list[int]
    options: dict[str, Any]
    at: int  # step at which it comes
    leaves_after: int | None = None  # tokens after which its reader goes away
    held: list[int] = field(default_factory=list)  # tokens that its prompt cache holds before
    got: list[int] = field(default_factory=list)


def run(
    model: Any, wanted: Sequence[Wanted], make: Callable[[Wanted], Drafter | DrafterSet | None], rows: int = 4
) -> int:
    """Run a schedule and check every cache that it leaves; return the largest number of texts at a time.

    Where a text wants "shared" drafts, they are chosen by the policy of the loop.
    """
    policy = Policy(longest=4)
    batch, waiting = Loop(model, rows, policy, stream=STREAM), sorted(wanted, key=lambda one: one.at)
    running: dict[Any, Wanted] = {}
    step = most = 0
    while waiting or running:
        while waiting and waiting[0].at <= step:
            one = waiting[0]
            cache = make_prompt_cache(model)
            if one.held:
                mx.eval(model(mx.array([one.held]), cache=cache))
            if not batch.accepts(cache):
                break
            waiting.pop(0)
            options = dict(one.options)
            if options["num_draft_tokens"] == "shared":
                options["num_draft_tokens"] = policy
            settings = GenerationSettings(drafter=make(one), prompt_cache=cache, cached_tokens=one.held, **options)
            target = open_text(one.prompt, model, settings)
            batch.add(target)
            running[target] = one
        most = max(most, len(batch))
        for target in batch.step():
            one = running[target]
            left = target.ended
            for token, logprobs, _ in target.take():
                assert logprobs.ndim == 1
                one.got.append(token)
                if len(one.got) == one.leaves_after:
                    left = True
                    break
            if left:
                if batch.remove(target) is not None:
                    assert_holds(model, target.cache, [*one.held, *one.prompt, *one.got[:-1]])
                del running[target]
        step += 1
    assert not len(batch)
    return most


def advance(batch: Loop, got: dict[Any, list[int]]) -> None:
    """Make a step: ``got`` gets what each text gains, and a text that has ended is removed."""
    for text in batch.step():
        got[text] += [token for token, _, _ in text.take()]
        if text.ended:
            assert batch.remove(text)


def near_ties(model: Any, wanted: Sequence[Wanted]) -> int:
    """Compare every text with the same request alone; return the number of near-ties."""
    ties = 0
    for one in wanted:
        cache = make_prompt_cache(model)
        if one.held:
            mx.eval(model(mx.array([one.held]), cache=cache))
        options = {**one.options, "num_draft_tokens": 0}
        alone = generate_step(one.prompt, model, prompt_cache=cache, cached_tokens=one.held, **options)
        expected = [token for token, _, _ in alone][: one.leaves_after]
        ties += compare(model, [*one.held, *one.prompt], expected, one.got, TIE[None])
    return ties


def schedule(
    rng: random.Random,
    count: int,
    vocabulary: int,
    longest: int,
    most: int,
    lengths: Sequence[Any] = (None, 0, 1, 3, 8),
) -> list[Wanted]:
    """Return requests of prompts up to ``longest`` tokens, for up to ``most`` tokens each, with such drafts."""
    wanted = []
    for _ in range(count):
        phrase = [rng.randrange(3, vocabulary) for _ in range(rng.randint(1, longest // 2))]
        prompt = phrase + phrase[: rng.randrange(len(phrase))]
        options = {
            "max_tokens": rng.randint(1, most),
            "num_draft_tokens": rng.choice(lengths),
            "prefill_step_size": rng.choice([4, 16, 64]),
            "stop_tokens": {rng.randrange(vocabulary) for _ in range(rng.choice([0, 0, 8]))},
        }
        held = [rng.randrange(3, vocabulary) for _ in range(rng.choice([0, 0, rng.randint(1, longest)]))]
        leaves = rng.choice([None, None, rng.randint(1, most)])
        wanted.append(Wanted(prompt, options, rng.randint(0, 2 * count), leaves, held))
    return wanted


def schedules(
    model: Any, count: int, prepare: Callable[[random.Random, list[Wanted]], Any], vocabulary: int = 256, **options: Any
) -> None:
    """Compare random schedules with each text alone; ``prepare`` returns what makes the drafters of one."""
    ties = shared = 0
    for number in range(count):
        seed = random.randrange(1 << 30)
        print(f"schedule {number}: seed {seed}")
        rng = random.Random(seed)
        wanted = schedule(rng, rng.randint(3, 7), vocabulary, 80, 60, **options)
        wanted[0].at = wanted[1].at = 0  # share passes for sure
        make = prepare(rng, wanted)
        shared += run(model, wanted, make, rows=rng.randint(2, 5)) > 1
        ties += near_ties(model, wanted)
    assert shared > count / 2
    assert ties <= count
