"""What a machine says of itself: the row that it shares, and the weights with which drafts cost less on it."""

from dataclasses import replace
from pathlib import Path

import mlx.nn as nn
import pytest

from spectool import SpectoolError
from spectool.measure import machines
from spectool.measure.chips import ChipCosts
from spectool.measure.machines import cheaper_here, row_to_share, weights_form
from spectool.runtime import machine
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.runtime.policy.pass_costs import PassCosts
from spectool.tests.running import run

TARGET = demo_path("target")
STEEP = PassCosts("demo", "Apple M4 Pro", {64: {1: 1.0, 4: 3.9, 5: 3.8}}, {64: 1.0}, (), False)


def test_the_row_is_one_that_the_table_takes_and_names_nothing_of_the_users(cache: Path) -> None:
    printed = run("doctor", "--model", TARGET, "--seconds", 1, "--share")
    (line,) = printed.stdout.splitlines()
    row = ChipCosts.model_validate_json(line)
    assert (row.scope, row.mode, row.group, row.experts) == ("pass", "affine", 64, False)
    assert all(curve[1] == 1.0 for curve in row.curves.values())
    assert str(TARGET) not in line and TARGET.name not in line.replace(row.source, "")


def test_times_of_single_tokens_alone_are_no_row() -> None:
    model = load_model(str(TARGET))[0]
    assert row_to_share(model, STEEP).curves == STEEP.seconds
    with pytest.raises(SpectoolError, match="--seconds"):
        row_to_share(model, PassCosts("demo", "M9", {64: {1: 1.0}}, {64: 1.0}, (), False))


def test_steep_weights_are_told_of_cheaper_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    assert weights_form(model) == (32, "none", None)
    nn.quantize(model, group_size=32, bits=4)
    assert weights_form(model) == (4, "affine", 32)
    assert cheaper_here(model, STEEP) == []  # nothing was published of this machine
    for chip, told in {"M4 Pro": [], "M2": ["mxfp4"]}.items():
        monkeypatch.setattr(machines, "chip_name", lambda chip=chip: chip)
        notes = cheaper_here(model, STEEP)
        assert [note.partition(" weights")[0].removeprefix("Drafts cost less with ") for note in notes] == told
    assert "takes 2.1 plain passes, not 3.8" in notes[0] and "--q-bits 4 --q-mode mxfp4" in notes[0]
    flat = replace(STEEP, seconds={64: {1: 1.0, 4: 1.05}})
    assert cheaper_here(model, flat) == []  # as it was measured here, whatever was published
    monkeypatch.setattr(machines, "has_experts", lambda model: True)
    assert cheaper_here(model, STEEP) == []  # what was published of other models says nothing of experts


@pytest.mark.parametrize(
    ("blas", "size", "told"), [("BLAS of MLX", 8192, True), ("preloaded BLAS", 8192, False), ("BLAS of MLX", 64, False)]
)
def test_a_slow_blas_is_named_with_what_to_do(
    blas: str, size: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "machine_name", lambda: f"CPU, 2 cores, {blas}")
    notes = cheaper_here(nn.Linear(size, size), STEEP)  # made lazily, so no memory is taken
    assert notes == [] or "libopenblas" in notes[0]
    assert bool(notes) == told
    assert cheaper_here(nn.QuantizedLinear(64, 64), STEEP) == []
