"""How a request chooses its tokens: samplers whose distribution is known, and logits processors that are checked.

A sampler of mlx-lm is a function from log-probabilities to tokens whose distribution is not known. `Sampling` is made
from the same settings and states its distribution, which drawn drafts and rejection sampling need.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, cast

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.mlx_lm_compat import sample_utils
from spectool.runtime.sampling.token_ids import require_tokens, token_ids
from spectool.runtime.settings import LEAST_DIVISOR, PENALTIES, SAMPLER, Setting

Sampler = Callable[[mx.array], mx.array]
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]
_LARGEST_BIAS = 1e30  # with the least temperature, still a float32


class WrongSetting(RuntimeUnsupported):
    """A sampling setting (``name``) that is out of range; ``problem`` says what was expected and what was given."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


@dataclass(frozen=True)
class Sampling:
    """A sampler like those of mlx-lm's ``make_sampler``, whose distribution is known.

    All settings are checked when it is made, and a wrong one raises `WrongSetting`.
    """

    temp: float = SAMPLER["temp"].default  # 0 takes the most probable token, and the others have no effect
    top_p: float = SAMPLER["top_p"].default  # mass of the most probable tokens that are kept; 0 for the first of them
    min_p: float = SAMPLER["min_p"].default  # least probability, as a share of the best token's; 0 for all
    top_k: int = 0  # most probable tokens that are kept; 0, or as many as the model has, for all
    xtc_probability: float = SAMPLER["xtc_probability"].default  # of leaving out all above the threshold but the least
    xtc_threshold: float = SAMPLER["xtc_threshold"].default  # least probability of what is left out then, 0 to 0.5
    xtc_special_tokens: Sequence[int] = ()  # ids that are never left out then

    def __post_init__(self) -> None:
        for name, setting in SAMPLER.items():
            object.__setattr__(self, name, number(name, getattr(self, name), setting))
        if self.top_p == 0:  # mlx-lm's sampler takes this for no filter
            object.__setattr__(self, "temp", 0.0)

    def __call__(self, logits: mx.array) -> mx.array:
        """A token from each row of logits [rows, vocabulary], the one that mlx-lm's sampler would draw; lazy.

        They are normalised only where top-p needs it: on a CPU that takes almost as long as drawing from them.
        """
        if self.temp == 0:
            return mx.argmax(logits, axis=-1)
        # Top-p adds up exponentials as if they were probabilities.
        shift = mx.logsumexp if self.top_p < 1 else mx.max
        logits = logits - shift(logits, axis=-1, keepdims=True)
        if self.xtc_probability > 0:
            return row_by_row(self._draw, logits)  # it tosses one coin a call
        return self._draw(logits)

    def probabilities(self, logits: mx.array) -> mx.array:
        """The distribution that a token is drawn from, float32 [..., vocabulary]; lazy.

        XTC is a mixture: its coin decides between two filters. None of them needs normalised logits [..., vocabulary],
        which saves computing a vocabulary's exponentials.
        """
        if self.temp == 0:
            return (mx.arange(logits.shape[-1]) == mx.argmax(logits, axis=-1, keepdims=True)).astype(mx.float32)
        # Exponentials of large logits, and their products with 1 / temp, would be infinite.
        logits = self._likely(logits - mx.max(logits, axis=-1, keepdims=True))
        share = self.xtc_probability
        if share <= 0:
            return self._at_temperature(logits)
        return (1 - share) * self._at_temperature(logits) + share * self._at_temperature(self._xtc(logits, 1.0))

    def _draw(self, logits: mx.array) -> mx.array:
        logits = self._likely(logits)
        if self.xtc_probability > 0:
            logits = self._xtc(logits, self.xtc_probability)
        return cast(mx.array, sample_utils.categorical_sampling(self._best(logits), self.temp))

    def _at_temperature(self, logits: mx.array) -> mx.array:
        best = self._best(logits)
        chosen = mx.softmax(best.astype(mx.float32) * (1 / self.temp), axis=-1)
        return chosen / block_sum(chosen)[..., None]

    # mlx-lm's filters, in the order of its `make_sampler`; what they leave out is at -inf. They refuse settings that
    # restrict nothing, which therefore do not reach them.

    def _likely(self, logits: mx.array) -> mx.array:
        if self.top_p < 1:
            logits = sample_utils.apply_top_p(logits, self.top_p)
        if self.min_p > 0:
            logits = sample_utils.apply_min_p(logits, self.min_p)
        return logits

    def _xtc(self, logits: mx.array, probability: float) -> mx.array:
        kept = [token for token in self.xtc_special_tokens if 0 <= token < logits.shape[-1]]
        return cast(mx.array, sample_utils.apply_xtc(logits, probability, self.xtc_threshold, kept))

    def _best(self, logits: mx.array) -> mx.array:
        return sample_utils.apply_top_k(logits, self.top_k) if 0 < self.top_k < logits.shape[-1] else logits


def kept_by_xtc(tokenizer: Any) -> tuple[int, ...]:
    """The ``xtc_special_tokens`` of mlx-lm's command line: line ends and the ends of a text."""
    return (*tokenizer.encode("\n", add_special_tokens=False), *tokenizer.eos_token_ids)


