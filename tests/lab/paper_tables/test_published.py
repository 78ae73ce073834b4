"""Published figures against published formulas: where they agree, and where they do not."""

from statistics import fmean

import pytest
from scipy.optimize import brentq

from spectool.lab.paper_tables.cost_model import CostModel, geometric_tokens, mean_interval
from spectool.tests.lab.paper_tables import published as paper


def test_table_3_speed_ups_are_its_tokens_per_second_over_the_baseline() -> None:
    for (data, _), conditions in paper.SPEED.items():
        for rate, speedup in conditions:
            low, high = (rate - 0.005) / (paper.BASELINE[data] + 0.005), (rate + 0.005) / (paper.BASELINE[data] - 0.005)
            assert low <= speedup + 0.005 and speedup - 0.005 <= high


def test_table_4_repeats_tables_2_and_3_at_two_draft_tokens() -> None:
    for pair, by_length in paper.BY_LENGTH.items():
        assert by_length[2] == (paper.ACCEPTANCE[pair][2], paper.SPEED[pair][2][1])


def test_table_4_and_its_caption_disagree() -> None:
    rises = [row[4][0] - row[2][0] for row in paper.BY_LENGTH.values()]
    falls = [row[2][1] - row[4][1] for row in paper.BY_LENGTH.values()]
    assert (min(rises), max(rises)) == (pytest.approx(5.6), pytest.approx(9.2))  # the caption: 6 to 13 points
    assert (min(falls), max(falls)) == (pytest.approx(0.28), pytest.approx(0.40))  # the caption: 0.30 to 0.40


def test_tables_5_and_7_disagree_about_the_mean_break_even() -> None:
    two, four = zip(*paper.BREAK_EVEN.values(), strict=True)
    reachable = [value for value in four if value <= 100]
    assert fmean(two) == pytest.approx(41.9, abs=0.05)  # Table 7: 40
    assert fmean(four) == pytest.approx(91.0, abs=0.05)  # Table 7: 77
    assert fmean(reachable) == pytest.approx(85.0, abs=0.05)
    assert min(four) == 77.7  # no mean of any of them is 77


def test_table_7_was_computed_with_another_beta_than_it_names() -> None:
    assert [round(100 * paper.MODEL.break_even(k), 1) for k in (2, 4)] == [45.1, 83.1]
    assert {k: round(100 * CostModel(0.071, 0.185).break_even(k)) for k in (2, 4)} == paper.FORMULA_BREAK_EVEN
    assert [round(100 * paper.MODEL.exact_break_even(k), 1) for k in (2, 4)] == [48.7, 84.9]
    fitted = {k: (measured / 100 - 0.071) / k for k, measured in paper.MEASURED_BREAK_EVEN.items()}
    assert fitted == {2: pytest.approx(0.1645), 4: pytest.approx(0.17475)}  # section 6.2: 0.19, and the same at both


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_the_exact_break_even_is_where_the_published_speed_up_is_one(k: int) -> None:
    root = brentq(lambda alpha: paper.MODEL.speedup(alpha, k) - 1, 0, 10)
    assert paper.MODEL.exact_break_even(k) == pytest.approx(root)
    assert paper.MODEL.exact_break_even(k) - paper.MODEL.break_even(k) == pytest.approx(paper.MODEL.r / k)


def test_no_acceptance_pays_at_six_draft_tokens() -> None:
    assert round(100 * paper.MODEL.break_even(6)) == 121  # as Table 11 says
    assert round(100 * paper.MODEL.exact_break_even(6)) == 122
    assert paper.MODEL.speedup(1.0, 6) < 1 and paper.MODEL.speedup(1.0, 8) < 1


def test_the_model_gives_less_than_was_measured_at_two_draft_tokens() -> None:
    errors = {
        k: [paper.MODEL.speedup(row[k][0] / 100, k) - row[k][1] for row in paper.BY_LENGTH.values()] for k in (2, 4)
    }
    assert max(errors[2]) < -0.01 and min(errors[2]) == pytest.approx(-0.127, abs=0.001)
    assert (min(errors[4]), max(errors[4])) == (pytest.approx(-0.014, abs=0.001), pytest.approx(0.090, abs=0.001))


