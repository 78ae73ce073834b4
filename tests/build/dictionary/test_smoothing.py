"""Kneser-Ney smoothing over counted windows against a twin that counts in dictionaries."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from spectool.build.counting import Counts
from spectool.build.dictionary.smoothing import conditional_followers, open_windows, smooth
from spectool.corpora import open_corpus
from spectool.tests.build.counting_twin import counted as count_corpus
from spectool.tokenization.tokenizer import Tokenizer

ORDERS = 4
DISCOUNT = 0.6


class Twin:
    """Interpolated Kneser-Ney from the windows themselves; every window is kept."""

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        self.occurrences: Counter[tuple[int, ...]] = Counter()
        for document in documents:
            for order in range(1, ORDERS + 1):
                self.occurrences.update(zip(*(document[start:] for start in range(order)), strict=False))
        self.before: dict[tuple[int, ...], set[int]] = {}
        starts: Counter[tuple[int, ...]] = Counter()
        for window in self.occurrences:
            if len(window) > 1:
                self.before.setdefault(window[1:], set()).add(window[0])
        for document in documents:
            for order in range(1, ORDERS):
                if len(document) >= order:
                    starts[tuple(document[:order])] += 1
        self.starts = starts
        self.followers: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for window in self.occurrences:
            self.followers.setdefault(window[:-1], []).append(window)
        self.evidence_of_tokens = sum(map(self.evidence, self.followers[()]))

    def evidence(self, window: tuple[int, ...]) -> int:
        """Different tokens before a window, each beginning of a document being one more; occurrences at full length."""
        if len(window) == ORDERS:
            return self.occurrences[window]
        return len(self.before.get(window, ())) + self.starts[window]

    def probability(self, window: tuple[int, ...]) -> float:
        if len(window) == 1:
            return self.evidence(window) / self.evidence_of_tokens
        context = window[:-1]
        followers = self.followers[context]
        known = sum(self.occurrences[w] for w in followers) / self.occurrences[context]
        whole = sum(map(self.evidence, followers)) / known
        left_over = 1 - sum(max(self.evidence(w) - DISCOUNT, 0) for w in followers) / whole
        share = max(self.evidence(window) - DISCOUNT, 0) / whole
        return share + left_over * self.probability(window[1:])


@pytest.fixture
def counted(tmp_path: Path, real: Callable[[str], Tokenizer]) -> tuple[Counts, list[list[int]]]:
    text = "\n".join(document for _, document in zip(range(40), open_corpus("sample:pl"), strict=False))
    (tmp_path / "some.txt").write_text(text, encoding="utf-8")
    tokenizer = real("bielik-11b-v2.5")
    corpus = open_corpus(str(tmp_path / "some.txt"))
    return count_corpus(corpus, tokenizer, ORDERS, 1), tokenizer.encode_batch(list(corpus))


@pytest.mark.nightly
def test_equals_the_twin_on_real_text(counted: tuple[Counts, list[list[int]]]) -> None:
    counts, documents = counted
    smoothed = smooth(open_windows(counts), DISCOUNT)
    twin = Twin(documents)
    compared = 0
    for order in range(1, ORDERS + 1):
        rows = np.arange(len(counts.levels[order - 1].count))
        for window, found in zip(
            (counts.spelled(order, rows) - 1).tolist(), smoothed[order - 1].probability, strict=True
        ):
            assert found == pytest.approx(twin.probability(tuple(window)), rel=1e-4), window
            compared += 1
    print(f"{compared} windows compared")
    assert compared > 2000


def test_suffixes_are_the_windows_without_their_first_token(counted: tuple[Counts, list[list[int]]]) -> None:
    counts, _ = counted
    windows = open_windows(counts)
    for order in range(2, ORDERS + 1):
        rows = np.arange(len(windows[order - 1].keys))
        without = counts.spelled(order, rows)[:, 1:]
        assert np.array_equal(counts.spelled(order - 1, windows[order - 1].suffix), without)


def test_probabilities_after_a_context_never_exceed_one(counted: tuple[Counts, list[list[int]]]) -> None:
    counts, _ = counted
    windows = open_windows(counts)
    for window, followers in zip(windows[1:], smooth(windows, DISCOUNT)[1:], strict=True):
        total = np.bincount(window.prefix, weights=followers.probability)
        assert total.max() <= 1 + 1e-5


@pytest.mark.nightly
def test_conditional_followers_equal_counting_place_by_place(counted: tuple[Counts, list[list[int]]]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    counts, documents = counted
    windows = open_windows(counts)
    kept = [rng.random(len(window.keys)) < 0.3 for window in windows[:-1]]
    known = {
        context
        for order, chosen in enumerate(kept, 1)
        for context in map(tuple, (counts.spelled(order, np.flatnonzero(chosen)) - 1).tolist())
    }
    asked, followed = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for ids in documents:
        for end in range(len(ids) + 1):
            contexts = [tuple(ids[end - length : end]) for length in range(min(ORDERS - 1, end) + 1)]
            longest = max((length for length, context in enumerate(contexts) if context in known), default=0)
            asked.update(contexts[longest:])
            if end < len(ids):
                followed.update((*context, ids[end]) for context in contexts[longest:])
    left_over = dict.fromkeys(asked, 1.0)
    for window, number in followed.items():
        left_over[window[:-1]] -= max(number - DISCOUNT, 0) / asked[window[:-1]]

    tokens = sum(number for window, number in followed.items() if len(window) == 1)

    def probability(window: tuple[int, ...]) -> float:
        if len(window) == 1:
            return followed[window] / max(1, tokens)
        share = max(followed[window] - DISCOUNT, 0) / max(1, asked[window[:-1]])
        return share + left_over.get(window[:-1], 1.0) * probability(window[1:])

    smoothed = conditional_followers(windows, kept, DISCOUNT)
    compared = 0
    for order in range(1, ORDERS + 1):
        rows = np.arange(0, len(windows[order - 1].keys), 1 if order > 1 else 50)
        for window, found in zip(
            (counts.spelled(order, rows) - 1).tolist(), smoothed[order - 1].probability[rows], strict=True
        ):
            assert found == pytest.approx(probability(tuple(window)), rel=1e-3, abs=1e-6), window
            compared += 1
    print(f"{compared} windows compared")
    assert compared > 2000
