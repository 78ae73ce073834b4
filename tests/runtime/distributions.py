"""Distributions that drawn tokens are compared with: a test of counts, and mlx-lm's filters written out by hand."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.runtime.sampling.samplers import LogitsProcessor, Sampling

FALSE_ALARM = 1e-4
"""Probability that a test of a right distribution fails, for a seed not yet tried. Seeds are fixed."""

Floats = NDArray[np.float64]


def p_value(counts: NDArray[Any], probabilities: Floats) -> float:
    """Return how probable counts as far off as these are, by a chi-square test.

    Cells expected fewer than 5 times are merged. Source: Wilson and Hilferty 1931 for the tail.
    """
    expected = probabilities.ravel() / probabilities.sum() * counts.sum()
    common = expected >= 5
    merged = np.append(expected[common], expected[~common].sum())
    observed = np.append(counts.ravel()[common], counts.ravel()[~common].sum())
    if observed[merged == 0].any():
        return 0.0
    observed, merged = observed[merged > 0], merged[merged > 0]
    freedom = len(merged) - 1
    if freedom == 0:
        return 1.0
    statistic = float(((observed - merged) ** 2 / merged).sum())
    spread = 2 / (9 * freedom)
    normal = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(normal / math.sqrt(2))


def table(tokens: NDArray[Any], vocabulary: int) -> NDArray[np.int64]:
    """Count the rows of tokens [draws, length] in an array of shape [vocabulary] * length."""
    counts = np.zeros((vocabulary,) * tokens.shape[1], dtype=np.int64)
    np.add.at(counts, tuple(tokens.T), 1)
    return counts


def filtered(sampling: Sampling, logits: Floats) -> Floats:
    """Return what mlx-lm's sampler draws from after logits [vocabulary], one token at a time."""
    logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    if sampling.temp == 0:
        return np.eye(len(logits))[logits.argmax()]
    kept = logprobs.copy()
    if 0 < sampling.top_p < 1:
        order = np.argsort(-kept)
        before = np.cumsum(np.exp(kept[order])) - np.exp(kept[order])
        kept[order[before >= sampling.top_p]] = -np.inf
    if sampling.min_p:
        kept[np.exp(kept) < sampling.min_p * np.exp(kept.max())] = -np.inf

    def at_temperature(scores: Floats) -> Floats:
        scores = scores.copy()
        if sampling.top_k:
            scores[np.argsort(-scores)[sampling.top_k :]] = -np.inf
        weights = np.exp(scores / sampling.temp)
        return weights / weights.sum()

    share = sampling.xtc_probability
    cut = kept.copy()
    if share:
        weights = np.exp(kept) / np.exp(kept).sum()
        above = weights > sampling.xtc_threshold
        if above.any():
            above &= weights > weights[above].min()
            above[list(sampling.xtc_special_tokens)] = False
            cut[above] = -np.inf
    return (1 - share) * at_temperature(kept) + share * at_temperature(cut)


def joint(
    following: Callable[[tuple[int, ...]], Floats], sampling: Sampling, vocabulary: int, length: int = 3
) -> Floats:
    """Return the probability of each sequence of ``length`` tokens, shape [vocabulary] * length.

    ``following`` gives logits after the tokens so far [vocabulary], processors applied.
    """
    exact = np.ones((vocabulary,) * length)
    for size in range(length):
        for prefix in itertools.product(range(vocabulary), repeat=size):
            # The same for all that follows the next token.
            shape = (vocabulary,) + (1,) * (length - size - 1)
            exact[prefix] *= filtered(sampling, following(prefix)).reshape(shape)
    return exact


def follow(
    model: Any, prompt: Sequence[int], vocabulary: int, processors: Sequence[LogitsProcessor] = (), length: int = 3
) -> Callable[[tuple[int, ...]], Floats]:
    """Return the logits of a model after ``prompt`` and up to ``length - 1`` tokens, each from the whole text."""
    known: dict[tuple[int, ...], Floats] = {}
    for size in range(length):
        prefixes = list(itertools.product(range(vocabulary), repeat=size))
        logits = model(mx.array([[*prompt, *prefix] for prefix in prefixes]))[:, -1]
        for row, prefix in enumerate(prefixes):
            changed = logits[row : row + 1]
            for processor in processors:
                changed = processor(mx.array([*prompt, *prefix]), changed)
            known[prefix] = np.array(changed[0], dtype=np.float64)
    return known.__getitem__


def check_pairs(
    name: str,
    tokens: NDArray[Any],
    model: Any,
    prompt: Sequence[int],
    sampling: Sampling,
    processors: Sequence[LogitsProcessor] = (),
) -> None:
    """Compare every pair of tokens [draws, 3] with what a model of eight tokens draws after ``prompt``."""
    exact = joint(follow(model, prompt, 8, processors), sampling, 8)
    for left in range(3):
        pair = [place for place in range(3) if place != left]
        p = check(f"{name}, without {left}", tokens[:, pair], exact.sum(axis=left))
        assert p > FALSE_ALARM, f"another distribution: p {p:.3g}"


def check(name: str, tokens: NDArray[Any], exact: Floats) -> float:
    """Print and return how probable it is that tokens [draws, length] came from ``exact`` [vocabulary, ...]."""
    p = p_value(table(tokens, exact.shape[0]), exact)
    print(f"{name}: p {p:.3g}")
    return p
