"""The table of chips: what its reader lets through."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spectool.measure.chips import ChipCosts, published, rows_for
from spectool.measure.precision import flatter_forms

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


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(field=st.sampled_from(sorted(ROW)), value=_JSON)
def test_any_other_value_is_a_row_or_a_validation_error(field: str, value: object) -> None:
    with suppress(ValidationError):
        assert ChipCosts.model_validate_json(json.dumps(ROW | {field: value})).curves


def test_rows_of_a_generation_hold_for_its_larger_chips_unless_those_have_their_own() -> None:
    assert {row.source for row in rows_for("M2 Max")} == {row.source for row in rows_for("M2")}
    assert rows_for("M4") == []
    assert all("M3 Ultra" in row.chips for row in rows_for("M3 Ultra"))


def test_flatter_forms_are_named_with_what_they_cost() -> None:
    assert any("mxfp4" in note and "--q-mode mxfp4" in note for note in flatter_forms("M2 Air", 4, "affine"))
    (note,) = flatter_forms("M4 Pro", 4, "affine")
    assert "8-bit" in note and "1.9 times as long" in note  # 8.5 for 4.5 bits a weight
    assert flatter_forms("M4 Pro", 8, "affine") == flatter_forms("nothing", 4, "affine") == []
