"""The table of draft models, what it promises on a machine, and which draft models are refused."""

from pathlib import Path
from typing import Any

import mlx.nn as nn
import pytest

from spectool import SpectoolError
from spectool.measure import drafts, machines
from spectool.measure.drafts import Draft, advise, cached_draft, expected_speed
from spectool.runtime.loading import load_model
from spectool.runtime.policy.costs import model_key
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.pass_costs import PassCosts, save_costs
from spectool.tests.measure.predict.predicting import TARGET

# Replays of answers by Bielik 11B with Gemma 3 270M at 0.03, 0.05 and 0.1 plain passes a token, by curve (issue 67):
REPLAYED = [
    ({1: 1, 2: 1.0, 4: 1.28, 6: 2.04, 8: 2.5}, (1.38, 1.52, 1.45, 1.29)),
    ({1: 1, 2: 1.03, 3: 1.22, 4: 1.47, 6: 2.07, 8: 2.69}, (1.33, 1.43, 1.37, 1.23)),
    ({1: 1, 2: 1.05, 3: 1.05, 4: 1.10, 5: 1.14, 6: 1.43, 8: 1.71}, (1.46, 1.65, 1.57, 1.39)),
    ({1: 1, 3: 1.11, 5: 1.45, 8: 2.2, 12: 3.2}, (1.36, 1.53, 1.46, 1.30)),
    ({1: 1, 16: 3.55}, (1.20, 1.34, 1.28, 1.15)),
]
SMALL = Draft("Demo", ["owner/demo"], 1, pruned=0.0001, layers=2, licence="Apache 2.0", accept=False, right={"pl": 0.8})


def large_model() -> Any:
    """Weights of 11 billion numbers in 4 bits that are never computed."""
    model = nn.Sequential(*[nn.Linear(33_024, 33_280, bias=False) for _ in range(10)])
    nn.quantize(model, bits=4)
    return model


@pytest.mark.parametrize(("points", "speeds"), REPLAYED)
def test_what_is_promised_is_about_what_replays_gain(points: dict[int, float], speeds: tuple[float, ...]) -> None:
    curve, look_ups, right = PassCurve({0: points}, {0: 1.0}), 0.405, 0.577  # shares of first guesses there
    assert expected_speed(curve, look_ups, 0.0) == pytest.approx(speeds[0], rel=0.05)
    for token, speed in zip((0.03, 0.05, 0.1), speeds[1:], strict=True):
        assert expected_speed(curve, right, drafts.PASSES * token) == pytest.approx(speed, rel=0.08)


@pytest.mark.parametrize(("chip", "pays"), [("M4 Pro", True), ("M1 Ultra", False), ("M3 Ultra", False)])
def test_a_draft_model_pays_where_its_passes_are_cheap(chip: str, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "chip_name", lambda: chip)
    advice = advise(large_model(), "pl")
    assert advice.draft is not None and advice.draft.name == "Gemma 3 270M"
    assert advice.pays is pays and 1 <= advice.speed[0] <= advice.speed[1] < 2
    assert 0.02 < advice.cost[0] < advice.cost[1]
    said = advice.sentence("./Bielik 11B", "pl")
    assert ("is expected to pay: " in said) is pays and f"{advice.look_ups[0]:.2f} to {advice.look_ups[1]:.2f}" in said
    command = "spectool setup './Bielik 11B' --language pl --draft-model mlx-community/gemma-3-270m-it-bf16"
    assert (said.endswith(command) and "540 MB to download" in said and "Gemma Terms of Use" in said) is pays
    assert advise(large_model(), "xx").sentence("./Bielik-11B", "xx").startswith("No draft model that is known")


def test_what_was_measured_here_comes_before_what_was_published(cache: Path) -> None:
    model = load_model(TARGET)[0]
    with pytest.raises(SpectoolError, match="spectool doctor"):
        advise(model, "pl", [SMALL])
    for plain, pays in ((10.0, True), (1e-5, False)):
        costs = PassCosts("demo", "here", {64: {1: plain, 4: 1.1 * plain, 8: 1.3 * plain}}, {64: plain}, ())
        save_costs(model_key(model), costs)
        advice = advise(model, "pl", [SMALL])
        assert advice.pays is pays, advice
    assert advise(model, "pl").draft is None, "none is less than half as large"


def test_next_to_a_mixture_of_experts_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "has_experts", lambda model: True)
    with pytest.raises(SpectoolError, match="mixture of experts is not known"):
        advise(large_model(), "pl")


def test_of_those_in_the_cache_the_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "chip_name", lambda: "M4 Pro")
    monkeypatch.setattr(drafts, "cached_snapshot", lambda name, *files: None)
    with pytest.raises(SpectoolError, match="hf download mlx-community/gemma-3-270m-it-bf16"):
        cached_draft(large_model(), "pl")
    monkeypatch.setattr(drafts, "cached_snapshot", lambda name, *files: name.startswith("google/") or None)
    assert cached_draft(large_model(), "pl")[0] == "google/gemma-3-270m-it"
