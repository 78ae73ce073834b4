"""Merging: the mixture after every context, redundancy, limits, and what does not merge."""

import random
from pathlib import Path

import pytest

from spectool import FingerprintMismatch, SpectoolError
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.formats import verify_artifact
from spectool.build.dictionary.merging import MergedEntries, merge_dictionaries, mixture, predictions_in
from spectool.build.dictionary.options import Limits
from spectool.build.dictionary.predictions import Prediction, as_text, longest_suffix
from spectool.tests.build.dictionaries import SMALL, rows_of, written


def quiet(step: str) -> None:
    pass


def table(*rows: tuple[tuple[int, ...], int, float, int]) -> dict[str, Prediction]:
    return {as_text(context): Prediction(token, p, count) for context, token, p, count in rows}


def merged_rows(
    path: Path, *dictionaries: Dictionary, weights: tuple[float, ...] = (1, 1)
) -> dict[tuple[int, ...], int]:
    merge_dictionaries(dictionaries, weights, path, Limits(), quiet)
    merged = Dictionary(path)
    verify_artifact(merged.path)
    return {context: row[0] for context, row in rows_of(merged).items()}


def test_the_most_frequent_wins_by_weight(tmp_path: Path) -> None:
    general = written(tmp_path / "a", [((1,), 2, 0.5, 64), ((5,), 6, 1.0, 8)])
    domain = written(tmp_path / "b", [((1,), 3, 0.75, 32), ((7,), 8, 1.0, 4)])
    assert merged_rows(tmp_path / "even", general, domain) == {(1,): 2, (5,): 6, (7,): 8}
    assert merged_rows(tmp_path / "domain", general, domain, weights=(1, 2)) == {(1,): 3, (5,): 6, (7,): 8}


def test_probabilities_and_counts_are_those_of_the_joined_text() -> None:
    mixed = mixture([table(((1,), 2, 0.5, 60)), table(((1,), 2, 0.8, 20))], [1, 2])
    assert mixed == {as_text([1]): Prediction(2, pytest.approx((30 + 32) / 100), 100)}
    contradicting = mixture([table(((1,), 2, 0.5, 60)), table(((1,), 3, 0.8, 20))], [1, 1])
    assert contradicting[as_text([1])] == Prediction(2, pytest.approx(30 / 80), 80)


def test_a_dictionary_without_the_context_speaks_by_its_suffix() -> None:
    # The first knows "8 1" a hundred times, always before 2, and so dropped it; the second saw it three times.
    general = table(((1,), 2, 0.9, 1000), ((8,), 1, 0.3, 1000))
    domain = table(((1,), 2, 0.9, 100), ((8,), 1, 0.3, 100), ((8, 1), 3, 0.9, 3))
    mixed = mixture([general, domain], [1, 1])
    # 8 1 in the general text: 3 * 1000 / 100 * (1000 / 2000) / (100 / 200)
    assert mixed[as_text([8, 1])] == Prediction(2, pytest.approx(0.9 * 30 / 33), pytest.approx(33))
    # Where 8 is unknown, so is 8 1: nothing speaks against the domain.
    stranger = {context: row for context, row in general.items() if context != as_text([8])}
    assert mixture([stranger, domain], [1, 1])[as_text([8, 1])] == domain[as_text([8, 1])]
    # And a suffix or a token that is rare there limits the estimate.
    rare = {**general, as_text([8]): Prediction(1, 0.3, 2)}
    assert mixture([rare, domain], [1, 1])[as_text([8, 1])].occurrences <= 5


def test_merging_a_dictionary_with_itself_changes_no_proposal(tmp_path: Path) -> None:
    rows = [((a,), a + 1, 0.4, 8) for a in range(20)] + [((b, a), a + 2, 0.6, 4) for a in range(20) for b in (0, 1)]
    one = written(tmp_path / "a", rows)
    merge_dictionaries([one, one], [1, 1], tmp_path / "m", Limits(), quiet)
    doubled = rows_of(Dictionary(tmp_path / "m"))
    assert {context: row[:2] for context, row in doubled.items()} == {c: row[:2] for c, row in rows_of(one).items()}
    assert {row[2] for row in doubled.values()} == {16, 8} == {2 * row[2] for row in rows_of(one).values()}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_redundant_goes_and_no_proposal_changes(seed: int) -> None:
    choice = random.Random(seed)
    contexts = {tuple(choice.choices(range(4), k=choice.randint(1, 4))) for _ in range(200)}
    some = (0.25, 0.5, 0.75)
    predictions = table(
        *((c, choice.randrange(3), choice.choice(some), choice.randint(1, 50)) for c in sorted(contexts))
    )
    kept = MergedEntries(predictions).best(len(predictions))
    assert 0 < len(kept) < len(predictions), seed
    for context, prediction in predictions.items():
        proposal = kept.get(context) or longest_suffix(context, kept)
        assert proposal is not None and proposal[:2] == prediction[:2], (seed, context)
    for context, prediction in kept.items():
        fallback = longest_suffix(context, kept)
        assert fallback is None or says_something_else(prediction, fallback), (seed, context)


