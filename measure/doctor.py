"""What a pass of a model costs on this machine by the number of tokens in it, and where that leaves drafts.

Verifying k draft tokens takes a pass over 1 + k rows. On a GPU, and on a CPU with a good BLAS library, such a pass
takes hardly longer than one over a single row up to some number of rows, and then rises in steps. Where the steps are
differs from machine to machine and from model to model, so it is measured rather than assumed.
"""

import math
import random
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from statistics import median, median_low
from time import perf_counter, process_time
from typing import Any, NamedTuple

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.artifacts.pass_costs import PassCosts
from spectool.corpora import open_corpus
from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.draft_length.controller import BUSY_SHARE
from spectool.runtime.draft_length.measured import machine_name
from spectool.runtime.mlx_lm_compat import make_prompt_cache

ROWS = (1, 2, 4, 8, 17, 3, 5, 6, 12, 32, 9, 7)  # where passes are slow, the first of these
DEPTHS = (64, 1024)  # tokens in the context
INPUTS = 3  # texts on which the bits of logits are compared
_FEWEST = 2  # of them are measured, however slow they are
LEAST_SAMPLES = 3  # of each number of rows that there is time for
_SIZES, _PASSES, _BITS = 0.25, 0.8, 0.95  # of the time, when choosing sizes, timing passes and comparing bits end
NEARLY_FREE = 1.1  # times a pass over one row
_OF_ITSELF = 0.9  # processor seconds per second that passes on the processor take on an idle machine, at least


class _Sample(NamedTuple):
    seconds: float
    share: float  # processor seconds per second


def measure_costs(
    model: Any, tokenizer: Any, name: str, seconds: float = 10.0, progress: Callable[[str], None] = lambda line: None
) -> PassCosts:
    """Measure passes of a model for ``seconds``.

    Of a slow model fewer sizes are measured, and none in a long context, so that it takes no longer. Sizes take turns
    in random order, so that a busy moment does not fall on one of them, and samples during which other programs took
    the processor are left out.

    Args:
        model: An mlx-lm model, whose weights are loaded.
        tokenizer: Its tokenizer, for text to read.
        name: What the user calls it.
        seconds: Time for all of it.
        progress: Called with a line at each step.

    Raises:
        RuntimeUnsupported: The model's cache cannot be taken back, or its context is too short.
    """
    began = perf_counter()
    shallow, deep = DEPTHS
    tokens = _text(tokenizer, deep + max(ROWS) + 1)
    progress(f"passes after {shallow:,} tokens of context")
    context, reading = _timed_context(model, tokens, shallow)
    samples = {shallow: _first_samples(context, began + _SIZES * seconds)}
    of_all = math.fsum(each[0].seconds for each in samples[shallow].values())
    left = began + _PASSES * seconds - perf_counter()
    fits = reading * deep / shallow + 2 * LEAST_SAMPLES * of_all < left
    _sample(context, samples[shallow], perf_counter() + (left / 2 if fits else left))
    if fits:
        progress(f"passes after {deep:,} tokens of context")
        context, _ = _timed_context(model, tokens, deep)
        for rows in samples[shallow]:
            context.run(rows)  # the first pass of a size prepares the others
        samples[deep] = {rows: [_timed(context, rows)] for rows in samples[shallow]}
        _sample(context, samples[deep], began + _PASSES * seconds)
    else:
        progress(f"no time for passes after {deep:,} tokens: give more --seconds")
    shares = [median(sample.share for sample in _undisturbed(each[1])) for each in samples.values()]
    if _on_processor() and min(shares) < BUSY_SHARE * _OF_ITSELF:
        progress("other programs are using the processor: run `spectool doctor` again when they are done")
    progress("comparing bits")
    same = _same_bits(model, tokens, sorted(samples[shallow]), began + _BITS * seconds - reading)
    return PassCosts(
        model=name,
        machine=machine_name(),
        seconds={depth: {rows: _typical(found) for rows, found in each.items()} for depth, each in samples.items()},
        same_bits=tuple(same),
        processor_share=max(_OF_ITSELF, min(shares)) if _on_processor() else None,
    )


def _timed_context(model: Any, tokens: Sequence[int], depth: int) -> tuple["_Context", float]:
    began = perf_counter()
    return _Context(model, tokens, depth), perf_counter() - began


def _timed(context: "_Context", rows: int) -> _Sample:
    began, processor = perf_counter(), process_time()
    context.run(rows)
    taken = perf_counter() - began
    return _Sample(taken, (process_time() - processor) / taken)


def _first_samples(context: "_Context", until: float) -> dict[int, list[_Sample]]:
    """A sample of each size that there is time for."""
    samples: dict[int, list[_Sample]] = {}
    for rows in ROWS:
        if len(samples) >= _FEWEST and perf_counter() > until:
            break
        context.run(rows)  # the first pass of a size prepares the others
        samples[rows] = [_timed(context, rows)]
    return samples


