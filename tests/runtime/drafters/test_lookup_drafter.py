"""The lookup drafter: chains of look-ups and copies, against a twin that looks everything up afresh."""

import random
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path

import pytest

from spectool.artifacts.dictionary import Dictionary
from spectool.runtime.drafters.drafter import Drafter, Proposal
from spectool.runtime.drafters.lookup import FROM_TEXT, LookupDrafter
from spectool.tests.build.dictionaries import Row, written

CHAIN = [((1,), 2, 0.5), ((2,), 3, 0.5), ((1, 2), 4, 0.75), ((4,), 1, 0.25)]


def opened(path: Path, entries: Sequence[Row]) -> Dictionary:
    return written(path, entries, {"name": "small", "fingerprint": "a" * 64, "size": 100})


@pytest.fixture
def chain(tmp_path: Path) -> Dictionary:
    return opened(tmp_path / "chain.dict", CHAIN)


def proposed(drafter: Drafter, limit: int = 8) -> list[int]:
    return list(drafter.propose(limit).tokens)


def test_a_chain_goes_on_until_it_is_too_improbable(chain: Dictionary) -> None:
    drafter = LookupDrafter(chain)
    drafter.start([1])
    assert proposed(drafter) == [2, 4, 1, 2, 4, 1, 2, 4]
    reached = list(accumulate(drafter.propose(4).probabilities, mul))
    believed = 0.5 * FROM_TEXT[5], 0.75 * FROM_TEXT[7], 0.25 * FROM_TEXT[2]
    assert reached[:3] == pytest.approx(list(accumulate(believed, mul))), "what is stated, as far as it is believed"
    for length, floor in enumerate(reached):
        for more, least in enumerate((1.001 * floor, 0.999 * floor)):
            strict = LookupDrafter(chain, min_probability=least)
            strict.start([1])
            assert len(proposed(strict)) == length + more, floor


def test_history_goes_on_as_before_where_the_dictionary_knows_nothing(chain: Dictionary) -> None:
    drafter = LookupDrafter(chain, history=True)
    drafter.start([50, 51, 60, 61, 62, 50, 51])
    assert proposed(drafter, 3) == [60, 61, 62]
    assert drafter.propose(3).source == "history"


def test_the_surer_source_is_taken_at_every_step(chain: Dictionary) -> None:
    """After 1, the dictionary says 2 (0.5); the history has seen 1 followed by 30."""
    drafter = LookupDrafter(chain, history=True)
    drafter.start([20, 21, 22, 1, 30, 31, 20, 21, 22, 1])
    assert proposed(drafter, 2) == [30, 31], "four repeated tokens"
    drafter.start([20, 1, 30, 20, 1])
    assert drafter.propose(2).tokens[0] == 30, "two of them"
    for number in range(24):
        drafter.commit([300 + number, 200 + number, 20, 1])  # which neither knows
        drafter.commit([2, 400 + number, 20, 1])  # which the dictionary does
    drafter.commit([500, 20, 1])
    assert (drafter.propose(1).tokens, drafter.propose(1).source) == ((2,), "dictionary"), "it is believed no more"


def test_what_is_stated_is_what_was_right_so_far(chain: Dictionary, rng: random.Random) -> None:
    """A dictionary that is right where it says 0.5 every other time, and one that a repeat confirms."""
    drafter = LookupDrafter(chain, history=True)
    for share in (0.0, 0.3, 0.9):
        drafter.start([])
        for number in range(600):
            drafter.commit([1000 + number, 1, 2 if rng.random() < share else 5000 + number])
        drafter.commit([9000, 1])
        assert drafter.propose(1).probabilities[0] == pytest.approx(share, abs=0.08)
    drafter.start([6, 1, 2, 7, 6, 1])
    assert drafter.propose(1) == Proposal((2,), "dictionary+history", (pytest.approx(2 / 2.6),))


def test_going_on_is_proposing_after_the_tokens(chain: Dictionary, rng: random.Random) -> None:
    """What follows a guess is what would follow it if it came true; repeats inside the guess are not seen."""
    for _ in range(300):
        said = rng.choices([1, 2, 4, 7, 500], k=rng.randint(0, 9))
        guess = rng.choices([1, 2, 4, 7], k=rng.randint(0, 4))
        drafter, after = LookupDrafter(chain), LookupDrafter(chain)
        drafter.start(said)
        before = drafter.propose(6)
        after.start([*said, *guess])
        assert drafter.extend(guess, 6) == after.propose(6)
        assert drafter.propose(6) == before, "nothing has changed"
    history = LookupDrafter(history=True)
    history.start([50, 51, 60, 61, 62, 50])
    assert history.extend([51, 60], 3).tokens == (61, 62, 50)
    assert history.extend([99], 3).tokens == ()


def test_history_alone_needs_one_repeated_token() -> None:
    drafter = LookupDrafter(history=True)
    drafter.start([5, 6, 7, 5])
    assert proposed(drafter, 7) == [6, 7, 5, 6, 7, 5, 6], "a period is copied at full length"
    drafter.start([1, 2, 3])
    assert proposed(drafter) == []


OTHER_CHAIN = [((1,), 3, 0.5), ((4,), 7, 0.75), ((3, 2), 1, 1.0), ((7,), 1, 0.125)]


@pytest.fixture
def other(tmp_path: Path) -> Dictionary:
    return opened(tmp_path / "other.dict", OTHER_CHAIN)


def most_probable(dictionaries: Sequence[Dictionary], history: Sequence[int], limit: int) -> list[int]:
    """What several dictionaries propose, each asked with the whole history."""
    tokens: list[int] = []
    while len(tokens) < limit:
        found = [
            match for each in dictionaries if (match := each.look_up(each.state_after([*history, *tokens]))) is not None
        ]
        if not found:
            break
        most = max(match.probability for match in found)
        tokens.append([match for match in found if match.probability == most][-1].token)
    return tokens


def test_dictionaries_are_equal_to_asking_each_with_the_whole_history(
    chain: Dictionary, other: Dictionary, rng: random.Random
) -> None:
    for several in ([chain], [chain, other], [other, chain], [chain, chain], [chain, other, chain]):
        drafter = LookupDrafter(several)
        for _ in range(40):
            history = rng.choices([1, 2, 4, 7, 3, 500], k=rng.randint(0, 12))
            drafter.start(tuple(history))
            for _ in range(20):
                assert proposed(drafter) == most_probable(several, history, 8)
                guess = rng.choices([1, 2, 4, 7], k=rng.randint(0, 4))
                assert list(drafter.extend(guess, 6).tokens) == most_probable(several, [*history, *guess], 6)
                new = rng.choices([1, 2, 4, 7, 3, 500], k=rng.randint(1, 6))
                drafter.commit(new)
                history += new
