"""Recommendations where the answer is clear."""

from collections.abc import Sequence
from typing import Any

import pytest

from spectool.measure.advise.expect import (
    Figure,
    Guesses,
    Verification,
    assumed,
    by_sizes,
    computed,
    expect,
    fitted,
    measured,
    of_acceptance,
    stated,
    unknown,
)
from spectool.measure.advise.recommend import Candidate, Kind, Recommendation, recommend

CHEAP = fitted({2: 1.02, 4: 1.05, 8: 1.1}, "here")
DEAR = fitted({2: 2.9, 4: 4.7, 8: 8.4}, "here")
ASSUMED = Verification(assumed(0.19, "an M2 Pro"))
LENGTHS = (2, 4, 8)


def draft(
    name: str,
    acceptance: float | None,
    costs: Verification,
    r: float | Figure = 0.05,
    lengths: Sequence[int] = LENGTHS,
    ceiling: float = 100.0,
    **others: Any,
) -> Candidate:
    guess = unknown("nobody asked") if acceptance is None else stated(acceptance)
    expectations = [
        expect(
            k,
            of_acceptance(guess, min(k, ceiling - 1), r if isinstance(r, Figure) else computed((k + 1) * r, "x")),
            costs,
        )
        for k in lengths
    ]
    facts: dict[str, Any] = {"memory": stated(1.0), "fits": True, "todo": (f"bench {name}",)}
    return Candidate(name, "draft", expectations, **{**facts, **others})


def lookup(kind: Kind, tokens: float, costs: Verification) -> Candidate:
    guesses = Guesses(measured(tokens, "x"), measured(0.6, "x"), 2.0, computed(0.0, "x"), (tokens - 1) / 1.2)
    found = [expect(k, guesses, costs) for k in LENGTHS]
    return Candidate("pl.dict" if kind == "dictionary" else kind, kind, found, stated(1.0), True)


def advised(*candidates: Candidate, costs: Verification = CHEAP) -> Recommendation:
    return recommend([*candidates, lookup("history", 1.01, costs)])


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
    found = advised(draft("new", None, CHEAP, by_sizes(unknown("x"), stated(5.0))))
    assert found.verdict == "unknown"
    assert found.sentence == (
        "It cannot be told yet whether to draft: what new costs is not known; state --draft-bytes, or name the draft's "
        "model."
    )
    target = by_sizes(stated(5.0), unknown("x"))
    both = advised(draft("new", None, CHEAP, target), draft("newer", None, CHEAP, target))
    assert "what new, newer costs is not known; state --target-bytes, or name the target's model." in both.sentence


def test_even_a_perfect_draft_loses() -> None:
    found = advised(draft("heavy", None, CHEAP, 1.0))
    assert found.verdict == "do not draft"
    assert "even if it were always right" in found.sentence
    assert found.sentence.endswith("the best there is.")  # all of it was timed or stated


def test_no_verdict_on_a_draft_that_was_not_measured_beside_others_that_were() -> None:
    skipped = draft("heavy", None, CHEAP, 1.0, unmeasured=True)
    found = advised(skipped, draft("bad", 0.01, CHEAP))
    assert (found.verdict, found.todo) == ("unknown", ("bench heavy",))
    assert "heavy was not measured; by the bytes of the models it gives at most 0." in found.sentence
    found = advised(skipped, draft("new", None, CHEAP))
    assert found.sentence.startswith("It cannot be told yet whether to draft: new gains")
    assert found.sentence.endswith("; measure it. Likewise heavy.")


@pytest.mark.parametrize("r", [0.2, 0.4])
def test_an_assumed_cost_does_not_decide_against_a_perfect_draft(r: float) -> None:
    """At k = 2 it would give 1.27 and 1.01 times; free verification lets both gain."""
    found = advised(draft("new", None, ASSUMED, r), costs=ASSUMED)
    assert (found.verdict, found.todo) == ("unknown", ("bench new",))
    assert "M2 Pro" in found.sentence
    gains = 3 / (1.76 + 3 * r) >= 1.05
    assert ("gains from an acceptance" in found.sentence) == gains
    assert (f"up to {9 / (1 + 9 * r):.2f} times at k = 8 if it is free" in found.sentence) == (not gains)
    assert ("--measure" in found.sentence) == (not gains)
    known = Verification(stated(0.19))
    assert (advised(draft("new", None, known, r), costs=known).verdict == "do not draft") == (not gains)


def test_a_draft_that_free_verification_would_not_save() -> None:
    found = advised(draft("heavy", None, ASSUMED, 1.0), costs=ASSUMED)
    assert found.verdict == "do not draft"
    assert "M2 Pro" in found.sentence
    assert found.sentence.endswith(", and 0.90 times at k = 8 if it is free.")


def test_an_assumed_cost_is_said_where_history_alone_was_asked() -> None:
    assert "M2 Pro" in advised(costs=ASSUMED).sentence
    assert "M2 Pro" not in advised(costs=CHEAP).sentence


def test_a_verdict_on_longer_passes_than_were_timed_says_so() -> None:
    short = fitted({1: 1.05, 2: 1.1}, "a run")
    extended = "if passes over more than 2 draft tokens rise as they do up to 2"
    for acceptance, r in ((1.0, 0.05), (0.01, 0.05), (None, 0.05), (None, 1.0)):
        for lengths, says in (((2, 8) if acceptance != 0.01 else (8,), True), ((2,), False)):
            found = advised(draft("x", acceptance, short, r, lengths), costs=short)
            assert (extended in found.sentence) == says, found.sentence


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
    found = recommend([draft("bad", 0.01, CHEAP), lookup("history", 1.3, CHEAP)])
    assert (found.verdict, found.drafter) == ("draft", "history")


def test_break_even() -> None:
    found = advised(draft("even", 0.5, Verification(stated(0.19)), 0.071, [2]), costs=Verification(stated(0.19)))
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


def test_an_acceptance_that_cannot_be_reached_is_said_in_words() -> None:
    found = advised(draft("heavy", 0.9, Verification(stated(5.0)), 0.5, [2]), costs=Verification(stated(5.0)))
    assert found.verdict == "do not draft" and "even all of them would not break even" in found.sentence
