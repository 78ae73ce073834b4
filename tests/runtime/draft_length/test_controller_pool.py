"""Generations with the same model and drafter share a controller, one at a time."""

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest

from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.draft_length import controller_pool
from spectool.runtime.draft_length.controller import Controller
from spectool.tests.runtime.fake_drafters import Guesser
from spectool.tests.runtime.models import tiny_model

PROMPT = [1, 2, 3]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.fixture(autouse=True)
def _without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()  # what is given back must not wait for it
    yield
    gc.enable()


def used(model: Any, drafter: Any, count: int = 4, **options: Any) -> Controller:
    """The controller of a whole generation."""
    statistics = DraftStatistics()
    for _ in generate_step(
        mx.array(PROMPT), model, drafter=drafter, max_tokens=count, statistics=statistics, **options
    ):
        pass
    assert statistics.controller is not None
    return statistics.controller


def test_generations_share_it_until_model_or_drafter_changes(model: Any) -> None:
    drafter, other = Guesser(), tiny_model()
    first = used(model, drafter)
    assert first.passes.measured()
    assert used(model, drafter) is first
    assert used(model, Guesser()) is not first
    assert used(model, drafter) is first
    second = used(other, drafter)
    assert second is not first and used(other, drafter) is second
    assert used(model, drafter) is not first, "a drafter goes on with one model"


def test_a_controller_of_ones_own_is_used_and_not_kept(model: Any) -> None:
    drafter, own = Guesser(), Controller()
    assert used(model, drafter, num_draft_tokens=own) is own
    assert used(model, drafter) is not own


def test_one_that_is_in_use_is_not_shared(model: Any) -> None:
    drafter, statistics = Guesser(), DraftStatistics()
    first = used(model, drafter)
    running = generate_step(mx.array(PROMPT), model, drafter=drafter, max_tokens=4, statistics=statistics)
    next(running)
    assert statistics.controller is first
    beside = used(model, drafter)
    assert beside is not first
    running.close()
    assert used(model, drafter) is first, "whichever ended last"


@pytest.mark.parametrize("how", ["close", "dropped", "error"])
def test_it_comes_back_however_a_generation_ends(model: Any, how: str) -> None:
    drafter = Guesser()
    first = used(model, drafter)

    def stop(*_: Any) -> None:
        raise KeyError

    running = generate_step(
        mx.array(PROMPT), model, drafter=drafter, max_tokens=9, on_cycle=stop if how == "error" else None
    )
    if how in ("close", "dropped"):
        next(running)
    if how == "close":
        running.close()
    elif how == "error":
        with pytest.raises(KeyError):
            next(running)
    del running
    assert used(model, drafter) is first


def test_a_drafter_does_not_keep_its_model() -> None:
    model, drafter = tiny_model(), Guesser()
    used(model, drafter)
    gone = weakref.ref(model)
    del model
    assert gone() is None


def test_threads_never_hold_the_same_one() -> None:
    pair, held, twice = (type("Model", (), {})(), Guesser()), set[int](), list[int]()

    def work() -> None:
        for _ in range(500):
            controller = controller_pool.acquire_controller(*pair)
            if id(controller) in held:
                twice.append(id(controller))
            held.add(id(controller))
            held.discard(id(controller))
            controller_pool.release_controller(*pair, controller)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not twice


def test_a_model_without_weak_references_generates_all_the_same() -> None:
    bare = object()
    assert isinstance(controller_pool.acquire_controller(bare, Guesser()), Controller)
    controller_pool.release_controller(bare, Guesser(), Controller())
