"""Recommendations where the answer is clear."""

from collections.abc import Sequence
from typing import Any

import pytest

from spectool.advise.candidate import Candidate, Kind
from spectool.advise.expect import Guesses, Verification, expect, fitted, of_acceptance
from spectool.advise.figures import assumed, computed, measured, stated, unknown
from spectool.advise.recommend import Recommendation, recommend

CHEAP = fitted({2: 1.02, 4: 1.05, 8: 1.1}, "here")
DEAR = fitted({2: 2.9, 4: 4.7, 8: 8.4}, "here")
ASSUMED = Verification(assumed(0.19, "an M2 Pro"), {})
LENGTHS = (2, 4, 8)


def draft(
    name: str,
    acceptance: float | None,
    costs: Verification,
    r: float | None = 0.05,
    lengths: Sequence[int] = LENGTHS,
    ceiling: float | None = None,
    **others: Any,
) -> Candidate:
    guess = unknown("nobody asked") if acceptance is None else stated(acceptance)
    expectations = [
        expect(
            k,
            of_acceptance(guess, k),
            unknown("no sizes") if r is None else computed((k + 1) * r, "x"),
            costs,
            ceiling,
        )
        for k in lengths
    ]
    facts: dict[str, Any] = {"memory": stated(1.0), "fits": True, "todo": (f"bench {name}",)}
    return Candidate(name, "draft", expectations, **{**facts, **others})


def lookup(kind: Kind, tokens: float, costs: Verification) -> Candidate:
    guesses = Guesses(measured(tokens, "x"), measured(0.6, "x"), 2.0, (tokens - 1) / 1.2)
    found = [expect(k, guesses, computed(0.0, "x"), costs, None) for k in LENGTHS]
    return Candidate("pl.dict" if kind == "dictionary" else kind, kind, found, stated(1.0), True)


def advised(*candidates: Candidate, costs: Verification = CHEAP) -> Recommendation:
    return recommend([*candidates, lookup("history", 1.01, costs)], costs)


def test_a_perfect_draft_and_cheap_verification() -> None:
    found = advised(draft("good", 1.0, CHEAP), draft("bad", 0.01, CHEAP))
    assert (found.verdict, found.drafter, found.num_draft_tokens) == ("draft", "good", 8)
    assert "Draft with good, k = 8" in found.sentence
    assert "100% of the draft tokens are accepted (stated)" in found.sentence


def test_a_useless_draft() -> None:
    found = advised(draft("bad", 0.01, CHEAP))
    assert (found.verdict, found.drafter) == ("do not draft", None)
    assert found.sentence.startswith("Do not draft: bad gives 0.")


def test_verification_that_saves_nothing() -> None:
    assert advised(draft("fair", 0.6, DEAR), costs=DEAR).verdict == "do not draft"


def test_no_model_was_asked() -> None:
    found = advised(draft("new", None, CHEAP))
    assert found.verdict == "unknown"
    assert found.todo == ("bench new",)
    needed = min(each.needed.value or 9.0 for each in draft("new", None, CHEAP).expectations)
    assert f"an acceptance of {needed:.0%}" in found.sentence


def test_the_most_promising_is_measured_first() -> None:
    found = advised(draft("heavy", None, CHEAP, 0.4), draft("light", None, CHEAP, 0.01))
    assert found.todo == ("bench light",)
    assert "Likewise heavy (" in found.sentence


def test_no_sizes() -> None:
    found = advised(draft("new", None, CHEAP, None))
    assert found.verdict == "unknown"
    assert "--draft-bytes" in found.sentence


def test_even_a_perfect_draft_loses() -> None:
    found = advised(draft("heavy", None, CHEAP, 1.0))
    assert found.verdict == "do not draft"
    assert "even if it were always right" in found.sentence


def test_translation_leaves_nothing() -> None:
    assert advised(draft("foreign", None, CHEAP, ceiling=1.0)).verdict == "do not draft"


def test_the_dictionary_and_history() -> None:
    found = advised(draft("bad", 0.01, CHEAP), lookup("dictionary", 1.4, CHEAP))
    assert (found.verdict, found.drafter) == ("draft", "pl.dict")
    assert "pl.dict and history" in found.sentence


def test_a_gain_does_not_hide_a_draft_that_may_do_better() -> None:
    found = advised(lookup("dictionary", 1.4, CHEAP), draft("new", None, CHEAP))
    assert (found.verdict, found.drafter) == ("draft", "pl.dict")
    assert "new may do better" in found.sentence
    assert found.todo == ("bench new",)


def test_history_counts_only_where_it_gains() -> None:
    found = recommend([draft("bad", 0.01, CHEAP), lookup("history", 1.3, CHEAP)], CHEAP)
    assert (found.verdict, found.drafter) == ("draft", "history")


def test_break_even() -> None:
    found = advised(
        draft("even", 0.5, Verification(stated(0.19), {}), 0.071, [2]), costs=Verification(stated(0.19), {})
    )
    assert found.verdict == "break-even"


@pytest.mark.parametrize(("acceptance", "verdict"), [(0.45, "unknown"), (0.0, "do not draft")])
def test_an_assumed_cost_decides_nothing_that_it_alone_decides(acceptance: float, verdict: str) -> None:
    found = advised(draft("fair", acceptance, ASSUMED, 0.071, [4]), costs=ASSUMED)
    assert found.verdict == verdict
    assert "M2 Pro" in found.sentence


def test_what_does_not_fit_is_not_drafted_with() -> None:
    found = advised(draft("huge", 1.0, CHEAP, fits=False))
    assert found.verdict == "do not draft"
    assert "huge and the target do not fit into memory" in found.sentence


def test_nothing_was_named() -> None:
    assert "no other drafter was named" in advised().sentence
