"""Target tokens drawn from a draft with another tokenizer: the output is the target's.

Six pairs of toy tokenizers (`toy_pairs`). The first three tokens after several prompts are compared with exact
probabilities. Variants that are almost right are found with as many draws. Seeds are fixed and printed, and levels are
divided by the number of tests.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from spectool.lab.drawing.drafter import DrawingDrafter, DrawingTranslator
from spectool.lab.drawing.next_tokens import NextTokens, draw_tokens
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import FURTHER
from spectool.runtime.sampling.samplers import Sampling
from spectool.runtime.sampling.verification import Draw, accept_or_resample
from spectool.runtime.translation.byte_aligned import FirstTokenRule
from spectool.tests.lab.drawing.drawn import LENGTH, SAMPLING, first, following
from spectool.tests.lab.drawing.toy_pairs import PAIRS, TableScorer, ToyPair
from spectool.tests.runtime.distributions import FALSE_ALARM, p_value
from spectool.tests.runtime.models import tiny_model

QUICK, MANY = 5_000, 100_000  # draws for a pair, over all its prompts
PARTS = ((), (2,), (0,), (1, 2), (0, 2), (0, 1))  # tokens of the three that are summed over
LEVEL = FALSE_ALARM / len(PAIRS)


def p_of(pair: ToyPair, ids: Sequence[int]) -> NDArray[np.float64]:
    """Return what the target draws from after ``ids`` [target ids]."""
    weights = np.exp(pair.target_model.logits(ids) / SAMPLING.temp)
    return weights / weights.sum()


Propose = Callable[[ToyPair, DrawingTranslator, int], tuple[list[int], mx.array | None]]


class _Remembered(NextTokens):
    """The same, worked out once for each text: what is stated is a function of what was committed and drawn."""

    _known: ClassVar[dict[tuple[Any, ...], tuple[NDArray[np.int32], NDArray[np.float64]] | None]] = {}
    passes, least = 8, 0.0

    def __init__(self, pair: ToyPair, translator: DrawingTranslator) -> None:
        self._pair, self._translator, self._drawn = pair, translator, (id(pair), *translator._text, None)

    def stated(self) -> tuple[NDArray[np.int32], NDArray[np.float64]] | None:
        if self._drawn not in self._known:
            ahead = following(self._pair, self._translator, passes=self.passes, least=self.least)
            for token in self._drawn[self._drawn.index(None) + 1 :]:
                ahead.stated()
                ahead.follow(token)
            self._known[self._drawn] = ahead.stated()
        return self._known[self._drawn]

    def follow(self, token: int) -> None:
        self._drawn += (token,)


def right(pair: ToyPair, translator: DrawingTranslator, limit: int) -> tuple[list[int], mx.array | None]:
    return draw_tokens(_Remembered(pair, translator), limit, pair.target.size)


class _OnePass(_Remembered):
    _known: ClassVar[dict[tuple[Any, ...], tuple[NDArray[np.int32], NDArray[np.float64]] | None]] = {}
    passes = 1


def one_pass(pair: ToyPair, translator: DrawingTranslator, limit: int) -> tuple[list[int], mx.array | None]:
    return draw_tokens(_OnePass(pair, translator), limit, pair.target.size)


class _UntilUnsure(_Remembered):
    _known: ClassVar[dict[tuple[Any, ...], tuple[NDArray[np.int32], NDArray[np.float64]] | None]] = {}
    least = 0.5


def until_unsure(pair: ToyPair, translator: DrawingTranslator, limit: int) -> tuple[list[int], mx.array | None]:
    return draw_tokens(_UntilUnsure(pair, translator), limit, pair.target.size)


class _NotRenormalised(NextTokens):
    """Says how likely a token is together with those before it, instead of given them."""

    before = 1.0

    def stated(self) -> tuple[NDArray[np.int32], NDArray[np.float64]] | None:
        known = super().stated()
        return known and (known[0], known[1] * self.before)

    def follow(self, token: int) -> None:
        known = super().stated()
        assert known is not None
        self.before *= float(known[1][known[0] == token][0])
        super().follow(token)


def not_renormalised(pair: ToyPair, translator: DrawingTranslator, limit: int) -> tuple[list[int], mx.array | None]:
    return draw_tokens(following(pair, translator, _NotRenormalised), limit, pair.target.size)


def only_if_it_pleases(pair: ToyPair, translator: DrawingTranslator, limit: int) -> tuple[list[int], mx.array | None]:
    """Use a proposal only if the target would take its first token rather than not."""
    tokens, distribution = right(pair, translator, limit)
    pleases = tokens and p_of(pair, translator._text)[tokens[0]] > 1 / len(pair.target_model.known)
    return (tokens, distribution) if pleases else ([], None)


def healed_after_the_draw(
    pair: ToyPair, translator: DrawingTranslator, limit: int
) -> tuple[list[int], mx.array | None]:
    """Draw from plain tokens, then put the best healed one in place of an unlikely one."""
    rows, context, constraint = translator.token_rows(), translator.draft_context(), translator.constraint()
    assert rows is not None
    draw, scorer = Draw(SAMPLING, (), pair.target.size), TableScorer(pair.draft_model)
    plain = NextTokens(scorer, rows, context, FirstTokenRule(first=constraint.first), draw, (), 8)
    tokens, distribution = draw_tokens(plain, limit, pair.target.size)
    whole = following(pair, translator).stated()
    if tokens and distribution is not None and whole is not None:
        best = int(whole[0][whole[1].argmax()])
        if whole[1][whole[0] == tokens[0]].sum() < whole[1].max() / 2:
            return [best], distribution[:1]
    return tokens, distribution


def outputs(
    pair: ToyPair, translator: DrawingTranslator, prompt: list[int], draws: int, propose: Propose
) -> tuple[NDArray[np.int64], float]:
    """Generate three tokens after a prompt, ``draws`` times, those with the same tokens so far together.

    Returns:
        Tokens [draws, 3], and accepted drafts / drafts.
    """
    tokens, filled = np.full((draws, LENGTH), -1), np.zeros(draws, dtype=int)
    accepted = proposed = 0
    size = pair.target.size
    for have in range(LENGTH):
        at = np.flatnonzero(filled == have)
        for begun in sorted(set(map(tuple, tokens[at, :have].tolist()))):
            places = at[(tokens[at, :have] == begun).all(axis=1)]
            translator.start()
            translator.commit([*prompt, *begun])
            proposals = [propose(pair, translator, LENGTH - have - 1) for _ in places]
            shapes = [(len(drafts), 0 if q is None else q.shape[0]) for drafts, q in proposals]
            for drafted, drawn in set(shapes):
                own = [number for number, shape in enumerate(shapes) if shape == (drafted, drawn)]
                draft = np.array([proposals[number][0] for number in own]).reshape(len(own), drafted)
                texts = [tuple(row[:end]) for row in draft.tolist() for end in range(drafted + 1)]
                known = {text: p_of(pair, [*prompt, *begun, *text]) for text in set(texts)}
                p = np.array([known[text] for text in texts]).reshape(len(own), drafted + 1, size)
                q = [proposals[number][1] for number in own]
                stated = mx.stack(q) if drawn else mx.zeros((len(own), 0, size))
                got = np.array(accept_or_resample(mx.array(p.astype(np.float32)), mx.array(draft), stated))
                agreed = np.cumprod(got[:, :drafted] == draft, axis=1).sum(axis=1)
                accepted, proposed = accepted + int(agreed.sum()), proposed + draft.size
                for row in range(drafted + 1):
                    used = agreed >= row
                    tokens[places[own][used], have + row] = got[used, row]
                filled[places[own]] += agreed + 1
    assert (filled == LENGTH).all()
    return tokens, accepted / max(1, proposed)


def exact(pair: ToyPair, prompt: list[int]) -> tuple[list[int], NDArray[np.float64]]:
    """Return the ids that the target knows, and the probability of each three of them, shape [ids] * 3."""
    known = sorted(pair.target_model.known)
    joint = np.ones((len(known),) * LENGTH)
    for size in range(LENGTH):
        for places in itertools.product(range(len(known)), repeat=size):
            shape = (len(known),) + (1,) * (LENGTH - size - 1)
            joint[places] *= p_of(pair, [*prompt, *(known[place] for place in places)])[known].reshape(shape)
    return known, joint


def least_p_value(name: str, byte_aligned: DrawingTranslator, draws: int, propose: Propose, seed: int) -> float:
    """Draw after every prompt of a pair; return the least p-value, corrected for their number."""
    pair, least = PAIRS[name], 1.0
    mx.random.seed(seed)
    for prompt in pair.prompt_ids:
        tokens, share = outputs(pair, byte_aligned, prompt, draws // len(pair.prompts), propose)
        known, joint = exact(pair, prompt)
        counts = np.zeros_like(joint, dtype=np.int64)
        np.add.at(counts, tuple(np.searchsorted(known, tokens).T), 1)
        # All three tokens, pairs, and each alone: fewer cells see smaller differences.
        values = [p_value(counts.sum(axis=part), joint.sum(axis=part)) for part in PARTS]
        shown = " ".join(f"{value:.3g}" for value in values)
        print(f"{name}, {propose.__name__}, after {prompt}: p {shown}, acceptance {share:.3f}, seed {seed}")
        least = min(least, min(values) * len(PARTS) * len(pair.prompts))
    return least


@pytest.mark.parametrize(
    "name", [pytest.param("byte-level to SentencePiece", marks=pytest.mark.nightly), "pending bytes"]
)
def test_the_output_is_the_targets(name: str, translator: Callable[[str], DrawingTranslator]) -> None:
    assert least_p_value(name, translator(name), QUICK, right, seed=41) > LEVEL


@pytest.mark.parametrize("name", first(PAIRS, "SentencePiece to byte-level"))
def test_drafts_that_end_where_the_model_is_unsure_are_exact_too(
    name: str, translator: Callable[[str], DrawingTranslator]
) -> None:
    assert least_p_value(name, translator(name), QUICK, until_unsure, seed=41) > LEVEL
    pair, byte_aligned = PAIRS[name], translator(name)
    drawn = dict.fromkeys((0.0, 1.0), 0)
    for prompt, least in itertools.product(pair.prompt_ids, drawn):
        byte_aligned.start()
        byte_aligned.commit(prompt)
        drawn[least] += len(draw_tokens(following(pair, byte_aligned, least=least), 8, pair.target.size)[0])
    assert drawn[1.0] < drawn[0.0]


@pytest.mark.parametrize("name", first(PAIRS, "pending bytes"))
def test_one_pass_and_those_that_settle_it_are_exact_too(
    name: str, translator: Callable[[str], DrawingTranslator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DrawingTranslator, "is_settled", lambda self, tokens: False)
    assert least_p_value(name, translator(name), QUICK, one_pass, seed=41) > LEVEL


def test_a_pass_more_settles_what_one_pass_says(
    translator: Callable[[str], DrawingTranslator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where less than all that may be asked settles the first token, it is stated as it is with many passes."""
    monkeypatch.setattr(DrawingTranslator, "is_settled", lambda self, tokens: False)
    pair, byte_aligned = PAIRS["byte-level to SentencePiece"], translator("byte-level to SentencePiece")
    settled = 0
    for prompt in pair.prompt_ids:
        byte_aligned.start()
        byte_aligned.commit(prompt)
        one, many = (following(pair, byte_aligned, sampling=Sampling(temp=0.4), passes=passes) for passes in (1, 8))
        stated, expected = one.stated(), many.stated()
        assert stated is not None and expected is not None
        if 0 < one._further < FURTHER:
            settled += 1
            assert stated[0].tolist() == expected[0].tolist() and np.allclose(stated[1], expected[1])
    assert settled


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PAIRS))
def test_the_output_is_the_targets_at_length(name: str, translator: Callable[[str], DrawingTranslator]) -> None:
    assert least_p_value(name, translator(name), MANY, right, seed=43) > LEVEL


