"""Logits processors like those of mlx-lm, of which the biases are checked against the model.

mlx-lm's own are checked too, as `generate_step` gets them. Inside a function of the user's they cannot be: these here
look at the logits that they get.
"""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, cast

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.sampling import LogitsProcessor
from spectool.runtime.decoding.token_ids import require_tokens
from spectool.runtime.host.generation import sample_utils


class LogitBias:
    """Adds a number to the logits of some tokens.

    Attributes:
        tokens: Their ids.
    """

    def __init__(self, biases: Mapping[int, float]) -> None:
        """Add ``biases``, by token id."""
        for token, bias in biases.items():
            whole = isinstance(token, Integral) and not isinstance(token, bool)
            if not whole or not isinstance(bias, Real) or math.isnan(bias):
                raise RuntimeUnsupported(
                    f"logit_bias: expected token ids and the numbers to add, such as {{13: -5.0}}, "
                    f"got {{{token!r}: {bias!r}}}"
                )
        self.tokens = [int(token) for token in biases]
        self._values = mx.array([float(bias) for bias in biases.values()])
        self._indices: mx.array | None = None
        self._checked = -1  # vocabulary that has all the tokens

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Return logits [1, vocabulary] with the biases added; lazy.

        Raises:
            TokenOutOfRange: The model does not have one of the tokens.
        """
        if logits.shape[-1] != self._checked or self._indices is None:
            require_tokens("logit_bias", self.tokens, logits.shape[-1])
            self._checked, self._indices = logits.shape[-1], mx.array(self.tokens)
        return logits.at[:, self._indices].add(self._values)


def make_logits_processors(logit_bias: Mapping[int, float] | None = None, **penalties: Any) -> list[LogitsProcessor]:
    """Return the processors that mlx-lm's function of this name makes, with biases that are checked.

    Args:
        logit_bias: Numbers to add to logits, by token id.
        **penalties: ``repetition_penalty``, ``presence_penalty``, ``frequency_penalty`` and their ``_context_size``.

    Raises:
        RuntimeUnsupported: A bias is no number. A token that the model does not have is refused when it generates.
    """
    biases: list[LogitsProcessor] = [LogitBias(logit_bias)] if logit_bias else []
    return [*biases, *sample_utils.make_logits_processors(**penalties)]


def biased_tokens(processor: Any) -> list[int]:
    """Token ids that a processor of ours or of mlx-lm adds a bias to; none of any other."""
    if isinstance(processor, LogitBias):
        return processor.tokens
    code = getattr(processor, "__code__", None)
    if code is None or getattr(processor, "__module__", None) != sample_utils.__name__:
        return []
    cells = dict(zip(code.co_freevars, processor.__closure__ or (), strict=True))
    indices = cells["indices"].cell_contents if "indices" in cells else mx.array([])
    return cast("list[int]", indices.tolist())
