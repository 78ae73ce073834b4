"""However a generation ends, the caches hold what was yielded without its last token."""

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ChunkedKVCache, make_prompt_cache

from spectool.runtime.caches.leaves import flatten
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle
from spectool.runtime.mlx_lm_compat import windows
from spectool.tests.runtime.caches.holding import assert_holds
from spectool.tests.runtime.decoding.tiny_texts import PROMPT, generated
from spectool.tests.runtime.fake_drafters import Failing, Reference
from spectool.tests.runtime.models import KINDS, Counted, plain, tiny_model
from spectool.tests.runtime.models import drafted as written
from spectool.tests.tiers import nightly


class Broken:
    """A model that breaks off in its n-th pass, when the first layers have been fed and the others have not."""

    def __init__(self, model: Any, fail_at: int, layers: int = 1) -> None:
        self._model = model
        self._fail_at = fail_at
        self._layers = layers
        self._calls = 0

    def __call__(self, tokens: mx.array, cache: list[Any] | None = None) -> mx.array:
        if cache is None:  # no pass, only a look at the shape of its logits
            return self._model(tokens)
        self._calls += 1
        if self._calls == self._fail_at:
            self._model(tokens, cache=[*cache[: self._layers], *copy.deepcopy(cache[self._layers :])])
            raise MemoryError
        return self._model(tokens, cache=cache)


@pytest.mark.parametrize("method", ["start", "propose", "commit"])
def test_an_interrupt_passes_and_leaves_the_cache_whole(model: Any, text: list[int], method: str) -> None:
    cache, yielded = make_prompt_cache(model), []
    call = 1 if method == "start" else 2
    failing = Failing(text, method, call, KeyboardInterrupt())
    steps = generate_step(PROMPT, model, drafter=failing, num_draft_tokens=8, prompt_cache=cache)
    with pytest.raises(KeyboardInterrupt):
        for token, _, _ in steps:
            yielded.append(token)
    assert_holds(model, cache, (PROMPT + yielded)[:-1])


@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_a_prompt_that_breaks_off_stays_as_far_as_its_owner_knows(kind: str) -> None:
    model, prompt, noted = tiny_model(kind), PROMPT * 4, [0]
    cache = make_prompt_cache(model)
    asked: Any = {"prompt_cache": cache, "max_tokens": 5, "on_prompt": noted.append}
    with pytest.raises(MemoryError):
        list(generate_step(prompt, Broken(model, fail_at=4), prefill_step_size=4, **asked))
    assert noted[-1] == (12 if kind == "llama" else 0)
    if noted[-1]:
        assert_holds(model, cache, prompt[: noted[-1]])
    assert [token for token, _, _ in generate_step(prompt[noted[-1] :], model, **asked)] == plain(model, prompt, 5)


ENDED = ["llama", *nightly("gemma3_text", "ministral3", "llama4", "qwen3_5", "falcon_h1", "mamba2")]


@pytest.mark.parametrize("kind", ENDED)
@pytest.mark.parametrize(("wrong", "step"), [(0.4, 3), *nightly((0.4, 1), (0.0, 1), (None, 1))])
def test_every_kind_of_cache_ends_as_it_should(kind: str, wrong: float | None, step: int) -> None:
    """Closed or broken off anywhere, it holds all but the last token."""
    model = tiny_model(kind)
    prompt = PROMPT * 4  # 20 tokens: both windows, of 24 and of 48, are crossed
    text = plain(model, prompt, 40)
    for stop in (40, 38, 31, 27, 14, 4, *range(15, 0, -2))[::step]:
        cache = make_prompt_cache(model)
        drafter = None if wrong is None else Reference(text, wrong=wrong)
        steps = generate_step(
            mx.array(prompt), model, drafter=drafter, num_draft_tokens=8, prompt_cache=cache, max_tokens=40
        )
        yielded = [next(steps)[0] for _ in range(stop)]
        assert yielded == text[:stop]
        if stop == 40:
            assert list(steps) == []
        elif stop % 2:
            steps.close()
        else:
            with pytest.raises(LookupError):
                steps.throw(LookupError())
        assert_holds(model, cache, (prompt + yielded)[:-1])
        # The conversation goes on from there, drafted and plain.
        for next_drafter in (Reference(text[stop:]), None):
            more = written(model, yielded[-1:], next_drafter, 40 - stop, prompt_cache=copy.deepcopy(cache))
            assert more == text[stop:]


