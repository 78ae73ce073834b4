"""What the doctor measures, what it concludes, and how policies know it."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from spectool import ArtifactError
from spectool.measure.doctor import break_even, measure_costs
from spectool.runtime import batch_generate, generate
from spectool.runtime.decoding.streaming import stream_generate
from spectool.runtime.demo_models import demo_path
from spectool.runtime.grammar import Grammar
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.policy.costs import known_costs, model_key, new_policy
from spectool.runtime.policy.curve import ASSUMED
from spectool.runtime.policy.measuring import ROWS
from spectool.runtime.policy.pass_costs import PassCosts, costs_path, load_costs, save_costs
from spectool.tests.running import figures, run

pytestmark = pytest.mark.usefixtures("cache")
TARGET = str(demo_path("target"))
COSTS = PassCosts("m", "CPU", {64: {1: 0.01, 2: 0.011, 4: 0.02}}, {64: 0.009}, (1, 2))


def test_draft_breaks_even_where_its_tokens_cost_as_many_plain_passes():
    flat = {1: 1.0, 2: 1.0, 3: 1.0}
    assert break_even(flat, 1) == pytest.approx(0, abs=1e-3)
    assert break_even({1: 1.0, 2: 1.5}, 1) == pytest.approx(0.5, abs=1e-3)
    assert break_even({1: 1.0, 3: 1.75}, 2) == pytest.approx(0.5, abs=1e-3)  # 1 + 1/2 + 1/4
    assert break_even(flat, 2, draft_pass=0.375) == pytest.approx(0.5, abs=1e-3)
    assert break_even({1: 1.0, 2: 2.5}, 1) is None


def test_command_measures_and_later_policies_know_it():
    found = figures("doctor", "--model", TARGET, "--seconds", 1)
    assert {length["draft_tokens"] + 1 for length in found["lengths"]} <= set(ROWS)
    assert found["lengths"][0]["plain_passes"] == 1 and 1 in found["target"]["same_bits"]
    model, tokenizer = load_model(TARGET)
    known = known_costs(model)
    assert known is not None and 64 in known.seconds
    assert new_policy(model).curve.seconds(2, 64) == pytest.approx(known.seconds[64][2], rel=0.5)
    other, _ = load_model(str(demo_path("draft")))
    assert known_costs(other) is None and new_policy(other, measure=False).curve is ASSUMED
    drafter = load_drafter(tokenizer)
    plain = [r.token for r in stream_generate(model, tokenizer, "Most w Jaworowcu", max_tokens=20)]
    drafted = stream_generate(model, tokenizer, "Most w Jaworowcu", max_tokens=20, drafter=drafter)
    assert [r.token for r in drafted] == plain


def slow_model(monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[Any, Any, list[float]]:
    """A model whose passes take some seconds on a clock of their own, its tokenizer, and that clock."""
    model, tokenizer = load_model(TARGET)
    call, now = type(model).__call__, [0.0]

    def slow(self: Any, inputs: Any, **options: Any) -> Any:
        now[0] += seconds * (1 + inputs.size / 20)
        return call(self, inputs, **options)

    monkeypatch.setattr(type(model), "__call__", slow)
    for module in ("spectool.measure.doctor", "spectool.runtime.policy.measuring"):
        monkeypatch.setattr(f"{module}.perf_counter", lambda: now[0])
    return model, tokenizer, now


@pytest.mark.nightly
@pytest.mark.parametrize(("plain", "seconds"), [(0.6, 50.0), (0.02, 10.0)])
def test_a_slow_model_is_measured_for_longer_unless_the_time_is_given(monkeypatch, plain, seconds):
    """Of 0.6 seconds a pass, ten seconds would be enough for three sizes, which say nothing about larger ones."""
    model, tokenizer, now = slow_model(monkeypatch, plain)
    measured = measure_costs(model, tokenizer, "demo")
    assert 0.8 * seconds < now[0] < 1.2 * seconds, now[0]
    assert set(measured.curve) >= {1, 2, 3, 4, 5, 8, 17}


@pytest.mark.nightly
def test_the_doctor_takes_the_seconds_that_it_is_given(monkeypatch):
    """Of a slow model less is measured, in the same time."""
    model, tokenizer, now = slow_model(monkeypatch, 0.02)
    measured = {}
    for seconds in (1, 3, 10, 30):
        now[0] = 0.0
        measured[seconds] = measure_costs(model, tokenizer, "demo", seconds)
        assert 0.8 * seconds < now[0] < 1.2 * seconds, (seconds, now[0])
    assert set(measured[10].seconds) == {64, 1024}
    assert set(measured[10].curve) == set(ROWS) > set(measured[1].curve)


def test_saved_costs_come_back_and_damaged_ones_are_named():
    save_costs("k", COSTS)
    assert load_costs("k") == COSTS and load_costs("missing") is None
    path = costs_path("k")
    good = path.read_text(encoding="utf-8")
    wrong = ["", "[]", "{}", "[" * 50_000, good.replace('"machine"', '"host"'), good.replace('"2"', '"two"')]
    fields = json.loads(good)
    for name, value in (("seconds", {"64": []}), ("seconds", {"64": {"1": None}}), ("seconds", {}), ("same_bits", "x"),
                        ("plain", {}), ("seconds", {"64": {"1": 0}}), ("exact", "yes"), ("drafts", [])):  # fmt: skip
        wrong.append(json.dumps({**fields, name: value}))
    for text in wrong:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ArtifactError, match="doctor"):
            load_costs("k")


def test_drafts_are_kept_to_lengths_whose_passes_have_the_same_bits():
    assert [replace(COSTS, same_bits=rows).longest_exact for rows in [(1,), (1, 3), (1, 2, 3, 8)]] == [0, 0, 2]
    model, tokenizer = load_model(TARGET)
    drafter = load_drafter(tokenizer, draft_model=TARGET)  # right, so long drafts pay
    flat = {64: dict.fromkeys((1, 2, 3, 8, 17), 1.0)}
    for rows, exact, longest in [((1, 2, 3, 8), False, 16), ((1, 2, 3, 8), True, 2), ((1,), True, 0)]:
        save_costs(model_key(model), PassCosts("m", "CPU", flat, {64: 1.0}, rows, exact))
        lengths: set[int] = set()
        policy = new_policy(model)
        for _ in stream_generate(
            model, tokenizer, "Most w Jaworowcu", max_tokens=30, drafter=drafter, num_draft_tokens=policy,
            on_cycle=lambda cycle, lengths=lengths: lengths.add(len(cycle.proposal)),
        ):  # fmt: skip
            pass
        assert max(lengths) <= longest <= max(16, policy.longest)
        assert longest < 16 or max(lengths) > 2
    command = ["generate", "--model", TARGET, "-p", "Most", "-m", 2]
    result = run(*command)
    assert result.exit_code == 0 and "decoding plainly" in result.stderr and "drafting from" not in result.stderr
    assert "may change the bits" in run(*command, "--num-draft-tokens", 3).stderr


def passes_with(exact: tuple[int, ...], write: Callable[[Any, Any], object], monkeypatch) -> set[tuple[int, ...]]:
    """The shapes of the passes after the prompt's, where the rows of ``exact`` have the bits of one."""
    model, tokenizer = load_model(TARGET)
    flat = {64: dict.fromkeys((1, 2, 3, 8, 17, 32), 1.0)}
    save_costs(model_key(model), PassCosts("m", "CPU", flat, {64: 1.0}, exact, exact=True))
    shapes, call = set[tuple[int, ...]](), type(model).__call__

    def noted(self: Any, inputs: Any, **options: Any) -> Any:
        shapes.add(inputs.shape)
        return call(self, inputs, **options)

    monkeypatch.setattr(type(model), "__call__", noted)
    write(model, tokenizer)
    return shapes


