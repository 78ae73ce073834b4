"""What passes cost is measured once, within its time, and kept; drafts are the same whenever they are asked for."""

from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from spectool.runtime import Sampling, generate_step, load_drafter
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.policy import costs as module
from spectool.runtime.policy.costs import SHORT, known_costs, model_key, new_policy, policy_for
from spectool.runtime.policy.curve import ASSUMED
from spectool.runtime.policy.measuring import time_passes
from spectool.runtime.policy.pass_costs import PassCosts, costs_path, load_costs, save_costs
from spectool.runtime.settings import LONGEST_DRAFT
from spectool.tests.runtime.fake_drafters import Fixed
from spectool.tests.runtime.models import KINDS, perturbed, prompts, tiny_model


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))


class Slow:
    """A model whose passes take as long as they are said to, on a clock set by hand."""

    def __init__(self, model: Any, seconds: dict[int, float]) -> None:
        self.model, self.now, self.seconds = model, 0.0, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        self.now += self.seconds[tokens.shape[1]]
        return self.model(tokens, cache=cache)


@pytest.mark.parametrize("dear", [0.02, 0.3, 1.0])
def test_the_short_measurement_takes_about_40_plain_passes(dear: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = Slow(tiny_model(), {rows: 1 + dear * (rows - 1) for rows in range(1, 33)})
    monkeypatch.setattr("spectool.runtime.policy.measuring.perf_counter", lambda: model.now)
    seconds, plain, _ = time_passes(model, lambda each: SHORT * each)
    assert model.now <= 1.2 * SHORT
    assert plain == dict.fromkeys(plain, 1.0) and {1, 2} <= seconds[64].keys()
    assert all(time == pytest.approx(1 + dear * (rows - 1)) for rows, time in seconds[64].items())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_cache_can_be_measured(kind: str) -> None:
    seconds, plain, _ = time_passes(tiny_model(kind), lambda each: SHORT * each)
    assert 1 in seconds[64] and plain[64] > 0


def test_it_is_measured_once_and_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny_model()
    draft: Any = perturbed(model, noise=0.1)
    drafter = DrafterSet([LookupDrafter(history=True), ModelDrafter(draft)])
    policy = new_policy(model, drafter)
    assert capsys.readouterr().err.count("measuring once") == 1, "both models have the same shapes"
    kept = load_costs(model_key(model))
    assert kept is not None and policy.record("model").cost.token > 0
    monkeypatch.setattr(module, "time_passes", None)
    again = new_policy(model, drafter)
    assert again.curve.costs(4, 64) == policy.curve.costs(4, 64)
    assert policy_for(model, drafter) is policy_for(model, drafter)
    assert policy_for(model, drafter, fresh=True) is not policy_for(model, drafter)


def start(model: Any, monkeypatch: pytest.MonkeyPatch, times: dict[int, float] | None) -> PassCosts:
    """What is kept after a start at which passes take these ``times``; None: nothing may be measured."""
    timed = None if times is None else (lambda *args, **options: ({64: times}, {64: times[1]}, 1.0))
    monkeypatch.setattr(module, "time_passes", timed)
    monkeypatch.setattr(module, "_measured_here", set())
    new_policy(model)
    kept = load_costs(model_key(model))
    assert kept is not None
    return kept


def test_it_is_measured_at_every_start_until_two_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny_model()
    disturbed, quiet = {1: 1.2, 2: 5.0, 4: 2.0, 8: 9.0}, {1: 1.0, 2: 1.1, 4: 1.3, 17: 3.0}
    assert not start(model, monkeypatch, disturbed).final
    assert new_policy(model).curve.seconds(2, 64) == 2.0, "as long as it is not sure, no size is dearer than more rows"
    kept = start(model, monkeypatch, quiet)
    assert not kept.final and kept.seconds[64] == quiet and kept.plain == {64: 1.0}
    kept = start(model, monkeypatch, {rows: 2.2 * time for rows, time in quiet.items()})
    assert kept.final and kept.seconds[64][2] == 1.1, "the machine was slower as a whole"
    start(model, monkeypatch, None)

    drift = new_policy(model).drift()
    for _ in range(20):
        drift.observe(1, 1.0, 1.0, drafted=False)
        drift.observe(4, 3.0, 1.3, drafted=True)
    assert not known_costs(model).final, "passes take longer than measured"  # type: ignore[union-attr]
    assert start(model, monkeypatch, quiet).final


@pytest.mark.parametrize("exact", [False, True])
def test_a_curve_of_too_few_sizes_is_measured_again(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cold start left it, in a file that does not say if it is final."""
    model: Any = tiny_model()
    path = save_costs(model_key(model), PassCosts("m", "CPU", {64: {1: 1.0, 2: 9.0}}, {64: 1.0}, (1, 2), exact))
    path.write_text(path.read_text(encoding="utf-8").replace(',\n "final": true', ""), encoding="utf-8")
    assert new_policy(model, measure=False).curve is ASSUMED
    kept = start(model, monkeypatch, {1: 1.0, 2: 1.0, 4: 1.0})
    assert kept.seconds == {64: {1: 1.0, 2: 1.0, 4: 1.0}} and not kept.final
    assert (kept.exact, kept.same_bits, new_policy(model).longest) == (exact, (1, 2), 1 if exact else LONGEST_DRAFT)


def test_without_a_measurement_the_stated_curve_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model: Any = tiny_model()
    monkeypatch.setattr(module, "time_passes", None)
    assert new_policy(model, measure=False).curve is ASSUMED
    (tmp_path / "spectool").write_text("a file where the folder should be")
    assert new_policy(model).curve is ASSUMED, "a cache that cannot be written"
    assert new_policy(lambda tokens, cache: None).curve is ASSUMED, "something that is called like a model"


@pytest.mark.parametrize("damage", ["{", '{"64": []}', '{"model": 1}', "[]", "null"])
def test_a_damaged_file_is_ignored_and_named(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    model: Any = tiny_model()
    path = costs_path(model_key(model))
    path.parent.mkdir(parents=True)
    path.write_text(damage, encoding="utf-8")
    assert new_policy(model, measure=False).curve is ASSUMED
    assert f"ignoring {path}: expected measurements" in caplog.text


@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_the_same_request_drafts_the_same_with_automatic_lengths(temp: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where passes take about as long as was measured: made-up costs are far from a tiny model's."""
    monkeypatch.setattr("spectool.runtime.policy.curve.Drift.observe", lambda *args, **options: None)
    model: Any = tiny_model()
    save_costs(model_key(model), PassCosts("m", "CPU", {64: {1: 1.0, 2: 1.1, 8: 1.6}}, {64: 1.0}, ()))
    drafter = DrafterSet([LookupDrafter(history=True), ModelDrafter(perturbed(model, noise=0.03))])

    def written(prompt: list[int], seed: int | None) -> tuple[list[int], list[tuple[int, ...]]]:
        drafts: list[tuple[int, ...]] = []
        options: Any = {
            "sampler": Sampling(temp),
            "seed": seed,
            "on_cycle": lambda cycle: drafts.append(cycle.proposal),
        }
        return [
            token for token, _, _ in generate_step(prompt, model, drafter=drafter, max_tokens=40, **options)
        ], drafts

    first = written(prompts(2)[0], 7)
    written(prompts(2)[1], None)
    assert written(prompts(2)[0], 7) == first and any(first[1])


def test_a_policy_of_the_demo_knows_its_draft_model() -> None:
    from spectool.runtime.demo_models import demo_path
    from spectool.runtime.loading import load_model

    model, tokenizer = load_model(str(demo_path("target")))
    drafter = load_drafter(tokenizer, draft_model=str(demo_path("draft")))
    began = perf_counter()
    cost = new_policy(model, drafter).record("model").cost
    assert 0 < cost.reading <= cost.token
    assert perf_counter() - began < 10


def test_draft_models_have_costs_of_their_own() -> None:
    target, small, large = tiny_model(), tiny_model(), tiny_model("gemma3_text")
    drafter = DrafterSet([ModelDrafter(small), ModelDrafter(large), ModelDrafter(small)])
    assert drafter.name == "model, model 2, model"
    assert DrafterSet(drafter.members).name == drafter.name
    policy = new_policy(target, drafter, measure=False)
    assert policy.record("model") is not policy.record("model 2")
    assert policy.record("model").cost.token == 1.0 != policy.record("model 2").cost.token


def test_a_drafter_with_passes_of_its_own_kind_has_a_usual_cost() -> None:
    drafter = Fixed([1], "own")
    drafter.costs_a_pass = True
    assert new_policy(tiny_model(), drafter, measure=False).record("own").cost.token > 0