def test_table_11_speed_ups() -> None:
    found = {}
    for drafter, (acceptance, rate, speedup, _) in paper.AT_6.items():
        assert round(rate / paper.BASELINE_AT_6, 2) == speedup
        found[drafter] = round(paper.MODEL.speedup(acceptance / 100, 6), 2)
    assert found == {"bielik": 0.27, "llama": 0.42, "qwen": 0.44}  # measured: 0.28, 0.35, 0.40


def test_table_12_joules_are_watts_over_tokens_per_second() -> None:
    for watts, rate, joules in paper.ENERGY.values():
        assert joules == pytest.approx(watts / rate, abs=0.05)
    # Section 6.6 has the L4 at 2.4 times the chip's, and 2,400 Wh for 90 conditions on the RTX 4090 system.
    assert paper.ENERGY["L4"][2] / paper.ENERGY["M2 Pro (chip)"][2] == pytest.approx(1.65)
    assert 90 * 50 * 128 * paper.ENERGY["RTX 4090 (sys.)"][2] / 3600 == pytest.approx(1200)
    assert 90 * 50 * 128 * paper.ENERGY["M2 Pro (chip)"][2] / 3600 == pytest.approx(320)


def test_r_is_the_ratio_of_sizes() -> None:
    assert round(paper.R_BY_SIZE, 3) == paper.MODEL.r
    assert round(4 / 67, 3) == 0.06  # section 6.1: 4 ms of a draft step in 67 ms


class TestPublishedAcceptanceIsAShareOfTheOutput:
    """It is defined as accepted / proposed (section 4.4), and behaves as accepted / committed, mlx-lm's from_draft."""

    def test_it_rises_with_the_draft_length(self) -> None:
        # accepted / proposed of a longer draft is lower: a token counts as rejected with every one before it.
        assert all(row[4][0] > row[2][0] for row in paper.BY_LENGTH.values())
        assert (geometric_tokens(0.5, 4) - 1) / 4 < (geometric_tokens(0.5, 2) - 1) / 2

    def test_at_two_draft_tokens_none_is_above_two_thirds(self) -> None:
        # Two accepted of three committed is the most there can be; four of five at k = 4.
        assert all(row[2][5] is None for row in paper.BUCKETS.values())
        assert sum(row[4][5] is not None for row in paper.BUCKETS.values()) == 5

    def test_the_geometric_expectation_carries_it_from_two_to_four(self) -> None:
        errors = {"of the output": [], "of the proposed": []}
        for row in paper.BY_LENGTH.values():
            two, four = row[2][0] / 100, row[4][0] / 100
            a = _agreement(1 / (1 - two), 2)
            errors["of the output"].append(1 - 1 / geometric_tokens(a, 4) - four)
            a = _agreement(1 + 2 * two, 2)
            errors["of the proposed"].append((geometric_tokens(a, 4) - 1) / 4 - four)
        assert max(map(abs, errors["of the output"])) < 0.06
        assert min(map(abs, errors["of the proposed"])) > 0.15

    @pytest.mark.parametrize(("k", "steadier"), [(2, 7), (4, 5)])
    def test_a_cycle_then_costs_nearly_the_same_whatever_is_accepted(self, k: int, steadier: int) -> None:
        spreads = []
        for row in paper.BUCKETS.values():
            seen = [(a, speedup) for a, speedup in zip((0.35, 0.45, 0.55, 0.65), row[k][1:5], strict=True) if speedup]
            costs = [[1 / (1 - a) / s for a, s in seen], [(1 + a * k) / s for a, s in seen]]
            spreads.append([max(cost) / min(cost) - 1 for cost in costs])
        of_output, of_proposed = (mean_interval(column).value for column in zip(*spreads, strict=True))
        assert of_output < of_proposed
        assert sum(one < other for one, other in spreads) >= steadier


def _agreement(tokens: float, k: int) -> float:
    return float(brentq(lambda a: geometric_tokens(a, k) - tokens, 0, 1))