def _sample(context: "_Context", samples: dict[int, list[_Sample]], until: float) -> None:
    """Add samples of all sizes in turns until the time is over."""
    rng = random.Random(0)
    while True:
        for rows in rng.sample(list(samples), len(samples)):
            if perf_counter() + samples[rows][0].seconds > until:
                return
            samples[rows].append(_timed(context, rows))


def _text(tokenizer: Any, count: int) -> list[int]:
    """Token ids of real text, ``count`` of them."""
    text = "\n".join(document.text for document in open_corpus("sample:pl"))
    return list(islice(cycle(tokenizer.encode(text[: 8 * count])), count))


class _Context:
    """A cache that holds some tokens, and passes from there."""

    def __init__(self, model: Any, tokens: Sequence[int], depth: int) -> None:
        self._model, self._depth = model, depth
        self._next = mx.array(list(tokens[depth : depth + max(ROWS) + 1]), dtype=mx.int32)
        self._cache = make_prompt_cache(model)
        prefill(model, self._cache, tokens[:depth])
        self._checkpoints = Checkpoints(self._cache, depth)

    def run(self, rows: int) -> mx.array:
        """The logits of a pass over ``rows`` tokens [rows, vocabulary]; the cache is then as before."""
        logits = self.feed(0, rows)
        self.rewind()
        return logits

    def feed(self, begin: int, rows: int) -> mx.array:
        """The logits of a pass over the tokens from ``begin`` on [rows, vocabulary]."""
        self._checkpoints.mark(rows, windows_too=True)
        logits: mx.array = self._model(self._next[None, begin : begin + rows], cache=self._cache)[0]
        mx.eval(logits, [entry.state for entry in self._cache])
        return logits

    def rewind(self) -> None:
        """Take the cache back to where it was."""
        if self._checkpoints.rewind(self._depth) != self._depth:
            raise RuntimeUnsupported(
                "the cache of this model cannot be taken back to a place before, so drafts cannot be verified with it. "
                "Generate without drafts"
            )


def _undisturbed(samples: Sequence[_Sample]) -> list[_Sample]:
    """The samples that had the processor to themselves, as far as can be told."""
    most = max(sample.share for sample in samples)
    return [sample for sample in samples if not _on_processor() or sample.share >= BUSY_SHARE * most]


def _on_processor() -> bool:
    return bool(mx.default_device() == mx.cpu)


def _typical(samples: Sequence[_Sample]) -> float:
    return median_low(sample.seconds for sample in _undisturbed(samples))


def _same_bits(model: Any, tokens: Sequence[int], sizes: Sequence[int], until: float) -> list[int]:
    """The ``sizes`` at which all logits, and those of the token after the pass, have the bits that single tokens give.

    Sizes for which there is no time are left out. Further texts are compared if there is time for all of them.
    """
    same = [rows for rows in sizes if rows > 1]
    for number in range(INPUTS):
        began = perf_counter()
        if began > until:
            return [1] if number == 0 else [1, *same]
        context = _Context(model, tokens[number * 7 :], DEPTHS[0] + number)
        single: list[mx.array] = []
        while len(single) <= max(same, default=0) and (number or perf_counter() < until):
            single.append(context.feed(len(single), 1)[0])
        context.rewind()
        for rows in same[:]:
            if rows >= len(single) or (number == 0 and perf_counter() > until):
                same.remove(rows)
                continue
            several, after = context.feed(0, rows), context.feed(rows, 1)[0]
            context.rewind()
            found = zip([*several, after], single, strict=False)
            if not all(bool(mx.array_equal(one, other)) for one, other in found):
                same.remove(rows)
        until -= perf_counter() - began  # for another one
    return [1, *same]


def break_even(curve: dict[int, float], length: int, draft_pass: float = 0.0) -> float | None:
    """The acceptance of each draft token, 0..1, at which drafts of this length cost nothing; None if there is none.

    With acceptance a, a cycle of k draft tokens makes 1 + a + … + a^k tokens on average (Leviathan et al., "Fast
    Inference from Transformers via Speculative Decoding", equation 1). It pays when that is more than the number of
    plain passes that the cycle takes as long as.

    Args:
        curve: Seconds of a pass of the target by rows.
        length: Draft tokens.
        draft_pass: Seconds of a pass of the draft model over one token; 0 for look-ups.
    """
    wanted = (curve[length + 1] + length * draft_pass) / curve[1]
    if wanted > length + 1:
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if math.fsum(middle**i for i in range(length + 1)) < wanted else (low, middle)
    return high


def nearly_free(curve: dict[int, float]) -> int:
    """The most draft tokens that a pass verifies at hardly more than the cost of a plain one."""
    free = 1
    for rows in sorted(curve):
        if curve[rows] > NEARLY_FREE * curve[1]:
            break
        free = rows
    return free - 1
