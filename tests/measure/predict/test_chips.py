"""The table of chips: what its reader lets through."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from spectool.measure.chips import ChipCosts, published, rows_for

ROW: dict[str, Any] = {
    "chips": ["M9"],
    "bits": 4,
    "mode": "affine",
    "scope": "pass",
    "curves": {"64": {"1": 1.0, "4": 1.5}},
    "source": "somewhere",
    "seen": "2026-09",
}


def test_every_row_is_read_and_has_its_source() -> None:
    assert len(published()) >= 15
    assert all(row.source and row.seen and row.curves for row in published())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bits", 0),
        ("bits", 10**9),
        ("mode", "other"),
        ("scope", ""),
        ("chips", []),
        ("source", ""),
        ("source", "x" * 1000),
        ("curves", {}),
        ("curves", {"64": {"1": 1.0}}),
        ("curves", {"64": {"1": 2.0, "4": 3.0}}),
        ("curves", {"64": {"1": 1.0, "4": 0.6}}),
        ("curves", {"64": {"1": 1.0, "4": 3.0, "8": 2.0}}),
        ("curves", {"64": {"1": 1.0, "65": 3.0}}),
        ("curves", {"64": {"1": 1.0, "4": 1e300}}),
        ("curves", {"-1": {"1": 1.0, "4": 2.0}}),
        ("parameters", -1),
        ("password", "hidden"),
    ],
)
def test_values_that_nobody_measured_are_refused_by_name(field: str, value: object) -> None:
    assert ChipCosts.model_validate_json(json.dumps(ROW)).bits == 4
    with pytest.raises(ValidationError, match=field):
        ChipCosts.model_validate_json(json.dumps(ROW | {field: value}))


@pytest.mark.parametrize(
    ("chip", "measured_on"),
    [
        ("M2 Max", {"M1", "M2"}),
        ("M3", {"M3 Max", "M3 Ultra"}),
        ("M3 Ultra", {"M3 Ultra"}),  # it has its own
        ("M4", {"M4 Pro", "M4 Max"}),
        ("M5 Pro", {"M5 Max"}),
        ("M9", set()),
    ],
)
def test_a_chip_that_nobody_measured_has_the_rows_of_its_generation(chip: str, measured_on: set[str]) -> None:
    assert {each for row in rows_for(chip) for each in row.chips} == measured_on
    # A form that was not measured on a chip has the rows of its neighbours:
    on_max = {(row.bits, row.chips) for row in rows_for("M4 Max")}
    assert on_max == {(4, ("M4 Max",)), (8, ("M4 Pro",)), (2, ("M4 Pro",))}