def assert_interrupted(model: Any, cache: Sequence[Any], tokens: Sequence[int]) -> None:
    """Check what an interruption between two tokens leaves: all but the last, or all, but only in a wrapped window."""
    wrapped = [
        leaf
        for leaf in flatten(cache)
        if isinstance(leaf, windows.WINDOWS)
        and leaf.offset == len(tokens) >= (leaf.chunk_size if isinstance(leaf, ChunkedKVCache) else leaf.max_size)
    ]
    assert_holds(model, cache, tokens if wrapped else tokens[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_begins_before_the_token_of_the_one_before_it_is_read(kind: str) -> None:
    model, prompt = tiny_model(kind), PROMPT * 4
    text = plain(model, prompt, 40)
    counted, cache = Counted(model), make_prompt_cache(model)
    steps = generate_step(mx.array(prompt), counted, prompt_cache=cache, max_tokens=40)
    for number, (token, _, _) in enumerate(steps, 1):
        # Without the prompt pass; none ahead at the end.
        assert (token, len(counted.passes) - 1) == (text[number - 1], min(number + 1, 40))
    assert_holds(model, cache, prompt + text[:-1])


@pytest.mark.parametrize("step", [2, *nightly(1)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_ahead_is_undone_wherever_it_is_interrupted(kind: str, step: int) -> None:
    model, prompt = tiny_model(kind), PROMPT * 4
    text = plain(model, prompt, 12)

    class Once(Reference):
        """Proposes in the first cycle alone, so that the next pass may begin by feeding tokens again."""

        def propose(self, limit: int) -> Any:
            found = super().propose(limit)
            if self.committed:
                raise EOFError
            return found

    def interrupt(cycle: Cycle) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    for cycles in range(1, 8, step):
        for drafter in (None, Once(text, wrong=0.4)):
            cache, yielded, left = make_prompt_cache(model), list[int](), cycles
            options: dict[str, Any] = {"num_draft_tokens": 8, "prompt_cache": cache, "on_cycle": interrupt}
            steps = generate_step(prompt, model, drafter=drafter, max_tokens=12, **options)
            with pytest.raises(KeyboardInterrupt):
                for token, _, _ in steps:
                    yielded.append(token)
            assert yielded == text[: len(yielded)]
            assert_interrupted(model, cache, prompt + yielded)


@pytest.mark.parametrize("kind", ["llama4", "qwen3_5", *nightly("gemma3_text", "ministral3", "falcon_h1", "mamba2")])
@pytest.mark.parametrize("drafted", [True, False])
@pytest.mark.parametrize("step", [2, *nightly(1)])
def test_every_kind_of_cache_outlives_errors(kind: str, drafted: bool, step: int) -> None:
    model = tiny_model(kind)
    text = plain(model, PROMPT * 4, 60)
    held = PROMPT * 2
    for broken in (1, 2, 3, 4, 6, 9, 12)[::step]:
        cache, yielded = make_prompt_cache(model), []
        mx.eval(model(mx.array([held]), cache=cache))
        breaking, drafter = Broken(model, broken, layers=broken % 3), Reference(text, wrong=0.3) if drafted else None
        options: dict[str, Any] = {"num_draft_tokens": 8, "prompt_cache": cache, "prefill_step_size": 4}
        steps = generate_step(PROMPT * 2, breaking, drafter=drafter, **options)
        with pytest.raises(MemoryError):
            for token, _, _ in steps:
                yielded.append(token)
        # Three passes over the prompt but for its last token.
        whole = broken > 3
        assert yielded == text[: len(yielded)]
        assert bool(yielded) == (broken > 4)
        if whole and not drafted:
            assert_interrupted(model, cache, [*held, *PROMPT * 2, *yielded])
        else:
            assert_holds(model, cache, [*held, *((PROMPT * 2 + yielded)[:-1] if whole else ())])


def test_a_stop_token_inside_an_accepted_draft(model: Any, text: list[int]) -> None:
    stop = next(token for token in text[3:] if text.index(token) >= 3)
    at = text.index(stop)
    cache, total, cycles = make_prompt_cache(model), DraftStatistics(), list[Cycle]()
    drafter = Reference(text)
    got = generated(
        model,
        drafter,
        40,
        num_draft_tokens=39,
        stop_tokens={stop},
        prompt_cache=cache,
        statistics=total,
        on_cycle=cycles.append,
    )
    assert got == drafter.committed == text[: at + 1]
    assert (total.tokens, total.accepted, total.passes) == (at + 1, at + 1, 1)
    assert [cycle[:4] for cycle in cycles] == [(tuple(text[:39]), "oracle", at + 1, tuple(text[: at + 1]))]
    assert_holds(model, cache, PROMPT + text[:at])
