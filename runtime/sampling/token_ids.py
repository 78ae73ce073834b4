"""Which token ids a model has.

A tokenizer can have more tokens than the model has rows: Gemma 3's has 262,145, the model 262,144. MLX does not check
indices, so an id beyond the last row reads or writes foreign memory in the embedding, a penalty or a bias. The limit is
the number of the model's own logits; mlx-lm makes the embedding of the same size.
"""

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.per_model import once_per_model


class TokenOutOfRange(RuntimeUnsupported):
    """A token id that the model does not have; ``name`` says where it was given, such as ``prompt``."""

    def __init__(self, name: str, token: int, vocabulary: int) -> None:
        self.name = name
        super().__init__(
            f"{name}: token {token}: the model has {vocabulary:,} rows, expected an id from 0 to {vocabulary - 1}. "
            "Leave this token out"
        )


@once_per_model
def vocabulary_size(model: Any) -> int:
    """Number of logits that a model gives for one position, which is the number of its token ids.

    It is read once for each model, from the shape of a pass that is built and never computed.
    """
    return int(model(mx.zeros((1, 1), dtype=mx.int32)).shape[-1])


def require_tokens(name: str, tokens: Sequence[int], vocabulary: int) -> None:
    """Raise `TokenOutOfRange` if a model with ``vocabulary`` token ids lacks one of ``tokens``, given as ``name``."""
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary:
        wrong = next(token for token in tokens if not 0 <= token < vocabulary)
        raise TokenOutOfRange(name, wrong, vocabulary)


def token_ids(tokens: mx.array | Iterable[int]) -> list[int]:
    """Token ids of shape [tokens] as Python integers, of which the model need not have all; else a ``TypeError``."""
    given: Any = tokens.tolist() if isinstance(tokens, mx.array) else tokens
    return list(map(index, given))
