"""Both rules of verification leave the target's distribution as it is; rules that are almost right do not.

The rules alone decide 100,000 draws of three tokens; the loop, with models of eight tokens, fewer.
Counts are compared with exact probabilities by a chi-square test that fails by chance once in 10,000
times for a seed not yet tried (`distributions.FALSE_ALARM`). Seeds are fixed and printed.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from spectool import RuntimeUnsupported
from spectool.runtime.drafter import Drafter, Proposal
from spectool.runtime.generation import generate_step
from spectool.runtime.hybrid import HybridDrafter
from spectool.runtime.intersection_translator import IntersectionTranslator
from spectool.runtime.model_drafter import ModelDrafter
from spectool.runtime.model_source import ModelSource
from spectool.runtime.sampling import Draw, LogitsProcessor, Sampling, log_probabilities
from spectool.runtime.statistics import DraftStatistics
from spectool.runtime.translated_drafter import TranslatedDrafter
from spectool.runtime.verification import accept_or_resample, choose

from .distributions import FALSE_ALARM, filtered, follow, joint, p_value, table
from .drafters import Fixed, Oracle
from .models import perturbed, plain, prompts, tiny_model

SMALL = 6
DRAWS = 100_000
SETTINGS = {
    "temperature": Sampling(temp=0.9),
    "top-p and min-p": Sampling(temp=1.2, top_p=0.9, min_p=0.05),
    "top-k": Sampling(temp=1.0, top_k=4),
    "xtc": Sampling(temp=1.0, xtc_probability=0.5, xtc_threshold=0.15),
}

Rule = Callable[[mx.array, mx.array, mx.array], mx.array]


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """Leave mlx-lm's filters uncompiled: on a CPU each takes seconds to compile."""
    mx.disable_compile()
    yield
    mx.enable_compile()


# The rules alone.


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
        return log_probabilities(mx.broadcast_to(logits, (len(tokens), SMALL)), (), None)


def right(p: mx.array, draft: mx.array, q: mx.array) -> mx.array:
    return accept_or_resample(p, draft, q)


def exact_match(p: mx.array, draft: mx.array, q: mx.array) -> mx.array:
    return mx.random.categorical(mx.log(p))


def cycles(
    rule: Rule, sampling: Sampling, q_sampling: Sampling | None = None, *, seed: int, keep: int = 0
) -> tuple[np.ndarray, float]:
    """Draw three tokens by verification, many at once.

    Args:
        rule: p [draws, rows, SMALL], drafts [draws, rows - 1] and q [draws, rows - 1, SMALL] to tokens.
        sampling: The target's.
        q_sampling: What the rule is told that the drafts were drawn by; None for the truth.
        seed: Of the draws.
        keep: Proposals whose second token is below this are thrown away.

    Returns:
        Tokens [draws, 3] and the share of accepted drafts.
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


def check(name: str, tokens: np.ndarray, exact: np.ndarray) -> float:
    p = p_value(table(tokens, exact.shape[0]), exact)
    print(f"{name}: p {p:.3g}")
    return p


@pytest.mark.parametrize("setting", list(SETTINGS))
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


@pytest.mark.parametrize("rule", [no_residual, always_kept, rows_late])
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
    for row in range(3):
        counts = np.bincount(got[:, row], minlength=SMALL)
        assert check(f"row {row}, seed 4", got[:, row : row + 1], np.array(p[row], dtype=np.float64)) > FALSE_ALARM
        assert counts.sum() == DRAWS


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
            assert second == 0


def test_choose_takes_the_rule_that_fits() -> None:
    logprobs = log_probabilities(mx.array(np.random.default_rng(1).normal(0, 1, (3, SMALL))), (), None)
    draft, q = mx.array([5, 5]), mx.array([[0.0] * 5 + [1.0]] * 2)
    best = mx.argmax(logprobs, axis=-1).tolist()
    assert choose(logprobs, None, draft, q).tolist() == best, "greedy"
    assert choose(logprobs, lambda row: mx.argmax(row, axis=-1), draft, q).tolist() == best, "opaque"
    assert choose(logprobs, Sampling(temp=1e-3), draft).tolist() == best, "nothing drawn"
    # All of q on token 5: kept with probability p(5), and never drawn again.
    mx.random.seed(3)
    kept = [choose(logprobs, Sampling(temp=1.0), draft, q)[0].item() == 5 for _ in range(2000)]
    chance = math.exp(logprobs[0, 5].item())
    assert sum(kept) / 2000 == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / 2000))


# In the loop.

VOCABULARY = 8
PROMPT = [3, 1]
RUNS = 200
MANY_RUNS = 4000


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(vocabulary=VOCABULARY, scale=2.0)


@pytest.fixture(scope="module")
def noisy(model: Any) -> Any:
    return perturbed(model, vocabulary=VOCABULARY, noise=0.4)


def no_repeats(tokens: mx.array, logits: mx.array) -> mx.array:
    """Forbid the token three places back, in place, as mlx-lm's penalties work."""
    logits[:, tokens[-3:-2]] = -mx.inf
    return logits