class LogitBias:
    """Adds numbers to the logits of some tokens, after checking that the model has them."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        for token, bias in biases.items():
            if not isinstance(bias, Real) or not bias <= _LARGEST_BIAS:
                raise WrongSetting("logit_bias", f"expected numbers up to {_LARGEST_BIAS:g}, got {bias!r} for {token}")
        self.tokens = token_ids(biases)
        self._values = mx.array([float(bias) for bias in biases.values()])
        self._places: dict[int, mx.array] = {}  # of the tokens, by the size of a vocabulary that has all of them

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Logits [1, vocabulary] with the biases added; lazy."""
        if (size := logits.shape[-1]) not in self._places:
            require_tokens("logit_bias", self.tokens, size)
            self._places[size] = mx.array(self.tokens)
        return logits.at[:, self._places[size]].add(self._values)


def make_logits_processors(
    logit_bias: Mapping[int, float] | None = None, *, skip: int = 0, **penalties: Any
) -> list[LogitsProcessor]:
    """The processors that mlx-lm's function of this name makes, with biases and penalties that are checked.

    `generate_step` refuses biases to tokens that the model lacks. It does not look into processors that mlx-lm made.

    Args:
        logit_bias: Numbers to add to logits, by token id.
        skip: The first tokens of a text, such as its prompt, whose presence and frequency do not count.
        **penalties: ``repetition_penalty``, ``presence_penalty``, ``frequency_penalty`` and their ``_context_size``,
            the number of latest tokens that count: 20 by default, 0 for all.

    Raises:
        WrongSetting: One of them is out of range. A token that the model does not have is refused when it generates.
    """
    for name, value in penalties.items():
        if name in PENALTIES and (value is not None or PENALTIES[name].whole):
            penalties[name] = number(name, value, PENALTIES[name])
    biases: list[LogitsProcessor] = [LogitBias(logit_bias)] if logit_bias else []
    repetition = {name: penalties.pop(name) for name in [*penalties] if name.startswith("repetition")}
    made = sample_utils.make_logits_processors
    return [*biases, *made(**repetition), *(partial(_after, skip, each) for each in made(**penalties))]


def _after(skip: int, processor: LogitsProcessor, tokens: mx.array, logits: mx.array) -> mx.array:
    return processor(tokens[skip:], logits)


def processed(logits: mx.array, processors: Sequence[LogitsProcessor], tokens: mx.array | None) -> mx.array:
    """Logits [rows, vocabulary] as changed by the processors in order, position by position; lazy.

    ``tokens`` are all before the last row [history + rows - 1]; None where there are no processors. The rows end at the
    first text that a processor refuses by raising, as grammars do. A refusal of the first one is raised, since nothing
    but committed text goes before it.
    """
    if not processors or tokens is None:
        return logits
    history = tokens.size - logits.shape[0] + 1
    rows: list[mx.array] = []
    for row in range(logits.shape[0]):
        row_logits = logits[row : row + 1]
        try:
            for processor in processors:
                row_logits = processor(tokens[: history + row], row_logits)
        except Exception:
            if not rows:
                raise
            break
        rows.append(row_logits)
    return mx.concatenate(rows)


def log_probabilities(logits: mx.array) -> mx.array:
    """Normalised logits [..., vocabulary]; lazy."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def row_by_row(sampler: Sampler, logprobs: mx.array) -> mx.array:
    """The tokens [rows] that ``sampler`` draws from each row [1, vocabulary] by itself."""
    return mx.concatenate([sampler(logprobs[row : row + 1]) for row in range(logprobs.shape[0])])


def block_sum(weights: mx.array) -> mx.array:
    """The sum of each of ``weights`` [..., vocabulary]; MLX's own loses rare tokens on a CPU; lazy."""
    return mx.sum(mx.sum(in_blocks(weights), axis=-1), axis=-1)


def in_blocks(weights: mx.array) -> mx.array:
    """``weights`` [..., vocabulary] as blocks of neighbours [..., blocks, blocks], zeros at the end; lazy."""
    blocks = math.isqrt(weights.shape[-1] - 1) + 1
    if missing := blocks * blocks - weights.shape[-1]:
        weights = mx.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)])
    return weights.reshape(*weights.shape[:-1], blocks, blocks)


def number(name: str, value: Any, setting: Setting) -> Any:
    """A number that is what a setting may be, else a `WrongSetting`; NaN and infinity never are."""
    plain: float = math.nan
    kind: Any = Integral if setting.whole else Real
    if isinstance(value, kind) and not isinstance(value, bool):
        with suppress(OverflowError):  # a whole number that is larger than any float
            plain = int(value) if setting.whole else float(value)
    tiny = setting.divisor and 0 < plain < LEAST_DIVISOR
    if not setting.least <= plain <= setting.most or plain == math.inf or tiny:
        least = LEAST_DIVISOR if setting.divisor else setting.least
        bounds = f"from {least:g} to {setting.most:g}" if setting.most < math.inf else f"of at least {least:g}"
        expected = "0 or " * setting.divisor + ("a whole number" if setting.whole else "a number")
        raise WrongSetting(name, f"expected {expected} {bounds}, got {value!r}")
    return plain