@pytest.mark.parametrize("seed", range(5))
def test_the_entries_kept_are_few_enough_and_gain_most(seed: int) -> None:
    choice = random.Random(seed)
    rows = [((a,), 100, choice.random(), choice.randint(1, 500)) for a in range(300)]
    predictions = table(*rows)
    best = MergedEntries(predictions).best(60)
    assert len(best) == 60, seed
    gain = {context: p.occurrences * (p.probability + p.probability**2 / 2) for context, p in predictions.items()}
    least = min(gain[context] for context in best)
    assert all(gain[context] <= least for context in predictions if context not in best), seed
    assert MergedEntries(predictions).best(1000) == predictions


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_agrees_with_its_slow_twin(seed: int) -> None:
    choice = random.Random(seed)
    contexts = {tuple(choice.choices(range(4), k=choice.randint(1, 4))) for _ in range(150)}
    predictions = table(*((c, choice.randrange(3), choice.random(), choice.randint(1, 50)) for c in sorted(contexts)))
    for least in (0.0, 2.0, 10.0, 30.0):
        kept, _ = MergedEntries(predictions).gaining_at_least(least)
        in_order = sorted(predictions, key=lambda context: (len(context), context))
        assert {c for c, keep in zip(in_order, kept, strict=True) if keep} == set(twin(predictions, least)), seed
    for most in (1, 10, 40):
        best = MergedEntries(predictions).best(most)
        assert most * 0.7 - 1 <= len(best) <= most, (seed, most)


def twin(predictions: dict[str, Prediction], least: float) -> dict[str, Prediction]:
    kept: dict[str, Prediction] = {}
    for context in sorted(predictions, key=len):
        own, fallback = predictions[context], longest_suffix(context, kept)
        p, s = own.probability, fallback.probability if fallback else 0.0
        q = p if fallback and fallback.token == own.token else min((1 - p) * s, p / 2)
        gain = own.occurrences * (p - q + p * p / 2 - q * s + s * s / 2)
        if (fallback is None or says_something_else(own, fallback)) and gain >= least:
            kept[context] = own
    return kept


def says_something_else(own: Prediction, fallback: Prediction) -> bool:
    return own.token != fallback.token or abs(own.probability - fallback.probability) > 1 / 256


def test_a_limit_in_bytes_holds(tmp_path: Path) -> None:
    choice = random.Random(3)
    rows = [
        ((a, b), choice.randrange(900), choice.random(), choice.randint(1, 99)) for a in range(80) for b in range(80)
    ]
    one, other = written(tmp_path / "a", rows[:4000]), written(tmp_path / "b", rows[3000:])
    whole = merge_dictionaries([one, other], [1, 1], tmp_path / "whole", Limits(), quiet)
    limit = whole.total_bytes * 2 // 3
    manifest = merge_dictionaries([one, other], [1, 1], tmp_path / "small", Limits(max_bytes=limit), quiet)
    assert 0.9 * limit < manifest.total_bytes <= limit
    assert manifest.statistics["entries"] < whole.statistics["entries"] == manifest.statistics["entries_before_pruning"]
    few = merge_dictionaries([one, other], [1, 1], tmp_path / "few", Limits(entries=100), quiet)
    assert few.statistics["entries"] <= 100
    with pytest.raises(SpectoolError, match="no room for entries"):
        merge_dictionaries([one, other], [1, 1], tmp_path / "none", Limits(max_bytes=10), quiet)
    assert not (tmp_path / "none").exists()


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    one = written(tmp_path / "a", [((a,), a * 7 % 50, 0.5, a + 1) for a in range(50)])
    other = written(tmp_path / "b", [((a,), a * 9 % 50, 0.5, 9) for a in range(70)])
    for name in ("m", "n"):
        merge_dictionaries([one, other], [1, 3], tmp_path / name, Limits(entries=40), quiet)
    files = [sorted((tmp_path / name).iterdir()) for name in ("m", "n")]
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]
    assert predictions_in(Dictionary(tmp_path / "m"))


def test_other_tokenizers_do_not_merge(tmp_path: Path) -> None:
    one = written(tmp_path / "a", [((1,), 2, 0.5, 64)])
    foreign = written(tmp_path / "b", [((1,), 2, 0.5, 64)], tokenizer={**SMALL, "name": "big", "fingerprint": "b" * 64})
    with pytest.raises(FingerprintMismatch, match="big") as raised:
        merge_dictionaries([one, foreign], [1, 1], tmp_path / "m", Limits(), quiet)
    assert "small" in str(raised.value) and str(foreign.path) in str(raised.value)
    assert not (tmp_path / "m").exists()
