"""The cache of one text, of any kind: taken back to marks. A pass may begin before the one before it is read."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.caches.leaves import flatten
from spectool.runtime.caches.prefill import prefill_steps
from spectool.runtime.caches.rewinding import Checkpoints
from spectool.runtime.groups.mirrored import mirrored
from spectool.runtime.groups.rank_0 import forward
from spectool.runtime.mlx_lm_compat import maybe_quantize_kv_cache, windows


class Quantization(NamedTuple):
    """How a cache is quantised, once it holds ``start`` tokens."""

    bits: int
    group_size: int
    start: int


class OwnCache:
    """A prompt cache that holds one text.

    Attributes:
        entries: The prompt cache, one entry for each layer; some may be replaced (quantised).
    """

    def __init__(self, model: Any, entries: list[Any], quantization: Quantization | None = None) -> None:
        """Write on from the end of ``entries`` with ``model``."""
        self.entries = entries
        self._model, self._quantization = model, quantization
        self.enter(0)

    def enter(self, length: int, *, exact_masks: bool = False) -> None:
        """Follow the entries from here on, whose last ``length`` tokens are of this text."""
        # Marks before the latest pass and before one begun ahead.
        self._checkpoints = Checkpoints(self.entries, length, keep=2)
        if exact_masks:
            _use_masks(self.entries, True)

    def read(self, tokens: Sequence[int], size: int | Callable[[], int]) -> Iterator[int]:
        """Feed a prompt in passes over ``size`` tokens; yield the tokens fed after each."""
        self._checkpoints.mark(len(tokens), windows_too=True)
        yield from prefill_steps(self._model, self.entries, _array(tokens), size, self.quantize)

    def launch(self, inputs: mx.array, rows: int) -> mx.array:
        """The logits of the last ``rows`` positions [rows, vocabulary] of a pass over ``inputs`` [tokens]; lazy."""
        self._checkpoints.mark(inputs.size)
        return forward(self._model, inputs[None], self.entries)[0, -rows:]

    def keep(self, wrong: int) -> int:
        """Take the latest tokens out again, ``wrong`` of them; return how many more had to be taken out."""
        length = self._checkpoints.length - wrong
        self._checkpoints.rewind(length)
        return length - self._checkpoints.length

    def close(self, length: int, fed: Sequence[int], step_size: int) -> int | None:
        """Leave the entries with ``length`` tokens of the text, as mlx-lm expects them; return how many they hold.

        Tokens that are missing then are among those ``fed`` in the latest pass. None means that the cache could not be
        taken back, even after a pass that broke off, and is of no further use.
        """
        _use_masks(self.entries, False)
        reached = self._checkpoints.rewind(length)
        if reached is None:
            return None
        if missing := fed[: length - reached]:
            deque(prefill_steps(self._model, self.entries, _array(missing), step_size, self.quantize), 0)
        return length

    def rewinds_one_token_only(self) -> bool:
        """Whether of a pass begun ahead, only its own token could be taken out again."""
        return self._checkpoints.rewinds_one_token_only()

    def quantize(self) -> None:
        """Quantise the entries, once they are long enough."""
        if self._quantization is not None:
            bits, group_size, start = self._quantization
            _quantize(self.entries, start, group_size, bits)

    def use_exact_masks(self) -> None:
        """Let tokens that are fed at once see what they would see one by one."""
        _use_masks(self.entries, True)


@mirrored
def _use_masks(cache: Sequence[Any], exact: bool) -> None:
    """Let tokens that are fed at once see what they would see one by one (``exact``), or what mlx-lm lets them see."""
    (windows.use_exact_masks if exact else windows.use_mlx_lm_masks)(flatten(cache))


@mirrored
def _quantize(cache: list[Any], start: int, group_size: int, bits: int) -> None:
    maybe_quantize_kv_cache(cache, start, group_size, bits)


def _array(tokens: Sequence[int]) -> mx.array:
    return mx.array(list(tokens), dtype=mx.int32)
