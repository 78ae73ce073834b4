"""Both rules of verification leave the target's distribution as it is; rules that are almost right do not.

100,000 draws of three tokens, many at once. Counts are compared with exact probabilities by a chi-square test that
fails by chance once in 10,000 times for a seed not yet tried (`distributions.FALSE_ALARM`). Seeds are fixed and
printed.
"""

import math
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from spectool.runtime.sampling.samplers import Sampling, log_probabilities
from spectool.runtime.sampling.verification import accept_or_resample, choose, draw_from
from spectool.tests.runtime.distributions import FALSE_ALARM, check, joint, p_value
from spectool.tests.tiers import nightly

pytestmark = pytest.mark.usefixtures("interpreted")
SMALL = 6
DRAWS = 100_000
SETTINGS = {
    "temperature": Sampling(temp=0.9),
    "top-p and min-p": Sampling(temp=1.2, top_p=0.9, min_p=0.05),
    "top-k": Sampling(temp=1.0, top_k=4),
    "xtc": Sampling(temp=1.0, xtc_probability=0.5, xtc_threshold=0.15),
}

Rule = Callable[[mx.array, mx.array, mx.array], mx.array]


class Chain:
    """Logits after every sequence of up to three tokens, at random."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._after = [rng.normal(0, 1.2, (SMALL,) * (size + 1)).astype(np.float32) for size in range(3)]

    def __call__(self, prefix: tuple[int, ...]) -> np.ndarray:
        return self._after[len(prefix)][prefix].astype(np.float64)

    def logprobs(self, tokens: np.ndarray) -> mx.array:
        """Return log-probabilities [draws, SMALL] after tokens [draws, length]."""
        logits = mx.array(self._after[tokens.shape[1]][tuple(tokens.T)])
        return log_probabilities(mx.broadcast_to(logits, (len(tokens), SMALL)))


def right(p: mx.array, draft: mx.array, q: mx.array) -> mx.array:
    return accept_or_resample(p, draft, q)


def exact_match(p: mx.array, draft: mx.array, q: mx.array) -> mx.array:
    return mx.random.categorical(mx.log(p))


def cycles(
    rule: Rule, sampling: Sampling, q_sampling: Sampling | None = None, *, seed: int, keep: int = 0
) -> tuple[np.ndarray, float]:
    """Draw three tokens [draws, 3] by verification, many at once; return the share of accepted drafts too.

    The rule gets p [draws, rows, SMALL], drafts [draws, rows - 1], and q [draws, rows - 1, SMALL] of ``q_sampling`` or
    the true one. Proposals whose second token is below ``keep`` are thrown away.
    """
    target, drafter = Chain(1), Chain(2)
    mx.random.seed(seed)
    tokens, filled = np.full((DRAWS, 3), -1), np.zeros(DRAWS, dtype=int)
    accepted = proposed = 0
    for have in range(3):
        rows = np.flatnonzero(filled == have)
        if not len(rows):
            continue
        text = tokens[rows, :have]
        drafts: list[np.ndarray] = []
        q, p = [], []
        for _ in range(3 - have - 1):
            p.append(sampling.probabilities(target.logprobs(text)))
            logprobs = drafter.logprobs(text)
            drawn_from = sampling.probabilities(logprobs)
            drafts.append(np.array(mx.random.categorical(mx.log(drawn_from))))
            q.append((q_sampling or sampling).probabilities(logprobs))
            text = np.column_stack([text, drafts[-1]])
        p.append(sampling.probabilities(target.logprobs(text)))
        draft = np.stack(drafts, axis=1).astype(int) if drafts else np.zeros((len(rows), 0), dtype=int)
        if drafts:
            got = np.array(rule(mx.stack(p, axis=1), mx.array(draft), mx.stack(q, axis=1)))
        else:
            got = np.array(mx.random.categorical(mx.log(p[0])))[:, None]
        if keep and len(drafts) == 2:
            plainly = np.array(mx.random.categorical(mx.log(p[0])))
            dropped = draft[:, 1] < keep
            got[dropped, 0] = plainly[dropped]
            draft[dropped] = -1
        agreed = np.cumprod(got[:, : len(drafts)] == draft, axis=1).sum(axis=1)
        accepted, proposed = accepted + int(agreed.sum()), proposed + draft.size
        for row in range(got.shape[1]):
            used = agreed >= row
            tokens[rows[used], have + row] = got[used, row]
        filled[rows] += agreed + 1
    assert (filled == 3).all()
    return tokens, accepted / proposed


@pytest.mark.parametrize("setting", ["top-p and min-p", *nightly("temperature", "top-k", "xtc")])
def test_rules_keep_the_joint_distribution(setting: str) -> None:
    exact = joint(Chain(1), SETTINGS[setting], SMALL)
    share = {}
    for rule in (right, exact_match):
        tokens, share[rule] = cycles(rule, SETTINGS[setting], seed=21)
        name = f"{setting}, {rule.__name__}, acceptance {share[rule]:.3f}, {DRAWS} draws, seed 21"
        assert check(name, tokens, exact) > FALSE_ALARM
    assert share[right] > share[exact_match]


def no_residual(p: mx.array, draft: mx.array, q: mx.array) -> mx.array:
    """A wrong draft is replaced by a token of p."""
    tokens = accept_or_resample(p, draft, q)
    rejected = tokens[:, :-1] != draft
    again = mx.random.categorical(mx.log(p))
    return mx.where(mx.pad(rejected, [(0, 0), (0, 1)], constant_values=True), again, tokens)


def always_kept(p: mx.array, draft: mx.array, q: mx.array) -> mx.array:
    return mx.concatenate([draft, mx.random.categorical(mx.log(p[:, -1:]))], axis=1)


def rows_late(p: mx.array, draft: mx.array, q: mx.array) -> mx.array:
    """Each draft is judged by the q of the draft before it."""
    return accept_or_resample(p, draft, mx.concatenate([q[:, :1], q[:, :-1]], axis=1))


@pytest.mark.parametrize("rule", [no_residual, *nightly(always_kept, rows_late)])
def test_wrong_rules_are_found_in_as_many_draws(rule: Rule) -> None:
    tokens, _ = cycles(rule, SETTINGS["temperature"], seed=21)
    assert check(rule.__name__, tokens, joint(Chain(1), SETTINGS["temperature"], SMALL)) < FALSE_ALARM


def test_a_q_without_the_filters_is_found() -> None:
    setting = SETTINGS["top-p and min-p"]
    tokens, _ = cycles(right, setting, Sampling(temp=setting.temp), seed=21)
    assert check("q unfiltered", tokens, joint(Chain(1), setting, SMALL)) < FALSE_ALARM


def test_using_drafts_only_if_they_please_is_found() -> None:
    """Why a proposal must be accepted for verification before its tokens are drawn."""
    tokens, _ = cycles(right, SETTINGS["temperature"], seed=21, keep=3)
    assert check("chosen by its tokens", tokens, joint(Chain(1), SETTINGS["temperature"], SMALL)) < FALSE_ALARM


def test_drawn_tokens_then_guesses_then_nothing() -> None:
    """Rows of q decide what is judged how: one draft drawn, one guessed, and the position after both."""
    rng = np.random.default_rng(3)
    p, q = (mx.softmax(mx.array(rng.normal(0, 1.5, (rows, SMALL))), axis=-1) for rows in (3, 1))
    mx.random.seed(4)
    first = mx.random.categorical(mx.log(q[0]), num_samples=DRAWS)
    draft = mx.stack([first, mx.full((DRAWS,), 2)], axis=1)
    got = np.array(
        accept_or_resample(mx.broadcast_to(p, (DRAWS, 3, SMALL)), draft, mx.broadcast_to(q, (DRAWS, 1, SMALL)))
    )
    stand = np.ones(DRAWS, dtype=bool)  # whether all drafts before the row do
    for row in range(3):
        assert ((got[:, row] >= 0) == stand).all(), "what comes after a verdict is not drawn"
        exact = np.array(p[row], dtype=np.float64)
        assert check(f"row {row}, seed 4", got[stand, row : row + 1], exact) > FALSE_ALARM
        stand &= row < 2 and got[:, row] == np.array(draft)[:, min(row, 1)]


def test_a_drawn_token_that_was_cut_leaves_its_row() -> None:
    """The draft knows tokens 6 and 7, which the target has not: drawn, they are rejected, and q must count."""
    rng = np.random.default_rng(5)
    p = mx.softmax(mx.array(rng.normal(0, 1, (1, SMALL))), axis=-1)
    q = mx.softmax(mx.array(rng.normal(0, 1, (1, SMALL + 2))), axis=-1)
    mx.random.seed(6)
    drawn = np.array(mx.random.categorical(mx.log(q[0]), num_samples=DRAWS))
    q, valid = q[:, :SMALL], drawn < SMALL
    two = mx.broadcast_to(mx.concatenate([p, p]), (DRAWS, 2, SMALL))
    draft = mx.array(np.where(valid, drawn, 0))[:, None]
    inside = np.array(accept_or_resample(two, draft, mx.broadcast_to(q, (DRAWS, 1, SMALL))))[:, 0]
    nothing = mx.zeros((DRAWS, 0), dtype=mx.int32)
    cut = np.array(accept_or_resample(two[:, :1], nothing, mx.broadcast_to(q, (DRAWS, 1, SMALL))))[:, 0]
    exact = np.array(p[0], dtype=np.float64)
    assert check("row kept, seed 6", np.where(valid, inside, cut)[:, None], exact) > FALSE_ALARM
    forgotten = np.array(mx.random.categorical(mx.log(p[0]), num_samples=DRAWS))
    assert check("row forgotten, seed 6", np.where(valid, inside, forgotten)[:, None], exact) < FALSE_ALARM


def test_a_block_accepts_as_much_as_any_rule_may() -> None:
    """The first i drafts stand with probability w_i, and no right rule lets more stand (Sun et al. 2024)."""
    rng = np.random.default_rng(13)
    p, q = (np.array(mx.softmax(mx.array(rng.normal(0, 1.2, (rows, SMALL))), axis=-1)) for rows in (4, 3))
    mx.random.seed(14)
    draft = np.array([mx.random.categorical(mx.log(mx.array(row)), num_samples=DRAWS) for row in q]).T
    whole = (
        mx.broadcast_to(mx.array(p), (DRAWS, *p.shape)),
        mx.array(draft),
        mx.broadcast_to(mx.array(q), (DRAWS, *q.shape)),
    )
    stood = np.cumprod(np.array(accept_or_resample(*whole))[:, :3] == draft, axis=1)
    weight, alone = np.ones(DRAWS), np.ones(DRAWS)
    for place in range(3):
        ratio = p[place][draft[:, place]] / q[place][draft[:, place]]
        weight, alone = np.minimum(1, weight * ratio), alone * np.minimum(1, ratio)
        off = abs(stood[:, place].mean() - weight.mean())
        assert off < 5 * math.sqrt(weight.mean() * (1 - weight.mean()) / DRAWS), f"draft {place}, seed 14"
        assert weight.mean() > alone.mean() + 0.01 or not place, "more than token by token"


@pytest.mark.parametrize("calls", [100, *nightly(500)])
def test_rare_tokens_are_drawn_as_often_as_they_should(calls: int) -> None:
    """Half of the mass lies on one token, and half on a hundred thousand others."""
    weights = np.full(100_001, 0.5 / 100_000, dtype=np.float32)
    weights[50_000] = 0.5
    mx.random.seed(12)
    drawn = np.concatenate(
        [np.array(draw_from(mx.broadcast_to(mx.array(weights), (20, 100_001)))) for _ in range(calls)]
    )
    counts = np.bincount(np.minimum(drawn // 10_000, 9) + 10 * (drawn == 50_000), minlength=20)
    exact = np.array([0.05] * 10 + [0.0] * 5 + [0.5] + [0.0] * 4)
    assert p_value(counts, exact) > FALSE_ALARM, "seed 12"
    empty = mx.array([0.0, 0.0, 0.0, 1e-30, 0.0, 0.0])
    assert set(np.array(draw_from(mx.broadcast_to(empty, (1000, 6)))).tolist()) == {3}


def test_equal_distributions_accept_everything() -> None:
    rng = np.random.default_rng(8)
    p = mx.softmax(mx.array(rng.normal(0, 3, (DRAWS, 1, SMALL)).astype(np.float32)), axis=-1)
    mx.random.seed(9)
    draft = mx.random.categorical(mx.log(p))
    tokens = accept_or_resample(mx.concatenate([p, p], axis=1), draft, p)
    assert int(mx.sum(tokens[:, :1] != draft)) == 0


def test_disjoint_distributions_accept_nothing() -> None:
    p = mx.array([[[0.0, 0.0, 0.25, 0.75], [1.0, 0.0, 0.0, 0.0]]])
    q = mx.array([[[0.5, 0.5, 0.0, 0.0]]])
    for token in (0, 1):
        for _ in range(50):
            first, second = accept_or_resample(p, mx.array([[token]]), q)[0].tolist()
            assert first in (2, 3)
            assert second == -1


@pytest.mark.parametrize("draws", [400, *nightly(2000)])
def test_choose_takes_the_rule_that_fits(draws: int) -> None:
    logprobs = log_probabilities(mx.array(np.random.default_rng(1).normal(0, 1, (3, SMALL))))
    draft, q = (5, 5), mx.array([[0.0] * 5 + [1.0]] * 2)
    best = mx.argmax(logprobs, axis=-1).tolist()
    assert choose(logprobs, logprobs, None, draft, q).tolist() == best, "greedy"
    assert choose(logprobs, logprobs, lambda row: mx.argmax(row, axis=-1), draft, q).tolist() == best, "opaque"
    assert choose(logprobs, logprobs, Sampling(temp=1e-3), draft).tolist() == best, "nothing drawn"
    # All of q on token 5: kept with probability p(5), and never drawn again.
    mx.random.seed(3)
    kept = [choose(logprobs, logprobs, Sampling(temp=1.0), draft, q)[0].item() == 5 for _ in range(draws)]
    chance = math.exp(logprobs[0, 5].item())
    assert sum(kept) / draws == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / draws))