WRONG = {
    not_renormalised: "byte-level to SentencePiece",
    only_if_it_pleases: "byte-level to SentencePiece",
    healed_after_the_draw: "healing",
}


@pytest.mark.parametrize("propose", first(WRONG, only_if_it_pleases))
def test_what_is_almost_right_is_found(propose: Propose, translator: Callable[[str], DrawingTranslator]) -> None:
    assert least_p_value(WRONG[propose], translator(WRONG[propose]), QUICK, propose, seed=41) < LEVEL


@pytest.mark.nightly
@pytest.mark.parametrize("least", [0.0, 0.1])
def test_the_loop_keeps_the_distribution_with_models(
    least: float, translator: Callable[[str], DrawingTranslator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two small models, a cache on either side, and processors: all that a generation is made of."""
    drawn = list[Any]()
    monkeypatch.setattr(
        "spectool.lab.drawing.drafter.draw_tokens", lambda *given: drawn.append(given) or draw_tokens(*given)
    )
    name, runs, seed = "SentencePiece to byte-level", 700, 47
    pair, known = PAIRS[name], np.array(sorted(PAIRS[name].target_model.known))
    target, draft = (tiny_model(vocabulary=side.size, seed=3, scale=2.0) for side in (pair.target, pair.draft))
    others = mx.array(np.setdiff1d(np.arange(pair.target.size), known))

    def restrict(tokens: mx.array, logits: mx.array) -> mx.array:
        logits[:, others] = -mx.inf
        return logits

    source = ModelSource(draft, size=pair.draft.size, min_probability=least)
    drafter = DrawingDrafter(source, translator(name), least=least)
    total, prompt = DraftStatistics(), pair.prompt_ids[1]
    options = {
        "num_draft_tokens": 8,
        "sampler": SAMPLING,
        "logits_processors": [restrict],
        "statistics": total,
        "max_tokens": LENGTH,
    }
    mx.random.seed(seed)
    tokens = np.array(
        [
            [token for token, _, _ in generate_step(mx.array(prompt), target, drafter=drafter, **options)]
            for _ in range(runs)
        ]
    )
    joint = np.ones((len(known),) * LENGTH)
    for size in range(LENGTH):
        prefixes = list(itertools.product(range(len(known)), repeat=size))
        texts = [[*prompt, *known[list(places)].tolist()] for places in prefixes]
        logits = np.array(target(mx.array(texts))[:, -1], dtype=np.float64)[:, known]
        for places, row in zip(prefixes, logits, strict=True):
            weights = np.exp((row - row.max()) / SAMPLING.temp)
            joint[places] *= (weights / weights.sum()).reshape((len(known),) + (1,) * (LENGTH - size - 1))
    assert len(drawn) > runs / 2
    counts = np.zeros_like(joint, dtype=np.int64)
    np.add.at(counts, tuple(np.searchsorted(known, tokens).T), 1)
    values = [p_value(counts.sum(axis=part), joint.sum(axis=part)) for part in PARTS]
    print(f"{name}, {runs} runs, acceptance {total.acceptance_rate:.3f}, p {values}, seed {seed}")
    assert total.accepted > 50
    assert min(values) * len(PARTS) > FALSE_ALARM


@pytest.mark.parametrize("drawn_right", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_way_that_has_more_accepted_is_asked(
    drawn_right: bool, translator: Callable[[str], DrawingTranslator]
) -> None:
    """Drawn or guessed: a text that agrees with one of the two alone, and then with the other."""
    pair = PAIRS[name := "SentencePiece to byte-level"]
    known = sorted(pair.target_model.known)
    draft = tiny_model(vocabulary=pair.draft.size, seed=3, scale=2.0)
    drafter = DrawingDrafter(ModelSource(draft, size=pair.draft.size), translator(name))
    mx.random.seed(48)
    for right in (drawn_right, not drawn_right):
        drafter.draw_with(Draw(SAMPLING, (), pair.target.size))
        drafter.start(pair.prompt_ids[1])
        drawn = []
        for _ in range(180):
            proposal = drafter.propose(3)
            drawn.append(proposal.distribution is not None)
            other = next(id_ for id_ in known if id_ not in proposal.tokens[:1])
            drafter.commit([*proposal.tokens[:2], other] if drawn[-1] == right else [other])
        share = np.mean(drawn[120:])
        assert share > 0.8 if right else share < 0.2, f"{share:.2f} drawn, seed 48"
        assert right == drawn_right or drawn[0] == drawn_right, "what was learnt stays, whatever came between"
        drafter.draw_with(None)
        drafter.start(pair.prompt_ids[1])
        greedy = drafter.propose(3)
        drafter.commit(greedy.tokens)
        assert greedy.tokens and greedy.distribution is None
