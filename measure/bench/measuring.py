"""One prompt in every way: plain decoding and each drafter, one after the other, timed cycle by cycle.

All ways of a block begin from copies of one cache that holds the prompt but for its last two tokens, so a long prompt
is computed once. Drafters read the prompt before the clock; what that takes is kept apart. A draft model keeps what it
has read, so that of the ways that share one, the first in a block pays.
"""

import copy
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from spectool import SpectoolError
from spectool.artifacts.formats.benchmark import PLAIN, Block, Row
from spectool.measure.bench.energy import Meter
from spectool.measure.side_by_side import find_difference
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.decoding.drafter import Cycle, Drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.sampling import Sampling
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.host.generation import generate_step as plain_generate_step
from spectool.runtime.host.generation import generation_stream, make_prompt_cache, wired_limit

_LEFT = 2  # tokens of a prompt that each way feeds itself: a drafter is first asked after a pass
_WARM_UP = 8  # tokens


@dataclass(frozen=True, slots=True)
class Way:
    """A way of decoding.

    Attributes:
        name: The drafter's; `PLAIN` for the host's own loop.
        strategy: Of translating drafts; None where nothing is translated.
        num_draft_tokens: k; 0 for plain decoding, None for as many as pay.
        drafter: The drafter; None for plain decoding.
    """

    name: str
    strategy: str | None
    num_draft_tokens: int | None
    drafter: Drafter | None


@dataclass(frozen=True, slots=True)
class Generated:
    """What a way generated, with times in seconds."""

    output: list[int]
    statistics: DraftStatistics
    draft_prompt_seconds: float
    seconds: float
    joules: float | None
    cycles: list[Row]


