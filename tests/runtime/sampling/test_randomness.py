"""Seeds and failures: MLX's random state is shared, and no generation changes what others draw from it."""

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.sample_utils import make_sampler

from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, Proposal
from spectool.runtime.sampling.samplers import Sampling
from spectool.tests.runtime.models import perturbed, plain

PROMPT = [7, 8, 9]
SAMPLING = Sampling(temp=1.0)


@pytest.fixture(scope="module")
def noisy(model: Any) -> Any:
    return perturbed(model, noise=0.3)


def begun(model: Any, count: int = 8, **options: Any) -> Iterator[int]:
    steps = generate_step(PROMPT, model, max_tokens=count, **{"sampler": SAMPLING, **options})
    return (token for token, _, _ in steps)


def drawn() -> float:
    return float(mx.random.uniform().item())


def test_a_seed_gives_the_text_that_mlx_lm_gives_to_it(model: Any) -> None:
    mx.random.seed(5)
    expected = plain(model, PROMPT, 12, sampler=make_sampler(temp=1.0))
    mx.random.seed(99)
    assert list(begun(model, 12, seed=5)) == expected
    identity: Callable[[mx.array, mx.array], mx.array] = lambda tokens, logits: logits  # noqa: E731
    assert list(begun(model, 12, seed=5, logits_processors=[identity])) == expected


@pytest.mark.parametrize("drafted", [False, True])
def test_a_seed_repeats_a_text_and_does_not_outlive_it(model: Any, noisy: Any, drafted: bool) -> None:
    def options() -> dict[str, Any]:
        return {"drafter": ModelDrafter(noisy), "num_draft_tokens": 3} if drafted else {}

    mx.random.seed(1)
    expected, after = [list(begun(model, **options())) for _ in range(2)], drawn()
    assert expected[0] != expected[1]
    mx.random.seed(1)
    seeded = [list(begun(model, seed=3, **options()))]
    unseeded = [list(begun(model, **options()))]
    broken_off = begun(model, seed=3, **options())
    next(broken_off)
    unseeded.append(list(begun(model, **options())))
    seeded.append(list(begun(model, seed=3, **options())))
    assert (unseeded, drawn()) == (expected, after), "as if no generation had a seed"
    assert seeded[0] == seeded[1] != list(begun(model, seed=4, **options()))


def test_generations_that_take_turns_do_not_hear_of_each_other(model: Any) -> None:
    alone = list(begun(model, seed=3))
    both = [begun(model, seed=3), begun(model), begun(model, seed=3)]
    taken = [[next(one) for one in both] for _ in range(8)]
    first, middle, last = zip(*taken, strict=True)
    assert list(first) == list(last) == alone != list(middle)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("options", [{"top_k": 10**6}, {"min_p": 2.0}, {"xtc_threshold": 0.9, "xtc_probability": 0.5}])
def test_a_sampler_that_fails_leaves_the_state_as_it_was(model: Any, options: dict[str, Any], seed: int | None) -> None:
    mx.random.seed(6)
    expected = drawn()
    mx.random.seed(6)
    with pytest.raises(ValueError, match=r"has to be|must be|should be|interval"):
        list(begun(model, sampler=make_sampler(0.7, **options), seed=seed))
    assert drawn() == expected


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_drafter_whose_sampler_fails_costs_no_text(
    model: Any, hybrid: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Drafter):
        name = "broken"

        def propose(self, limit: int) -> Proposal:
            return Proposal(make_sampler(0.7, top_k=10**6)(mx.zeros((1, 9))).tolist(), self.name)  # type: ignore[arg-type]

    drafter: Drafter = Broken()
    text = list(begun(model, drafter=DrafterSet([drafter]) if hybrid else drafter))
    assert "'broken' is switched off" in caplog.text
    assert len(text) == 8
    assert 0 <= drawn() < 1