def test_texts_whose_bits_are_kept_share_no_passes(monkeypatch):
    def write(model, tokenizer):
        prompts = [tokenizer.encode("Most")[-1:] * 3] * 3  # read in a pass over 2 tokens
        batch_generate(model, tokenizer, prompts, drafter=load_drafter(tokenizer), max_tokens=24)

    assert {shape for shape in passes_with((1,), write, monkeypatch) if shape != (1, 2)} == {(1, 1)}


@pytest.mark.nightly
def test_predictions_keep_to_the_same_bits_as_well(monkeypatch):
    def write(model, tokenizer):
        text = generate(model, tokenizer, [5], max_tokens=150, num_draft_tokens=0)
        generate(model, tokenizer, [5], max_tokens=150, prediction=text)

    longest = max(shape[1] for shape in passes_with(tuple(range(1, 19)), write, monkeypatch))
    assert longest == 18


def test_forced_tokens_are_kept_to_lengths_whose_passes_have_the_same_bits(monkeypatch):
    def write(model, tokenizer):
        generate(model, tokenizer, [5], max_tokens=16, grammar=Grammar(tokenizer, "regex", "Most w Jaworowcu"))

    assert max(shape[1] for shape in passes_with((1, 2), write, monkeypatch)) == 2


def test_exact_is_kept_until_the_doctor_runs_without_it():
    model, _ = load_model(TARGET)
    for options, exact in ((["--exact"], True), ([], False)):
        found = figures("doctor", "--model", TARGET, "--seconds", 0.1, *options)["target"]
        known = known_costs(model)
        assert known is not None and known.exact == exact
        assert found == json.loads(json.dumps(asdict(known))), "what is saved"


def test_a_measurement_that_was_disturbed_is_said_not_to_be_final(monkeypatch):
    """It is merged with what was measured before, of which one time was longer, and measured again."""
    model, _ = load_model(TARGET)
    disturbed = {64: {1: 1.0, 2: 9.0, 4: 2.0}}, {64: 1.0}, 3.4
    monkeypatch.setattr("spectool.measure.doctor.time_passes", lambda *args, **options: disturbed)
    save_costs(model_key(model), PassCosts("m", "CPU", {64: {1: 1.0, 2: 1.2, 4: 3.0}}, {64: 1.0}, ()))
    command = ["doctor", "--model", TARGET, "--seconds", 0.1]
    assert "Do not send this" in run(*command, "--share").stderr
    save_costs(model_key(model), PassCosts("m", "CPU", {64: {1: 1.0, 2: 1.2, 4: 3.0}}, {64: 1.0}, ()))
    result = run(*command)
    assert "This is not final" in " ".join(result.stdout.split())
    known = known_costs(model)
    assert known is not None and not known.final and known.seconds == {64: {1: 1.0, 2: 1.2, 4: 2.0}}
    steady = {64: {1: 1.0, 2: 1.2, 4: 2.0}}, {64: 1.0}, 1.1
    monkeypatch.setattr("spectool.measure.doctor.time_passes", lambda *args, **options: steady)
    result = run(*command)
    assert "not final" not in result.stdout and known_costs(model).final
