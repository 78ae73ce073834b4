"""The n-gram draft: probabilities and proposals equal those of a slow twin that counts in dictionaries."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectool.lab import ngram_model
from spectool.lab.ngram_model import NgramModel, NgramSource
from spectool.runtime.translation.byte_aligned import FirstTokenRule
from spectool.tokenization.tokenizer import Tokenizer

SIZE = 12
documents_of = st.lists(st.lists(st.integers(0, SIZE - 3), max_size=30), min_size=1, max_size=8).filter(any)
contexts_of = st.lists(st.integers(0, SIZE - 1), max_size=7)
ids_of = st.lists(st.integers(0, SIZE - 1), unique=True, max_size=SIZE)


class Twin:
    """Interpolated absolute discounting by the formula."""

    def __init__(self, documents: Sequence[Sequence[int]], order: int, min_count: int, size: int = SIZE) -> None:
        self.order, self.size = order, size
        self.kept: list[Counter[tuple[int, ...]]] = []
        self.totals: list[Counter[tuple[int, ...]]] = []
        self.discounts: list[float] = []
        for n in range(1, order + 1):
            grams = Counter(tuple(d[i : i + n]) for d in documents for i in range(len(d) - n + 1))
            usable = [c for g, c in grams.items() if n == 1 or self.kept[-1][g[:-1]]]
            once, twice = usable.count(1), usable.count(2)
            self.discounts.append(min(0.95, max(0.05, once / max(1, once + 2 * twice))))
            self.kept.append(Counter({g: c for g, c in grams.items() if n <= 2 or c >= min_count}))
            totals: Counter[tuple[int, ...]] = Counter()
            for gram, count in grams.items():
                totals[gram[:-1]] += count
            self.totals.append(totals)

    def distribution(self, context: Sequence[int]) -> list[float]:
        """p(every id | the last order - 1 tokens of context)."""
        shares = [1 / self.size] * self.size
        for n in range(1, min(self.order, len(context) + 1) + 1):
            seen = tuple(context[len(context) - n + 1 :])
            counts = [self.kept[n - 1][(*seen, y)] for y in range(self.size)]
            if not any(counts):
                continue
            total, discount = self.totals[n - 1][seen], self.discounts[n - 1]
            own = [max(c - discount, 0) / total for c in counts]
            left = 1 - sum(own)
            shares = [p + left * q for p, q in zip(own, shares, strict=True)]
        return shares

    def draft(
        self, ids: list[int], constraint: FirstTokenRule, within: Iterable[int]
    ) -> tuple[list[tuple[float, int, bool]], float]:
        """All first candidates by score, and the score of the best that passes."""
        plain, before = self.distribution(ids), self.distribution(ids[:-1])
        first = range(self.size) if constraint.first is None else constraint.first.tolist()
        healing = bool(ids) and constraint.extensions.size > 0
        scale = before[ids[-1]] if healing else 1.0
        found = [(scale * plain[y], y, False) for y in first if y in within]
        if healing:
            found += [(before[y], y, True) for y in constraint.extensions.tolist() if y in within]
        passing = [score for score, y, healed in found if constraint.allows(y, healed)]
        return found, max(passing, default=-1.0)


def passes(token: int, healed: bool) -> bool:
    return (token * 7 + 3 * healed) % 5 > 1


@given(documents_of, st.integers(1, 5), st.integers(1, 3), contexts_of)
def test_probabilities_equal_the_formula(documents: list[list[int]], order: int, least: int, ids: list[int]) -> None:
    model = NgramModel.count(documents, SIZE, order, least)
    expected = Twin(documents, order, least).distribution(ids)
    assert model.probabilities(model.context(ids)) == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert sum(expected) == pytest.approx(1)


@given(documents_of, contexts_of, ids_of, st.none() | ids_of, st.none() | ids_of, st.booleans(), st.integers(0, 4))
def test_drafts_equal_the_twin(
    documents: list[list[int]],
    ids: list[int],
    extensions: list[int],
    first: list[int] | None,
    within: list[int] | None,
    picky: bool,
    limit: int,
) -> None:
    constraint = FirstTokenRule(
        np.array(extensions, dtype=np.int32),
        None if first is None else np.array(first, dtype=np.int32),
        passes if picky else lambda token, healed: True,
    )
    allowed = range(SIZE) if within is None else within
    source = NgramSource(
        NgramModel.count(documents, SIZE, 4, 2), None if within is None else np.isin(np.arange(SIZE), within)
    )
    twin = Twin(documents, 4, 2)
    drafts, healed = source.draft(ids, constraint, limit)
    assert (drafts, healed) == source.draft(ids, constraint, limit)
    found, best = twin.draft(ids, constraint, allowed)
    if best < 0 or not limit:
        assert (drafts, healed) == ([], False)
        return
    assert len(drafts) == limit
    # By score: equally probable candidates may come in either order.
    [score] = [score for score, y, h in found if (y, h) == (drafts[0], healed)]
    assert constraint.allows(drafts[0], healed)
    assert score == pytest.approx(best, rel=1e-4)
    text = ids[: len(ids) - healed] + drafts[:1]
    for token in drafts[1:]:
        shares = twin.distribution(text)
        assert token in allowed
        assert shares[token] == pytest.approx(max(shares[y] for y in allowed), rel=1e-4)
        text.append(token)


def test_ids_that_the_model_does_not_have_end_the_context() -> None:
    model = NgramModel.count([[3, 4, 4, 5]], SIZE)
    for strange in (-1, SIZE, 10**9):
        assert model.context([3, strange]) == model.context([])
        assert NgramSource(model).draft([3, strange], FirstTokenRule(), 1) == ([4], False)


def test_gives_up_after_some_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def never(token: int, healed: bool) -> bool:
        asked.append((token, healed))
        return False

    monkeypatch.setattr(ngram_model, "_MOST_ASKED", 5)
    source = NgramSource(NgramModel.count([[1, 2, 3, 1, 2]], SIZE))
    assert source.draft([1], FirstTokenRule(allows=never), 3) == ([], False)
    assert len(asked) == 5 and len(set(asked)) == 5


def test_counts_a_real_text_as_the_formula_does(real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real("qwen2.5")
    text = "Wisła płynie przez Kraków i Warszawę. Dunajec płynie przez Nowy Targ i Tarnów. Odra płynie przez Wrocław."
    documents = tokenizer.encode_batch([text, *text.split(". ")])
    model = NgramModel.count(documents, tokenizer.size)
    twin = Twin(documents, 5, 2, tokenizer.size)
    for place in (0, 1, 5, 9):
        expected = twin.distribution(documents[0][:place])
        found = model.probabilities(model.context(documents[0][:place]))
        assert found == pytest.approx(np.array(expected), rel=1e-4, abs=1e-9)
    # Narrow choices beyond the first looks, and a mask over nearly everything.
    wanted = np.arange(100_000, 100_200, dtype=np.int32)
    drafts, _ = NgramSource(model).draft(documents[0][:5], FirstTokenRule(first=wanted), 3)
    assert drafts[0] in wanted and len(drafts) == 3
    rest = np.ones(tokenizer.size, dtype=bool)
    rest[documents[0]] = False
    drafts, _ = NgramSource(model, rest).draft(documents[0][:5], FirstTokenRule(), 3)
    assert len(drafts) == 3 and rest[drafts].all()
