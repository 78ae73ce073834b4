"""The generation loop keeps the target's distribution, whoever drafts and by whichever rule its drafts are verified.

Models of eight tokens draw three; pairs of them are compared with exact probabilities as in `test_verification`.
"""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, Drafting, Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.samplers import LogitsProcessor, Sampling
from spectool.runtime.sampling.verification import Draw
from spectool.tests.runtime.distributions import check_pairs
from spectool.tests.runtime.fake_drafters import Fixed
from spectool.tests.runtime.models import Counted, drafted, perturbed, plain, tiny_model
from spectool.tests.tiers import nightly

pytestmark = pytest.mark.usefixtures("interpreted")
VOCABULARY = 8
PROMPT = [3, 1]
RUNS = 200
MANY_RUNS = 4000


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(vocabulary=VOCABULARY, scale=2.0)


@pytest.fixture(scope="module")
def noisy(model: Any) -> Any:
    return perturbed(model, vocabulary=VOCABULARY, noise=0.4)


def no_repeats(tokens: mx.array, logits: mx.array) -> mx.array:
    """Forbid the token three places back, in place, as mlx-lm's penalties work."""
    logits[:, tokens[-3:-2]] = -mx.inf
    return logits


LOOPED: dict[str, tuple[Sampling, tuple[LogitsProcessor, ...]]] = {
    "temperature": (Sampling(temp=1.0), ()),
    "top-p, xtc": (Sampling(temp=0.9, top_p=0.9, xtc_probability=0.5, xtc_threshold=0.15), ()),
    "processors": (
        Sampling(temp=0.8, min_p=0.02),
        (*make_logits_processors({2: 0.7}, 1.3, 2, presence_penalty=0.5), no_repeats),
    ),
}


class Lookup(Fixed):
    """Continues every model draft with token 4."""

    def __init__(self) -> None:
        super().__init__([], "lookup")

    def extend(self, tokens: Any, limit: int) -> Proposal:
        return Proposal([4] if tokens[-1] > 3 else [], self.name, [0.9] if tokens[-1] > 3 else [])


class Overflowing(Counted):
    """A draft model whose logits are no numbers after some tokens, as those of a small type can be."""

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        return mx.where((tokens % 4 == 2)[..., None], mx.nan, super().__call__(tokens, cache))


def drafter_of(name: str, noisy: Any) -> Drafter | DrafterSet:
    if name == "guesses":
        return Fixed(plain(noisy, PROMPT, 2), "guesses")
    if name == "hybrid":
        return DrafterSet([Lookup(), ModelDrafter(noisy)])
    model = Overflowing(noisy) if name == "overflowing model" else noisy
    return ModelDrafter(model, min_probability=0.4 if name == "hesitant model" else 0.0)


def check_loop(model: Any, drafter: Drafter, kind: str, runs: int, opaque: bool = False) -> float:
    """Compare every pair and the first token with exact probabilities; return the acceptance rate."""
    sampling, processors = LOOPED[kind]
    theirs = make_sampler(
        sampling.temp,
        sampling.top_p,
        sampling.min_p,
        xtc_probability=sampling.xtc_probability,
        xtc_threshold=sampling.xtc_threshold,
    )
    total = DraftStatistics()
    options = {"logits_processors": processors, "statistics": total}
    options["sampler"] = theirs if opaque else sampling
    mx.random.seed(31)
    tokens = np.array([drafted(model, PROMPT, drafter, 3, **options) for _ in range(runs)])
    name = f"{drafter.name}, {kind}, acceptance {total.acceptance_rate:.3f}, {runs} runs, seed 31"
    check_pairs(name, tokens, model, PROMPT, sampling, processors)
    return total.acceptance_rate


@pytest.mark.parametrize(
    ("drafter", "runs"),
    [("model", 80), *nightly(*((each, RUNS) for each in ("model", "overflowing model", "guesses", "hesitant model")))],
)
def test_the_loop_keeps_the_distribution(model: Any, noisy: Any, drafter: str, runs: int) -> None:
    assert check_loop(model, drafter_of(drafter, noisy), "processors", runs) > 0.05


