"""Formulas, on the published numbers and on costs whose outcome is known."""

import pytest

from spectool.measure.advise.expect import (
    Expectation,
    Figure,
    Guesses,
    Verification,
    assumed,
    by_sizes,
    computed,
    drafting_by_ratio,
    expect,
    fitted,
    measured,
    of_acceptance,
    stated,
    unknown,
)
from spectool.runtime.draft_length.cost_model import CostModel

GB = 1e9
PUBLISHED = Verification(stated(0.19))  # paper, section 6.2: an M2 Pro
TARGET, DRAFT = stated(11.32 * GB), stated(0.8 * GB)


def published(acceptance: float, k: int) -> Expectation:
    r = by_sizes(DRAFT, TARGET)
    return expect(k, of_acceptance(stated(acceptance), k, drafting_by_ratio(r, k)), PUBLISHED, r)


def test_the_ratio_of_sizes_is_the_papers() -> None:
    r = by_sizes(DRAFT, TARGET)
    assert r.value == pytest.approx(0.071, abs=0.001)
    assert r.kind == "computed"


@pytest.mark.parametrize("k", [1, 2, 4, 6, 8])
@pytest.mark.parametrize("acceptance", [0.0, 0.311, 0.45, 0.7, 1.0])
def test_equation_5(acceptance: float, k: int) -> None:
    r = by_sizes(DRAFT, TARGET).value or 0.0
    found = published(acceptance, k)
    assert found.speedup.value == pytest.approx((1 + acceptance * k) / ((k + 1) * r + 1 + 0.19 * k * k))
    assert found.speedup.value == pytest.approx(CostModel(r, 0.19).speedup(acceptance, k))
    assert found.tokens_per_pass.value == pytest.approx(1 + acceptance * k)


def test_equations_3_and_4_give_equation_5() -> None:
    """With seconds in place of ratios, and no overhead beside the weights: t_cycle and t_base at 200 GB/s."""
    bandwidth, k, acceptance = 200 * GB, 4, 0.5
    base = 11.32 * GB / bandwidth
    cycle = (k + 1) * 0.8 * GB / bandwidth + base + 0.19 * base * k * k
    assert published(acceptance, k).speedup.value == pytest.approx((1 + acceptance * k) * base / cycle)


@pytest.mark.parametrize(("k", "formula", "exact"), [(2, 0.451, 0.487), (4, 0.831, 0.849)])
def test_the_published_break_even_and_the_exact_one(k: int, formula: float, exact: float) -> None:
    """Table 7 says 44% and 81%, which is beta = 0.185; equation 6 gives 45.1% and 83.1%; equation 5 says more."""
    found = published(0.5, k)
    assert found.published == pytest.approx(formula, abs=0.001)
    assert found.needed.value == pytest.approx(exact, abs=0.001)
    assert published(found.needed.value or 0.0, k).speedup.value == pytest.approx(1.0)


def test_no_acceptance_breaks_even_at_k_6() -> None:
    found = published(1.0, 6)
    assert (found.needed.value or 0.0) > 1
    assert (found.best.value or 9.0) < 1


@pytest.mark.parametrize(("k", "lowest", "highest"), [(2, 0.93, 1.0), (4, 0.6, 0.7)])
def test_an_acceptance_of_45_percent_on_the_papers_machine(k: int, lowest: float, highest: float) -> None:
    """Table 4 measured 1.06 and 0.70 for Qwen2.5 on Wikipedia, at 44.6% and 53.8%."""
    assert lowest < (published(0.45, k).speedup.value or 0.0) < highest


def test_timed_passes_win_over_beta() -> None:
    timed = fitted({2: 1.2, 4: 1.6}, "here")
    assert [timed(drafted).value for drafted in (0, 1, 2, 3, 4)] == pytest.approx([1.0, 1.1, 1.2, 1.4, 1.6])
    assert [timed(drafted).origin for drafted in (2, 3)] == ["measured: here", "measured: here, interpolated"]
    assert timed.beta.value == pytest.approx((0.2 * 4 + 0.6 * 16) / (16 + 256))


@pytest.mark.parametrize(("drafted", "cost"), [(4.0, 4.08), (4.5, 4.465), (5.0, 4.85), (8.0, 7.16)])
def test_beyond_the_longest_timed_pass_it_rises_as_it_did(drafted: float, cost: float) -> None:
    """Passes that rise by a straight line; the fitted parabola would take 8 drafts for 15 plain passes."""
    timed = fitted({1: 1.83, 2: 2.56, 3: 3.35, 4: 4.08}, "a run")
    found = timed(drafted)
    assert found.value == pytest.approx(cost)
    assert (found.kind, "up to 4" in found.origin) == (("measured", False) if drafted == 4 else ("computed", True))
    longer = expect(8, of_acceptance(stated(1.0), 8, computed(0.0, "x")), timed)
    assert longer.verification == timed(8)
    assert longer.best.value == pytest.approx(9 / 7.16)


