"""The choice of entries: expected gain, redundancy, budgets; and the stage from text to dictionary."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from spectool import SpectoolError
from spectool.artifacts.dictionary import Dictionary
from spectool.build.corpus_reading import quiet
from spectool.build.counting import Counts, count_symbols
from spectool.build.dictionary import BackoffOptions
from spectool.build.dictionary.backoff import LEAST_GAIN, CandidateEntries, build_dictionary, number_of
from spectool.build.dictionary.size_limits import largest_within
from spectool.build.dictionary.smoothing import open_windows, smooth
from spectool.build.packs.stage import count_and_build
from spectool.corpora import open_corpus
from spectool.measure.replay import replay
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.build.counting_twin import counted
from spectool.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(real: Callable[[str], Tokenizer]) -> Tokenizer:
    return real("bielik-11b-v2.5")


@pytest.fixture(scope="module")
def counts(tokenizer: Tokenizer) -> Counts:
    return counted(open_corpus("sample:pl"), tokenizer, 5, 1)


@pytest.fixture(scope="module")
def candidates(counts: Counts) -> CandidateEntries:
    windows = open_windows(counts)
    return CandidateEntries(windows, 0.6, counts.symbols)


def test_the_best_follower_is_the_most_probable_one(counts: Counts, candidates: CandidateEntries) -> None:
    windows = open_windows(counts)
    probabilities = smooth(windows, 0.6)[2].probability
    best: dict[int, tuple[float, int]] = {}
    for prefix, symbol, probability in zip(windows[2].prefix, windows[2].symbol, probabilities.tolist(), strict=True):
        found = best.get(int(prefix))
        if found is None or probability > found[0]:
            best[int(prefix)] = probability, int(symbol)
    chosen = candidates.entries_gaining(-1.0)[1]
    own = np.flatnonzero(chosen.kept)
    assert len(own) > 500
    assert all(chosen.token[row] == best[row][1] for row in own.tolist())


def test_every_entry_says_something_its_longest_kept_suffix_does_not(
    counts: Counts, candidates: CandidateEntries
) -> None:
    chosen = candidates.entries_gaining(0.0)
    kept = {}
    for length, predictions in enumerate(chosen, 1):
        rows = np.flatnonzero(predictions.kept)
        says = zip(predictions.token[rows].tolist(), predictions.stated[rows].tolist(), strict=True)
        kept |= dict(zip(map(tuple, counts.spelled(length, rows).tolist()), says, strict=True))
    assert len(kept) == number_of(chosen)
    surer = 0
    for context, (token, stated) in kept.items():
        shorter = next((kept[context[cut:]] for cut in range(1, len(context)) if context[cut:] in kept), (-1, 0.0))
        assert token != shorter[0] or abs(stated - shorter[1]) > 1 / 256
        surer += token == shorter[0]
    assert 0.1 * len(kept) < surer < 0.7 * len(kept), "some entries say the same token with another probability"


def number_within(candidates: CandidateEntries, most: int) -> int:
    """The number of entries that are chosen under a limit."""

    def make(reach: float) -> tuple[int, int]:
        number = number_of(candidates.entries_gaining(1 / reach))
        return number, number

    return largest_within(most, 1 / LEAST_GAIN, 1 / LEAST_GAIN, make) or 0


def test_a_budget_is_used_and_not_exceeded(candidates: CandidateEntries) -> None:
    everything = number_of(candidates.entries_gaining(LEAST_GAIN))
    assert 0 < everything < number_of(candidates.entries_gaining(0.0))
    for most in (1, 10, 500, everything):
        assert number_within(candidates, most) <= most
    assert number_within(candidates, 2 * everything) == everything
    assert number_within(candidates, everything // 2) > 0.4 * everything


def test_a_budget_has_room_for_some_of_those_that_gain_equally() -> None:
    pairs = np.arange(1, 2001, dtype=np.int32).reshape(-1, 2)
    symbols = np.tile(np.pad(pairs, ((0, 0), (0, 1))).ravel(), 3)  # with a break after each
    candidates = CandidateEntries(open_windows(count_symbols(symbols, 2000, 3, 1, quiet)), 0.9, 2000)
    assert number_within(candidates, 10**6) == 1000
    assert all(0.97 * most <= number_within(candidates, most) <= most for most in (1, 100, 150))


def test_predictions_are_what_the_dictionary_looks_up(tokenizer: Tokenizer, counts: Counts, tmp_path: Path) -> None:
    options = BackoffOptions(max_context=4, discount=0.6)
    build_dictionary(tokenizer, counts, {}, tmp_path / "x.dict", options, quiet)
    dictionary = Dictionary(tmp_path / "x.dict")
    candidates = CandidateEntries(open_windows(counts), 0.6, counts.symbols)
    chosen = candidates.restated(candidates.entries_gaining(LEAST_GAIN))
    for length, predictions in enumerate(chosen, 1):
        rows = np.arange(0, len(predictions.token), 7)
        for row, context in zip(rows, (counts.spelled(length, rows) - 1).tolist(), strict=True):
            match = dictionary.look_up(dictionary.state_after(context))
            assert (match.token + 1 if match else -1) == predictions.token[row], context
            assert (match.probability if match else 0) == pytest.approx(predictions.stated[row], abs=1 / 256), context


def test_bytes_are_kept_to_and_used(tokenizer: Tokenizer, counts: Counts, tmp_path: Path) -> None:
    sizes, out = [], tmp_path / "x.dict"
    with pytest.raises(SpectoolError, match=r"fits in 30 bytes.*--max-bytes"):
        build_dictionary(tokenizer, counts, {}, out, BackoffOptions(max_bytes=30, max_context=4), quiet)
    assert not out.exists()
    for limit in (8_000, 11_000, 10**9):
        manifest = build_dictionary(tokenizer, counts, {}, out, BackoffOptions(limit, max_context=4), quiet)
        data = sum(values.nbytes for values in Dictionary(out).file.arrays.values())
        assert data <= limit
        sizes.append((data, manifest.statistics["entries"]))
    assert sizes == sorted(sizes)
    assert sizes[0][0] > 0.9 * 8_000
    assert sizes[2][0] > 12_000


@pytest.mark.nightly
def test_more_entries_draft_better(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """From text to replay; on the counted text itself, so that the order is certain."""
    documents = tokenizer.encode_batch(list(open_corpus("sample:pl")))
    found = []
    for size in (5_000, 20_000, 200_000):
        options = BackoffOptions(max_bytes=size, min_count=1)
        count_and_build(tokenizer, open_corpus("sample:pl"), tmp_path / "x.dict", options, quiet)
        found.append(_tokens_per_pass(documents, Dictionary(tmp_path / "x.dict")))
    assert found == sorted(found)
    assert found[-1] - 1 > 2 * (found[0] - 1)


def _tokens_per_pass(documents: Sequence[Sequence[int]], dictionary: Dictionary) -> float:
    return replay(documents, LookupDrafter(dictionary)).tokens_per_pass