@pytest.mark.nightly
def test_the_loop_keeps_it_with_any_sampler(model: Any, noisy: Any) -> None:
    check_loop(model, drafter_of("model", noisy), "top-p, xtc", RUNS, opaque=True)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["model", "hesitant model", "hybrid", "guesses"])
@pytest.mark.parametrize("kind", list(LOOPED))
def test_the_loop_keeps_the_distribution_at_length(model: Any, noisy: Any, kind: str, drafter: str) -> None:
    check_loop(model, drafter_of(drafter, noisy), kind, MANY_RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(LOOPED))
def test_exact_match_keeps_the_distribution_at_length(model: Any, noisy: Any, kind: str) -> None:
    check_loop(model, drafter_of("model", noisy), kind, MANY_RUNS, opaque=True)


@pytest.mark.nightly
def test_the_loops_test_can_fail(model: Any, noisy: Any) -> None:
    """As many draws find a drafter that tells another distribution than it drew from."""

    class Liar(ModelDrafter):
        def drafting(self, limit: int) -> Drafting[Proposal]:
            proposal = yield from super().drafting(limit)
            q = proposal.distribution
            return proposal if q is None else proposal._replace(distribution=mx.full(q.shape, 1 / VOCABULARY))

    with pytest.raises(AssertionError, match="another distribution"):
        check_loop(model, Liar(noisy), "temperature", RUNS)


def test_drafts_with_the_targets_own_distribution_are_all_accepted(model: Any) -> None:
    for sampling, processors in LOOPED.values():
        total = DraftStatistics()
        options = {"sampler": sampling, "logits_processors": processors, "statistics": total}
        assert len(drafted(model, PROMPT, ModelDrafter(model), 60, num_draft_tokens=4, **options)) == 60
        # Passes of one and of five positions round differently.
        assert total.acceptance_rate > 0.95, sampling


def test_a_policy_uses_what_was_drawn_whatever_it_is() -> None:
    class Short(Fixed):
        """Asked for more, it draws one token: worth less, it turns out, than the look-up."""

        costs_a_pass = True

        def propose(self, limit: int) -> Proposal:
            return Proposal([3], self.name, distribution=mx.full((1, VOCABULARY), 1 / VOCABULARY))

    drafters = Fixed([1], "look-up"), Short([], "model")
    text = TextDrafters([DrafterSlot(each, vocabulary=VOCABULARY) for each in drafters])
    text.start(PROMPT)
    proposal = Policy().choose([(text, 4)]).proposals[0]
    assert (proposal.tokens, proposal.source) == ((3,), "model")
    assert proposal.distribution is not None


def test_drawing_ends_with_the_generation_that_asked_for_it(model: Any, noisy: Any) -> None:
    drafter = ModelDrafter(noisy)
    drafted(model, PROMPT, drafter, 5, sampler=Sampling(1.0))
    drafter.draw_with(None)
    drafter.start(PROMPT)
    expected = drafter.propose(4)
    assert expected.distribution is None
    drafter.draw_with(Draw(Sampling(1.0), (), VOCABULARY))
    seen: list[tuple[int, ...]] = []
    drafted(model, PROMPT, drafter, 5, on_cycle=lambda cycle: seen.append(cycle.proposal))
    assert seen[0] == tuple(expected.tokens)


def test_a_distribution_of_another_vocabulary_switches_off(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Foreign(Fixed):
        def propose(self, limit: int) -> Proposal:
            return Proposal([1, 2], self.name, distribution=mx.full((2, VOCABULARY + 1), 0.1))

    assert len(drafted(model, PROMPT, Foreign([]), 5, sampler=Sampling(temp=1.0))) == 5
    assert f"expected shape [drafts, {VOCABULARY}]" in caplog.text
