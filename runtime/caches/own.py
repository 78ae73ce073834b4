"""The cache of one text, of any kind: taken back to marks. A pass may begin before the one before it is read."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.leaves import flatten
from spectool.runtime.caches.rewinding import Checkpoints
from spectool.runtime.groups.mirrored import mirrored
from spectool.runtime.groups.rank_0 import forward, forward_of
from spectool.runtime.mlx_lm_compat import maybe_quantize_kv_cache, windows

PREFILL_TOKENS = 2048  # in a pass, where no logits are needed and nobody says another number


class OwnCache:
    """A prompt cache that holds one text: ``entries``, one for each layer; some may be replaced (quantised)."""

    def __init__(self, model: Any, entries: list[Any], quantised: tuple[int | None, int, int] = (None, 0, 0)) -> None:
        """Write on from the end of ``entries`` with ``model``; ``quantised`` to bits in groups, from a length on."""
        self.entries = entries
        self._model, self._quantised, self._forward = model, quantised, forward_of(model)
        self.enter(0)

    def enter(self, length: int, *, exact_masks: bool = False) -> None:
        """Follow the entries from here on, whose last ``length`` tokens are of this text."""
        # Marks before the latest pass and before one begun ahead.
        self.checkpoints = Checkpoints(self.entries, length, keep=2)
        if exact_masks:
            use_masks(self.entries, exact=True)

    def read(self, tokens: Sequence[int]) -> None:
        """Feed a part of a prompt, in one pass."""
        prefill(self._model, self.entries, tokens, len(tokens), self.quantize)

    def launch(self, inputs: mx.array) -> mx.array:
        """The logits [1, tokens, vocabulary] of a pass over ``inputs`` [1, tokens]; lazy."""
        self.checkpoints.mark(inputs.size)
        return self._forward(inputs, self.entries)

    def keep(self, wrong: int) -> int:
        """Take the latest tokens out again, ``wrong`` of them; return how many more had to be taken out."""
        length = self.checkpoints.length - wrong
        self.checkpoints.rewind(length)
        return length - self.checkpoints.length

    def close(self, length: int, fed: Sequence[int]) -> int | None:
        """Leave the entries with ``length`` tokens of the text, as mlx-lm expects them; return how many they hold.

        Tokens that are missing then are among those ``fed`` in the latest pass. None means that the cache could not be
        taken back, even after a pass that broke off, and is of no further use.
        """
        use_masks(self.entries, exact=False)
        reached = self.checkpoints.rewind(length)
        if reached is None:
            return None
        prefill(self._model, self.entries, fed[: length - reached], quantize=self.quantize)
        return length

    def quantize(self) -> None:
        """Quantise the entries, once they are long enough."""
        bits, group_size, start = self._quantised
        if bits is not None:
            _quantize(self.entries, start, group_size, bits)


def prefill(
    model: Any,
    cache: list[Any],
    tokens: Sequence[int],
    size: int | None = None,
    quantize: Callable[[], None] = lambda: None,
) -> None:
    """Feed token ids, perhaps none, without logits, in passes of this ``size``, after each of which to ``quantize``."""
    size = PREFILL_TOKENS if size is None else size
    for first in range(0, len(tokens), size):
        piece = mx.array([list(tokens[first : first + size])], dtype=mx.int32)
        forward(model, piece, cache, logits=False)
        quantize()
        mx.eval([entry.state for entry in cache])
        mx.clear_cache()


@mirrored
def use_masks(cache: Sequence[Any], *, exact: bool) -> None:
    """Let tokens that are fed at once see what they would see one by one (``exact``), or what mlx-lm lets them see."""
    windows.use_masks(flatten(cache), exact=exact)


@mirrored
def _quantize(cache: list[Any], start: int, group_size: int, bits: int) -> None:
    maybe_quantize_kv_cache(cache, start, group_size, bits)