LOOPED: dict[str, tuple[Sampling, tuple[LogitsProcessor, ...]]] = {
    "temperature": (Sampling(temp=1.0), ()),
    "top-p, xtc": (Sampling(temp=0.9, top_p=0.9, xtc_probability=0.5, xtc_threshold=0.15), ()),
    "processors": (
        Sampling(temp=0.8, min_p=0.02),
        (*make_logits_processors({2: 0.7}, 1.3, 2, presence_penalty=0.5), no_repeats),
    ),
}


class Lookup(Fixed):
    """Continues every model draft with token 4."""

    def __init__(self) -> None:
        super().__init__([], "lookup")

    def go_on(self, tokens: Any, limit: int) -> Proposal:
        return Proposal([4] if tokens[-1] > 3 else [], self.name, [0.9] if tokens[-1] > 3 else [])


SHARED = np.array([7, 2, -1, 0, 5, 9, -1, 4], dtype=np.int32)
"""Draft id of each target id; drafts 1, 3, 6 and 8 have no partner, and 9 is beyond the draft's tokenizer."""


def intersection_of(draft: Any) -> Drafter:
    back = np.full(10, -1, dtype=np.int32)
    back[SHARED[SHARED >= 0]] = np.flatnonzero(SHARED >= 0)
    translator = IntersectionTranslator(back, SHARED, {2: [1, 3], 6: [8]}.__getitem__)
    return TranslatedDrafter(ModelSource(draft, bos=6, size=9), translator)


def drafter_of(name: str, noisy: Any) -> Drafter:
    if name == "intersection":
        return intersection_of(tiny_model(vocabulary=10, seed=3, scale=2.0))
    if name == "hybrid":
        # At this cost the model is asked for one token and the look-up goes on.
        return HybridDrafter([Lookup(), ModelDrafter(noisy)], 0.35)
    return ModelDrafter(noisy, p_min=0.4 if name == "hesitant model" else 0.0)


def drawn_by_the_loop(
    model: Any, drafter: Drafter, sampler: Any, processors: Any, verify: Any, runs: int, seed: int
) -> tuple[np.ndarray, DraftStatistics]:
    """Return tokens [runs, 3] after PROMPT, and what drafting did."""
    mx.random.seed(seed)
    total = DraftStatistics()
    tokens = [
        [
            token
            for token, _, _ in generate_step(
                mx.array(PROMPT),
                model,
                drafter=drafter,
                max_tokens=3,
                sampler=sampler,
                logits_processors=processors,
                verify=verify,
                statistics=total,
            )
        ]
        for _ in range(runs)
    ]
    return np.array(tokens), total


def check_loop(model: Any, drafter: Drafter, kind: str, verify: str, runs: int, opaque: bool = False) -> float:
    """Compare every pair and the first token with exact probabilities; return the acceptance rate."""
    sampling, processors = LOOPED[kind]
    exact = joint(follow(model, PROMPT, VOCABULARY, processors), sampling, VOCABULARY)
    seed = 31
    sampler = make_sampler(
        sampling.temp,
        sampling.top_p,
        sampling.min_p,
        xtc_probability=sampling.xtc_probability,
        xtc_threshold=sampling.xtc_threshold,
    )
    tokens, total = drawn_by_the_loop(model, drafter, sampler if opaque else sampling, processors, verify, runs, seed)
    name = f"{drafter.name}, {kind}, {verify}, acceptance {total.acceptance_rate:.3f}, {runs} runs, seed {seed}"
    for left in range(3):
        pair = [place for place in range(3) if place != left]
        assert check(f"{name}, without {left}", tokens[:, pair], exact.sum(axis=left)) > FALSE_ALARM
    return total.acceptance_rate


def test_the_loop_keeps_the_distribution(model: Any, noisy: Any) -> None:
    assert check_loop(model, drafter_of("model", noisy), "processors", "rejection", RUNS) > 0.2


def test_the_loop_keeps_it_with_any_sampler(model: Any, noisy: Any) -> None:
    check_loop(model, drafter_of("model", noisy), "top-p, xtc", "exact", RUNS, opaque=True)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["model", "hesitant model", "intersection", "hybrid"])