@pytest.mark.parametrize("beta", [stated(0.19), assumed(0.19, "x")])
def test_without_timed_passes_the_cost_is_of_betas_origin(beta: Figure) -> None:
    found = Verification(beta)(2)
    assert found.value == pytest.approx(1.76)
    assert found.origin == beta.origin


def test_passes_without_a_proposal_cost_plain_ones() -> None:
    timed = fitted({4: 2.0}, "here")
    half = Guesses(measured(1.5, "x"), measured(0.25, "x"), 4.0, computed(0.0, "x"), 0.5)
    found = expect(4, half, timed)
    assert found.speedup.value == pytest.approx(1.5 / 1.5)
    assert found.needed.value == pytest.approx(0.25)
    assert found.perfect == pytest.approx(1 + 0.5 * 4)
    assert found.best.value == pytest.approx(3 / 1.5)


@pytest.mark.parametrize("coverage", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("cost", [1.2, 2.9, 3.1, 8.0])
@pytest.mark.parametrize("loop", [0.0, 0.1])
def test_what_is_needed_and_what_is_reached_at_most_agree(coverage: float, cost: float, loop: float) -> None:
    """Of two drafts in a pass: who needs more than all of them right loses even if all are."""
    guesses = Guesses(measured(1 + 0.5 * 2 * coverage, "x"), measured(0.5, "x"), 2.0, computed(0.01, "x"), coverage)
    found = expect(8, guesses, fitted({2: cost}, "x", loop))
    needed, best, speedup = found.needed.value or 0.0, found.best.value or 0.0, found.speedup.value or 0.0
    assert (needed < 1) == (best > 1)
    assert (needed < 0.5) == (speedup > 1)
    assert speedup < best


def test_the_loop_costs_every_cycle() -> None:
    free = fitted({4: 1.0}, "here", loop=0.25)
    found = expect(4, of_acceptance(stated(1.0), 4, computed(0.0, "x")), free)
    assert found.speedup.value == pytest.approx(5 / 1.25)
    assert found.unburdened == pytest.approx(5 / 1.25)
    dear = fitted({4: 3.0}, "here", loop=0.25)
    lacking = expect(4, of_acceptance(unknown("nobody asked"), 4, computed(0.0, "x")), dear)
    assert lacking.unburdened is None
    assert lacking.best_unburdened == pytest.approx(5 / 1.25)


def test_without_acceptance_or_sizes_nothing_is_made_up() -> None:
    nothing = unknown("nobody asked")
    r = by_sizes(DRAFT, TARGET)
    found = expect(2, of_acceptance(nothing, 2, drafting_by_ratio(r, 2)), PUBLISHED, r)
    assert found.speedup.value is None
    assert found.needed.value is not None
    assert found.best.value is not None
    r = by_sizes(nothing, TARGET)
    found = expect(2, of_acceptance(stated(0.9), 2, drafting_by_ratio(r, 2)), PUBLISHED, r)
    assert found.speedup.value is None
    assert found.needed.value is None
    assert found.best.value is None


@pytest.mark.parametrize(
    ("draft", "target", "lacks"),
    [
        (unknown("x"), TARGET, "state --draft-bytes, or name the draft's model"),
        (DRAFT, unknown("x"), "state --target-bytes, or name the target's model"),
        (
            unknown("x"),
            unknown("x"),
            "state --target-bytes and --draft-bytes, or name the target's and the draft's model",
        ),
    ],
)
def test_what_is_missing_is_named(draft: Figure, target: Figure, lacks: str) -> None:
    assert by_sizes(draft, target) == unknown(lacks)


def test_fewer_target_tokens_than_draft_tokens_must_be_accepted_more_often() -> None:
    r = by_sizes(DRAFT, TARGET)
    fewer = of_acceptance(stated(0.5), 1.25, drafting_by_ratio(r, 2))
    found = expect(2, fewer, fitted({2: 1.2}, "x"), r)
    assert found.perfect == pytest.approx(2.25)
    assert fewer.tokens_per_pass.value == pytest.approx(1.625)
    assert found.needed.value == pytest.approx((3 * (r.value or 0.0) + 0.125) / 1.25)
    nothing = expect(2, of_acceptance(stated(0.5), 0.0, drafting_by_ratio(r, 2)), fitted({2: 1.2}, "x"), r)
    assert nothing.needed.value is None
    assert (nothing.speedup.value or 9.0) < 1
