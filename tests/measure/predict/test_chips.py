"""The table of chips."""

from itertools import pairwise

import pytest

from spectool.measure.chips import ChipCosts, published, rows_for


@pytest.mark.parametrize("row", published(), ids=lambda row: row.title)
def test_every_row_has_its_source_and_what_can_be_measured(row: ChipCosts) -> None:
    assert all((row.chips, row.source, row.seen, row.curves)) and 1 <= row.bits <= 32 and row.parameters != 0
    for context, curve in row.curves.items():
        assert context >= 0 and len(curve) > 1 and curve[1] == 1.0 and max(curve) <= 64
        assert all(0.8 * fewer <= more < 100 for (_, fewer), (_, more) in pairwise(sorted(curve.items()))), "noise"


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