@pytest.mark.parametrize("kind", list(LOOPED))
def test_the_loop_keeps_the_distribution_at_length(model: Any, noisy: Any, kind: str, drafter: str) -> None:
    check_loop(model, drafter_of(drafter, noisy), kind, "rejection", MANY_RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("opaque", [True, False])
@pytest.mark.parametrize("kind", list(LOOPED))
def test_exact_match_keeps_the_distribution_at_length(model: Any, noisy: Any, kind: str, opaque: bool) -> None:
    check_loop(model, drafter_of("model", noisy), kind, "exact", MANY_RUNS, opaque)


def test_the_loops_test_can_fail(model: Any, noisy: Any) -> None:
    """As many draws find a drafter that tells another distribution than it drew from."""

    class Liar(ModelDrafter):
        def propose(self, limit: int) -> Proposal:
            proposal = super().propose(limit)
            q = proposal.distribution
            return proposal if q is None else proposal._replace(distribution=mx.full(q.shape, 1 / VOCABULARY))

    with pytest.raises(AssertionError, match="assert"):
        check_loop(model, Liar(noisy), "temperature", "rejection", RUNS)


def test_drafts_with_the_targets_own_distribution_are_all_accepted(model: Any) -> None:
    for sampling, processors in LOOPED.values():
        total = DraftStatistics()
        steps = generate_step(
            mx.array(PROMPT),
            model,
            drafter=ModelDrafter(model),
            num_draft_tokens=4,
            max_tokens=60,
            sampler=sampling,
            logits_processors=processors,
            verify="rejection",
            statistics=total,
        )
        assert len(list(steps)) == 60
        # Passes of one and of five positions round differently.
        assert total.acceptance_rate > 0.95, sampling


def test_the_intersection_is_drawn_from_what_is_shared(model: Any) -> None:
    draft = tiny_model(vocabulary=10, seed=3, scale=2.0)
    drafter = intersection_of(draft)
    sampling, processors = LOOPED["processors"]
    drafter.draw_with(Draw(sampling, processors, VOCABULARY + 2))  # type: ignore[attr-defined]
    drafter.start([3, 1, 2])
    text, history = [6, 0, 2, 1, 3], [3, 1, 2]  # BOS, two partners and a spelling
    for committed in ([4], [0, 6, 7], [2]):
        tokens, _, _, distribution = drafter.propose(3)
        assert distribution is not None
        assert distribution.shape == (3, VOCABULARY + 2)
        drafted, seen = list(text), list(history)
        for row, token in enumerate(tokens):
            logits = np.full(VOCABULARY + 2, -np.inf)
            whole = np.array(draft(mx.array([drafted]))[0, -1], dtype=np.float64)
            for target, partner in enumerate(SHARED.tolist()):
                if 0 <= partner < 9:
                    logits[target] = whole[partner]
            changed = mx.array(logits.astype(np.float32))[None]
            for processor in processors:
                changed = processor(mx.array(seen), changed)
            exact = filtered(sampling, np.array(changed[0], dtype=np.float64))
            assert np.array(distribution[row]) == pytest.approx(exact, abs=1e-4)
            assert exact[token] > 0
            drafted.append(int(SHARED[token]))
            seen.append(token)
        drafter.commit(committed)
        for token in committed:
            text += {2: [1, 3], 6: [8]}.get(token, [int(SHARED[token])])
        history += committed


def test_a_hybrid_uses_what_was_drawn_whatever_it_is() -> None:
    class Short(Fixed):
        """Asked for more, it draws one token: worth less, it turns out, than the look-up."""

        costs_a_pass = True

        def propose(self, limit: int) -> Proposal:
            return Proposal([3], self.name, distribution=mx.full((1, VOCABULARY), 1 / VOCABULARY))

    hybrid = HybridDrafter([Fixed([1], "look-up"), Short([], "model")], 0.0)
    hybrid.start(PROMPT)
    proposal = hybrid.propose(4)
    assert (proposal.tokens, proposal.source) == ((3,), "model")
    assert proposal.distribution is not None


def test_greedy_is_as_ever(model: Any, noisy: Any) -> None:
    expected = plain(model, PROMPT, 30)
    drafter = ModelDrafter(noisy)
    for sampler in (None, Sampling(temp=0)):
        steps = generate_step(
            mx.array(PROMPT), model, drafter=drafter, max_tokens=30, sampler=sampler, verify="rejection"
        )
        assert [token for token, _, _ in steps] == expected


def test_drawing_ends_with_the_generation_that_asked_for_it(model: Any, noisy: Any) -> None:
    drafter = ModelDrafter(noisy)
    list(
        generate_step(mx.array(PROMPT), model, drafter=drafter, max_tokens=5, sampler=Sampling(1.0), verify="rejection")
    )
    drafter.draw_with(None)
    drafter.start(PROMPT)
    expected = drafter.propose(4)
    assert expected.distribution is None
    drafter.draw_with(Draw(Sampling(1.0), (), VOCABULARY))
    seen: list[tuple[int, ...]] = []
    steps = generate_step(
        mx.array(PROMPT), model, drafter=drafter, max_tokens=5, on_cycle=lambda cycle: seen.append(cycle.proposal)
    )
    list(steps)
    assert seen[0] == tuple(expected.tokens)


def test_what_cannot_be_verified_so_is_refused(model: Any) -> None:
    with pytest.raises(RuntimeUnsupported, match=r"tells its distribution.*Sampling\(temp"):
        generate_step(mx.array(PROMPT), model, sampler=make_sampler(temp=1.0), verify="rejection")
    wrong: Any = "reject"
    with pytest.raises(RuntimeUnsupported, match="'exact' or 'rejection', got 'reject'"):
        generate_step(mx.array(PROMPT), model, verify=wrong)


def test_a_distribution_of_another_vocabulary_switches_off(model: Any) -> None:
    class Foreign(Fixed):
        def propose(self, limit: int) -> Proposal:
            return Proposal([1, 2], self.name, distribution=mx.full((2, VOCABULARY + 1), 0.1))

    sampler = Sampling(temp=1.0)
    with pytest.warns(RuntimeWarning, match=rf"expected shape \[drafts, {VOCABULARY}\]"):
        steps = generate_step(mx.array(PROMPT), model, drafter=Foreign([]), max_tokens=5, sampler=sampler)
        assert len(list(steps)) == 5


# Exact match with whatever mlx-lm offers.

PROCESSORS: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {7: 1.5, 200: -3.0}},
    "repetition": {"repetition_penalty": 1.3},
    "short repetition": {"repetition_penalty": 0.8, "repetition_context_size": 3},
    "presence": {"presence_penalty": 0.7, "presence_context_size": 5},
    "frequency": {"frequency_penalty": 0.4},
    "all": {
        "logit_bias": {9: 0.5},
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "frequency_context_size": 7,
    },
}


