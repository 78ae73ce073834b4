"""What passes cost is measured once, within its time, and kept; drafts are the same whenever they are asked for."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from spectool import RuntimeUnsupported
from spectool.runtime import DraftStatistics, Sampling, generate_step
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.policy import costs as module
from spectool.runtime.policy.costs import SHORT, known_costs, model_key, new_policy, policy_for
from spectool.runtime.policy.curve import ASSUMED
from spectool.runtime.policy.measuring import time_passes
from spectool.runtime.policy.pass_costs import PassCosts, costs_path, load_costs, save_costs
from spectool.runtime.settings import LONGEST_DRAFT
from spectool.tests.runtime.fake_drafters import Fixed, Reference
from spectool.tests.runtime.models import KINDS, perturbed, prompts, tiny_model
from spectool.tests.tiers import nightly


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))


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
    assert kept is not None and policy.records["model"].cost.token > 0
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

    drift = new_policy(model).drifts[1]
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


def test_without_a_measurement_the_stated_curve_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model: Any = tiny_model()
    monkeypatch.setattr(module, "time_passes", None)
    assert new_policy(model, measure=False).curve is ASSUMED
    (tmp_path / "spectool").write_text("a file where the folder should be")
    assert new_policy(model).curve is new_policy(model).curve is ASSUMED, "a cache that cannot be written"
    assert caplog.text.count("was not measured") == 1, "not tried for each text with a seed"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / (300 * name)))
    assert new_policy(model, measure=False).curve is ASSUMED, "a cache that cannot be read"
    assert new_policy(lambda tokens, cache: None).curve is ASSUMED, "something that is called like a model"


@pytest.mark.parametrize("damage", ["{", '{"64": []}', '{"model": 1}', "[]", "null"])
def test_a_damaged_file_is_ignored_and_named(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    model: Any = tiny_model()
    path = costs_path(model_key(model))
    path.parent.mkdir(parents=True)
    path.write_text(damage, encoding="utf-8")
    assert new_policy(model, measure=False).curve is ASSUMED
    assert f"ignoring {path}: expected measurements" in caplog.text


@pytest.mark.parametrize("options", [{}, *nightly({"seed": 1}, {"logits_processors": [lambda tokens, logits: logits]})])
def test_plain_passes_that_are_wanted_for_comparison_are_timed(options: dict[str, Any]) -> None:
    """Whether a pass could begin ahead or not: else nothing would be drafted any more."""
    model: Any = tiny_model()
    save_costs(model_key(model), PassCosts("m", "CPU", {64: {1: 1.0, 2: 1.0, 4: 1.0}}, {64: 1.0}, ()))
    prompt = mx.array([1, 2, 3])
    drafter = Reference([int(token) for token, *_ in generate_step(prompt, model, max_tokens=100)])
    drafter.longest, statistics = 1, DraftStatistics()
    for _ in generate_step(prompt, model, drafter=drafter, max_tokens=100, statistics=statistics, **options):
        pass
    assert statistics.policy is not None and statistics.policy.drifts[1]._seen[False] > 1
    assert statistics.accepted > 20


@pytest.mark.parametrize("temp", [1.0, *nightly(0.0)])
def test_the_same_request_drafts_the_same_with_automatic_lengths(temp: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up costs are far from a tiny model's, which only texts that draw with a seed do not notice."""
    monkeypatch.setattr(module, "_doubt", lambda key: None)  # they would be measured again
    if not temp:
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
        steps = generate_step(prompt, model, drafter=drafter, max_tokens=120, **options)
        return [token for token, _, _ in steps], drafts

    first = written(prompts(2)[0], 7)
    written(prompts(2)[1], None)
    assert written(prompts(2)[0], 7) == first and any(first[1])


def test_a_second_draft_model_is_refused() -> None:
    with pytest.raises(RuntimeUnsupported, match="at most one draft model"):
        DrafterSet([ModelDrafter(tiny_model()), ModelDrafter(tiny_model("gemma3_text"))])


def test_a_drafter_with_passes_of_its_own_kind_has_a_usual_cost() -> None:
    drafter = Fixed([1], "own")
    drafter.costs_a_pass = True
    assert new_policy(tiny_model(), drafter, measure=False).records["own"].cost.token > 0