class Target:
    """A target that decodes prompts in many ways.

    Attributes:
        name: In the tables.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        stop_tokens: frozenset[int],
        tokens: int,
        temperature: float,
        meter: Meter,
    ) -> None:
        """Decode with ``model``: ``tokens`` at most, until one of ``stop_tokens``."""
        self.name = name
        self._model = model
        self._stop_tokens = stop_tokens
        self._tokens = tokens
        self._temperature = temperature
        self._meter = meter

    def warm_up(self, prompt: Sequence[int], ways: Sequence[Way]) -> None:
        """Run every way for some tokens: first passes of a shape compile, first drafts load."""
        cache = self._begin(prompt)
        for way in ways:
            self._generate(way, prompt, copy.deepcopy(cache), min(_WARM_UP, self._tokens))

    def measure(
        self,
        number: int,
        prompt: Sequence[int],
        ways: Sequence[Way],
        seed: Sequence[int],
        labels: Row,
        on_way: Callable[[], object],
    ) -> Block:
        """Decode one prompt in every way.

        Args:
            number: Of the block.
            prompt: Token ids.
            ways: Plain decoding among them; in any order, which is drawn anew from ``seed``.
            seed: Of the order, and of sampling: all ways of a block begin with the same random state.
            labels: Columns that all rows have: language, kind, prompt, repetition.
            on_way: Called after each.
        """
        rng, asked = np.random.default_rng(list(seed)), time.perf_counter()
        cache = self._begin(prompt)
        prompt_seconds = time.perf_counter() - asked
        drawn = int(rng.integers(1 << 32))
        found: list[tuple[Way, Generated, int]] = []
        for place in rng.permutation(len(ways)):
            copied = copy.deepcopy(cache)
            mx.eval([entry.state for entry in copied])
            mx.random.seed(drawn)
            mx.reset_peak_memory()
            generated = self._generate(ways[place], prompt, copied, self._tokens)
            found.append((ways[place], generated, mx.get_peak_memory()))
            on_way()
        plain = next(generated.output for way, generated, _ in found if way.name == PLAIN)
        block = Block([], [])
        for order, (way, generated, memory) in enumerate(found):
            of_row = {"block": number, "order": order}
            statistics = generated.statistics
            block.generations.append(
                {
                    **of_row,
                    **labels,
                    "model": self.name,
                    "drafter": way.name,
                    "strategy": way.strategy,
                    "num_draft_tokens": way.num_draft_tokens,
                    "temperature": self._temperature,
                    "prompt_tokens": len(prompt),
                    "tokens": statistics.tokens,
                    "passes": statistics.passes,
                    "drafted_passes": statistics.drafted_passes,
                    "proposed": statistics.proposed,
                    "accepted": statistics.accepted,
                    "prompt_seconds": prompt_seconds,
                    "draft_prompt_seconds": generated.draft_prompt_seconds,
                    "seconds": generated.seconds,
                    "draft_seconds": sum(cycle["draft_seconds"] for cycle in generated.cycles),
                    "pass_seconds": sum(cycle["pass_seconds"] for cycle in generated.cycles),
                    "joules": generated.joules,
                    "peak_memory": memory,
                    "output": generated.output,
                    **self._difference(prompt, plain, generated.output),
                }
            )
            block.cycles.extend({**of_row, **cycle} for cycle in generated.cycles)
        return block

    def _begin(self, prompt: Sequence[int]) -> list[Any]:
        cache: list[Any] = make_prompt_cache(self._model)
        prefill(self._model, cache, mx.array(list(prompt[:-_LEFT]), dtype=mx.int32))
        return cache

    def _generate(self, way: Way, prompt: Sequence[int], cache: list[Any], tokens: int) -> Generated:
        with wired_limit(self._model, [generation_stream]):
            if way.drafter is None:
                return self._plainly(prompt, cache, tokens)
            return self._drafted(way, way.drafter, prompt, cache, tokens)

    def _sampler(self) -> Sampling | None:
        return Sampling(temp=self._temperature) if self._temperature else None

    def _plainly(self, prompt: Sequence[int], cache: list[Any], tokens: int) -> Generated:
        """Decode with the host's own loop, which computes the next token while the last one is read."""
        reading, asked = self._meter.begin(), time.perf_counter()
        began = ended = asked

        def fed(count: int, total: int) -> None:
            nonlocal began
            if count < total:  # the last call comes after the first token
                began = time.perf_counter()

        statistics, output = DraftStatistics(), list[int]()
        rest = mx.array(list(prompt[-_LEFT:]))
        options = {"prompt_cache": cache, "sampler": self._sampler(), "prompt_progress_callback": fed}
        for token, _ in plain_generate_step(rest, self._model, max_tokens=tokens, **options):
            ended = time.perf_counter()
            output.append(int(token))
            statistics.record("", 0, 0, 1)
            if token in self._stop_tokens:
                break
        return Generated(output, statistics, 0.0, ended - began, self._joules(reading, asked, began, ended), [])

    def _drafted(self, way: Way, drafter: Drafter, prompt: Sequence[int], cache: list[Any], tokens: int) -> Generated:
        statistics, cycles, output = DraftStatistics(), list[Row](), list[int]()
        started = time.perf_counter()
        try:
            _read_prompt(drafter, prompt)
        except Exception as error:
            raise self._failed(way, f"{type(error).__name__}: {error}") from error
        reading, asked = self._meter.begin(), time.perf_counter()
        began = last = ended = asked

        def on_cycle(cycle: Cycle) -> None:
            nonlocal began, last
            now = time.perf_counter()
            if not cycles:
                began = last = now - cycle.draft_seconds - cycle.pass_seconds
            cycles.append(
                {
                    "cycle": len(cycles),
                    "position": statistics.tokens - len(cycle.committed),
                    "source": cycle.source,
                    "proposed": len(cycle.proposal),
                    "accepted": cycle.accepted,
                    "committed": len(cycle.committed),
                    "draft_seconds": cycle.draft_seconds,
                    "pass_seconds": cycle.pass_seconds,
                    "seconds": now - last,
                }
            )
            last = now

        steps = generate_step(
            mx.array(list(prompt[-_LEFT:])),
            self._model,
            drafter=drafter,
            num_draft_tokens=way.num_draft_tokens,
            max_tokens=tokens,
            stop_tokens=self._stop_tokens,
            sampler=self._sampler(),
            prompt_cache=cache,
            cached_tokens=list(prompt[:-_LEFT]),
            statistics=statistics,
            on_cycle=on_cycle,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # a drafter that is switched off measures nothing
            try:
                for token, _, _ in steps:
                    ended = time.perf_counter()
                    output.append(token)
            except RuntimeWarning as warning:
                raise self._failed(way, str(warning)) from warning
        joules = self._joules(reading, asked, began, ended)
        return Generated(output, statistics, asked - started, ended - began, joules, cycles)

    def _joules(self, reading: float, asked: float, began: float, ended: float) -> float | None:
        """Return the energy from ``began`` on; what came before since ``asked`` takes its share by time."""
        joules, now = self._meter.end(reading), time.perf_counter()
        return None if joules is None else joules * (ended - began) / (now - asked)

    def _failed(self, way: Way, reason: str) -> SpectoolError:
        return SpectoolError(f"{self.name}: drafter {way.name} fails and cannot be measured: {reason}. Leave it out")

    def _difference(self, prompt: Sequence[int], plain: list[int], output: list[int]) -> Row:
        """Say where an output leaves plain decoding's; at a temperature both are drawn, and nothing is said."""
        found = None if self._temperature else find_difference(self._model, 0, prompt, plain, output)
        if found is None:
            return {"first_difference": None, "gap": None}
        return {"first_difference": found.position, "gap": found.gap}


def _read_prompt(drafter: Drafter, prompt: Sequence[int]) -> None:
    """Tell a drafter the prompt, and ask it and its members once: a draft model reads when it is first asked."""
    drafter.start(prompt)
    for member in getattr(drafter, "drafters", (drafter,)):
        member.propose(1)
