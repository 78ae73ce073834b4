"""Bits per byte of held-out text, which compare models with different tokenizers.

The sum of the losses in nats, over ln 2, over the UTF-8 bytes of the text. Each document is read from its beginning in
windows of one length; its end is not predicted. The figure is too low for tokenizers that cannot spell the text
(unknown tokens, lossy normalizers).
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.lab.training.classes import Classes
from spectool.lab.training.text import HeldOut

_BLOCK = 512


class CodeLength(NamedTuple):
    """How well a model predicts a text."""

    nats: float  # sum of the losses
    tokens: int  # tokens that were predicted
    bytes: int  # UTF-8 bytes of the text
    documents: int = 1

    @property
    def bits_per_byte(self) -> float:
        """Bits for every UTF-8 byte."""
        return self.nats / math.log(2) / self.bytes

    @property
    def nats_per_token(self) -> float:
        """Mean loss."""
        return self.nats / self.tokens

    @property
    def figures(self) -> dict[str, float]:
        """The figures of a record."""
        names = ("bits_per_byte", "nats_per_token", "tokens", "bytes", "documents")
        return {name: getattr(self, name) for name in names}


def total_length(measured: Iterable[CodeLength]) -> CodeLength:
    """The code length of all texts together."""
    return CodeLength(*map(sum, zip(*measured, strict=True)))


def code_length(model: Any, text: HeldOut, length: int, classes: Classes | None = None) -> CodeLength:
    """Measure a model on held-out text, in windows that predict ``length`` tokens.

    ``classes`` are those of a model over classes; None for a model over ids.
    """
    sizes = None if classes is None else mx.array(classes.log_sizes)
    nats = 0.0
    for document in text.documents:
        row = document if classes is None else classes.of_id[document]
        for first in range(0, len(row) - 1, length):
            window = row[first : first + length + 1]
            logits = model(mx.array(window[None, :-1]))[0].astype(mx.float32)
            right = mx.take_along_axis(logits, mx.array(window[1:, None]), axis=-1)[:, 0]
            loss: Any = mx.sum(log_normaliser(logits if sizes is None else logits + sizes) - right).item()
            nats += float(loss)
    return CodeLength(nats, text.tokens, text.bytes, len(text.documents))


def log_normaliser(logits: mx.array) -> mx.array:
    """The logarithm of the sum of exponentials of each row, ``[rows]``.

    It adds in blocks, because the plain float32 sum of 145,000 equal values is wrong by 0.004.
    """
    blocks = mx.pad(logits, [(0, 0), (0, -logits.shape[-1] % _BLOCK)], constant_values=mx.array(-math.inf))
    return mx.logsumexp(mx.logsumexp(blocks.reshape(len(logits), -1, _BLOCK), axis=-1), axis=-1)