def dry(tokens: mx.array, logits: mx.array) -> mx.array:
    """Make what would prolong a repetition less likely the longer it is, as DRY does."""
    text: list[int] = tokens.tolist()
    longest: dict[int, int] = {}
    for place in range(1, len(text)):
        length = 0
        while length < place and text[place - 1 - length] == text[-1 - length]:
            length += 1
        if length:
            longest[text[place]] = max(length, longest.get(text[place], 0))
    if longest:
        penalties = mx.array([0.8 * 1.75 ** (length - 1) for length in longest.values()])
        logits[:, mx.array(list(longest))] -= penalties
    return logits


def second_best(logprobs: mx.array) -> mx.array:
    """A sampler of nobody's, without chance."""
    return mx.argsort(-logprobs, axis=-1)[:, 1]


@pytest.fixture(scope="module")
def larger() -> Any:
    return tiny_model()


@pytest.mark.parametrize("sampler", [None, second_best], ids=["greedy", "second best"])
@pytest.mark.parametrize("kind", [*PROCESSORS, "dry"])
def test_every_processor_changes_drafted_and_plain_text_alike(larger: Any, kind: str, sampler: Any) -> None:
    def processors() -> list[LogitsProcessor]:
        made = [dry] if kind == "dry" else make_logits_processors(**PROCESSORS[kind])
        assert made
        return list(made)

    for prompt in prompts(3, seed=5):
        expected = plain(larger, prompt, 24, logits_processors=processors(), sampler=sampler)
        for wrong in (0.0, 0.4):
            steps = generate_step(
                mx.array(prompt),
                larger,
                drafter=Oracle(expected, wrong=wrong),
                max_tokens=24,
                logits_processors=processors(),
                sampler=sampler,
            )
            assert [token for token, _, _ in steps] == expected


@pytest.mark.parametrize("name", ["top-p", "min-p", "top-k", "xtc", "all"])
def test_without_drafts_a_seed_gives_mlx_lms_text(larger: Any, name: str) -> None:
    settings: dict[str, dict[str, Any]] = {
        "top-p": {"top_p": 0.8},
        "min-p": {"min_p": 0.05},
        "top-k": {"top_k": 20},
        "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.02},
        "all": {"top_p": 0.9, "min_p": 0.01, "top_k": 50, "xtc_probability": 0.3, "xtc_threshold": 0.02},
    }
    mx.random.seed(17)
    # One more than wanted: mlx-lm is a token ahead.
    expected = plain(larger, PROMPT, 20, sampler=make_sampler(0.8, **settings[name]))
    for sampler in (make_sampler(0.8, **settings[name]), Sampling(0.8, **settings[name])):
        mx.random.seed(17)
        got = [token for token, _, _ in generate_step(mx.array(PROMPT), larger, max_tokens=20, sampler=sampler)]
        assert got == expected
