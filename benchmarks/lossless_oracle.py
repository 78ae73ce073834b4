"""Plain decoding, a drafted output beside it, and the oracle that judges where they differ.

A pass over several tokens may round differently from a pass over one. At a difference the true history is evaluated
once token by token, as plain decoding does, and then in passes of several sizes:

    d    largest change of a log-probability between the former and any of the latter
    gap  between the two tokens, token by token

It is a near-tie if the gap is at most 2 d, since both could then be first: no tolerance is set by hand.
"""

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from lossless_models import PROMPT, QUANTIZED, Kind
from mlx_lm.generate import generate_step as host_generate_step
from mlx_lm.generate import maybe_quantize_kv_cache

from spectool.runtime.decoding.drafter import Cycle, Drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics

SIZES = (2, 3, 5, 9)  # tokens of a pass, of the oracle's


@dataclass
class Cell:
    """What one drafter did in one setting.

    Attributes:
        compared: Tokens.
        near_ties: Differences at near-ties.
        shown: Those at which a pass of several tokens put the other token first.
        errors: Other differences, printed whole.
        widest: Largest gap at a near-tie.
        statistics: Of the drafting.
        seconds: Processor time in the loop.
    """

    compared: int = 0
    near_ties: int = 0
    shown: int = 0
    errors: int = 0
    widest: float = 0.0
    statistics: DraftStatistics = field(default_factory=DraftStatistics)
    seconds: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """What the oracle says of a difference.

    Attributes:
        gap: Between the two tokens, evaluated token by token.
        change: d of this file's docstring.
        shown: Whether a pass of several tokens puts the other token first.
    """

    gap: float
    change: float
    shown: bool

    @property
    def near_tie(self) -> bool:
        """Whether both tokens could be first."""
        return self.gap <= 2 * self.change


@dataclass(frozen=True)
class Setting:
    """A model with one kind of cache, in one precision."""

    model: Any
    kind: Kind

    def begun(self, prompt: Sequence[int]) -> list[Any]:
        """Return a cache that holds all but the last token of a prompt, fed in one pass."""
        cache = self.kind.cache(self.model)
        self._feed(cache, prompt[:-1])
        return cache

    def plain(self, prompt: Sequence[int], cache: list[Any], count: int) -> list[int]:
        """Return what the host's own loop generates."""
        options = {**self.kind.options, "prompt_cache": copy.deepcopy(cache), "max_tokens": count}
        steps = host_generate_step(mx.array(prompt[-1:]), self.model, **options)
        return [int(token) for token, _ in steps]

    def singly(self, cache: list[Any], tokens: Sequence[int]) -> tuple[mx.array, list[Any]]:
        """Feed ``tokens`` one by one after ``cache``; return the log-probabilities after them and the new cache."""
        cache = copy.deepcopy(cache)
        for token in tokens:
            logprobs = self._feed(cache, [token])
        return logprobs[-1], cache

    def together(self, cache: list[Any], tokens: Sequence[int], more: Sequence[int]) -> Iterator[mx.array]:
        """Feed ``tokens`` in passes of several sizes; yield the log-probabilities after them.

        The last of them is the last of its pass, then the first of one that goes on with ``more``.
        """
        start = self.kind.options.get("quantized_kv_start", 0)
        before = PROMPT - 1
        for size in SIZES:
            # Plain decoding quantises at this length: no pass goes beyond it.
            edge = max(0, min(start - before, len(tokens)))
            copied = copy.deepcopy(cache)
            for part in (*_passes(tokens[:edge], size), *_passes(tokens[edge:], size)):
                logprobs = self._feed(copied, part)
            yield logprobs[-1]
            copied = copy.deepcopy(cache)
            edge = max(0, min(start - before, len(tokens) - 1))
            for part in (*_passes(tokens[:edge], size), *_passes(tokens[edge:-1], size)):
                self._feed(copied, part)
            room = start - before - len(tokens)
            yield self._feed(copied, [tokens[-1], *more[: size - 1 if room < 0 else min(size - 1, room)]])[0]

    def judge(self, one: int, other: int, alone: mx.array, others: Iterable[mx.array]) -> Verdict:
        """Return whether ``one``, of plain decoding, and ``other`` are nearly tied."""
        alone = alone.astype(mx.float32)
        possible = alone > -mx.inf
        change, shown = 0.0, False
        for logprobs in others:
            logprobs = logprobs.astype(mx.float32)
            change = max(change, mx.max(mx.where(possible, mx.abs(logprobs - alone), 0)).item())
            shown = shown or mx.argmax(logprobs).item() == other
        return Verdict((alone[one] - alone[other]).item(), change, shown)

    def _feed(self, cache: list[Any], tokens: Sequence[int]) -> mx.array:
        """Run one pass; return log-probabilities [tokens, vocabulary] as the host computes them."""
        logits = self.model(mx.array(tokens)[None], cache=cache)[0]
        if self.kind.options:
            bits, group, start = (self.kind.options[name] for name in QUANTIZED)
            maybe_quantize_kv_cache(cache, start, group, bits)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        mx.eval(logprobs, [entry.state for entry in cache])
        return logprobs


def _passes(tokens: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Split tokens into passes of ``size``, the first of which may be shorter."""
    first = len(tokens) % size
    if first:
        yield tokens[:first]
    for start in range(first, len(tokens), size):
        yield tokens[start : start + size]


def compare(
    setting: Setting,
    drafter: Drafter,
    prompt: Sequence[int],
    begun: list[Any],
    expected: Sequence[int],
    length: int | None,
    cell: Cell,
) -> Iterator[str]:
    """Compare an output with plain decoding's, added to ``cell``; yield a description of each error."""
    done, cache = 0, begun
    while done < len(expected):
        history = [*prompt, *expected[:done]]
        cycles: list[Cycle] = []
        started = time.process_time()
        steps = generate_step(
            mx.array(history[-1:]),
            setting.model,
            drafter=drafter,
            num_draft_tokens=length,
            max_tokens=len(expected) - done,
            prompt_cache=copy.deepcopy(cache),
            cached_tokens=history[:-1],
            statistics=cell.statistics,
            on_cycle=cycles.append,
            **setting.kind.options,
        )
        got = [token for token, _, _ in steps]
        cell.seconds += time.process_time() - started
        if cell.statistics.failures:
            yield f"drafters failed and were compared no more: {cell.statistics.failures}"
            return
        wrong = next((i for i, (a, b) in enumerate(zip(expected[done:], got, strict=True)) if a != b), None)
        if wrong is None:
            cell.compared += len(got)
            return
        cell.compared += wrong + 1
        at = done + wrong
        new = [prompt[-1], *expected[:at]]
        alone, cache = setting.singly(begun, new)
        one, other = expected[at], got[wrong]
        # Where a pass goes on, what comes next matters to its size only.
        more = [*expected[at:], *prompt]
        verdict = setting.judge(one, other, alone, setting.together(begun, new, more))
        repeated = mx.argmax(alone).item() == one
        if not (verdict.near_tie and repeated):
            cell.errors += 1
            yield (
                f"prompt {list(prompt)}, draft length {length or 'auto'}: token {at} is {other}, plain decoding "
                f"says {one}{'' if repeated else ' (but not when repeated)'}; {verdict}; true output "
                f"{list(expected)}; drafting from token {done}: {cycles}"
            )
            return
        cell.near_ties += 1
        cell.shown += verdict.shown
        cell.widest = max(cell.widest, verdict.gap)
        done = at + 1
