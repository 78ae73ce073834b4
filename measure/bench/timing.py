"""One prompt in every configuration: plain decoding and each drafter, one after the other, timed cycle by cycle.

All configurations of a block begin from copies of one cache, which holds the prompt except its last two tokens, so a
long prompt is computed once. The clock of a configuration runs while its drafter reads the prompt, and then from the
first pass to the last token. Draft models forget the prompt in between, so every configuration pays for reading it.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from spectool import SpectoolError
from spectool.artifacts.benchmark import PLAIN, MeasuredBlock, Row
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.decoding.drafter import Cycle, Drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.sampling import Sampling
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.draft_length.controller_pool import new_controller
from spectool.runtime.mlx_lm_compat import generate_step as plain_generate_step
from spectool.runtime.mlx_lm_compat import generation_stream, make_prompt_cache, wired_limit
from spectool.tokenization.incremental.common_prefix import common_prefix

_LEFT = 2  # tokens of a prompt that each configuration feeds itself
_WARM_UP = 8  # tokens
_COUNTED = ("tokens", "passes", "drafted_passes", "proposed", "accepted")
_MEASURED = ("draft_prompt_seconds", "first_token_seconds", "seconds", "output")


@dataclass(frozen=True)
class Configuration:
    """A drafter with its settings; by default plain decoding."""

    name: str = PLAIN  # the drafter's; `PLAIN` for mlx-lm's own loop
    num_draft_tokens: int | None = 0  # k; 0 for plain decoding, None to choose while decoding
    drafter: Drafter | None = None  # None for plain decoding
    # how drafts are verified above temperature 0; None as `generate_step` chooses
    verify: Literal["exact", "rejection"] | None = None


@dataclass(slots=True)
class _Generated:
    """What a configuration generated; times are in seconds."""

    output: list[int] = field(default_factory=list)
    statistics: DraftStatistics = field(default_factory=DraftStatistics)
    cycles: list[Row] = field(default_factory=list)
    began: float = 0.0  # clock time of the first pass, or of the drafting for it
    draft_prompt_seconds: float = 0.0
    first_token_seconds: float = 0.0
    seconds: float = 0.0


@dataclass
class Target:
    """A target model that decodes prompts in many configurations."""

    name: str  # as the experiment names it
    model: Any  # an mlx-lm model
    stop_tokens: frozenset[int]  # end an output
    tokens: int  # of an output, at most
    _warm: set[tuple[int, bool]] = field(default_factory=set)  # configurations that have run, and if they drew
    # of configurations that choose their draft length, by temperature: they keep learning, as in a session
    _controllers: dict[tuple[int, float], Controller] = field(default_factory=dict)

    def measure(
        self,
        number: int,
        prompt: Sequence[int],
        configurations: Sequence[Configuration],
        temperature: float,
        seed: Sequence[int],
        labels: Row,
        on_generation: Callable[[float], object],
    ) -> MeasuredBlock:
        """The timed generations of one prompt in every configuration.

        A configuration that has never run generates some tokens first, because the first pass of a shape compiles and
        the first draft loads its data. It does so after another prompt, so that drafters still have to read this one.

        Args:
            number: Of the block.
            prompt: Token ids.
            configurations: Plain decoding among them. The order in which they run is drawn from ``seed``.
            temperature: 0 takes the most probable token.
            seed: For the order and for sampling; all generations of a block begin with the same random state.
            labels: Columns that all rows have: language, kind, prompt, repetition.
            on_generation: Called with 1 after each generation.
        """
        self._warm_up([*prompt[1:], prompt[0]], configurations, temperature)
        rng, asked = np.random.default_rng(list(seed)), time.perf_counter()
        cache = self._begin(prompt)
        prompt_seconds = time.perf_counter() - asked
        drawn = int(rng.integers(1 << 32))
        block = MeasuredBlock([], [])
        for order, place in enumerate(rng.permutation(len(configurations))):
            each, copied = configurations[place], copy.deepcopy(cache)
            mx.eval([entry.state for entry in copied])
            mx.random.seed(drawn)
            mx.reset_peak_memory()
            generated = self._generate(each, prompt, copied, self.tokens, temperature)
            block.generations.append(
                {
                    "block": number,
                    "order": order,
                    **labels,
                    "model": self.name,
                    "drafter": each.name,
                    "strategy": None,
                    "num_draft_tokens": each.num_draft_tokens,
                    "temperature": temperature,
                    "prompt_tokens": len(prompt),
                    **{name: getattr(generated.statistics, name) for name in _COUNTED},
                    **{name: getattr(generated, name) for name in _MEASURED},
                    "peak_memory": mx.get_peak_memory(),
                    "prompt_seconds": prompt_seconds,
                    "draft_seconds": sum(cycle["draft_seconds"] for cycle in generated.cycles),
                    "pass_seconds": sum(cycle["pass_seconds"] for cycle in generated.cycles),
                }
            )
            block.cycles.extend({"block": number, "order": order, **cycle} for cycle in generated.cycles)
            on_generation(1)
        plain = next(row["output"] for row in block.generations if row["drafter"] == PLAIN)
        for row in block.generations:
            # Above temperature 0 both outputs are drawn, so where they part means nothing.
            parts = (None, None) if temperature else self._difference(prompt, plain, row["output"])
            row["first_difference"], row["gap"] = parts
        return block

    def _warm_up(self, prompt: Sequence[int], configurations: Sequence[Configuration], temperature: float) -> None:
        cold = [each for each in configurations if (id(each), temperature > 0) not in self._warm]
        cache = self._begin(prompt) if cold else []
        for each in cold:
            self._generate(each, prompt, copy.deepcopy(cache), min(_WARM_UP, self.tokens), temperature)
            self._warm.add((id(each), temperature > 0))

    def _begin(self, prompt: Sequence[int]) -> list[Any]:
        cache: list[Any] = make_prompt_cache(self.model)
        prefill(self.model, cache, mx.array(list(prompt[:-_LEFT]), dtype=mx.int32))
        return cache

    def _generate(
        self, configuration: Configuration, prompt: Sequence[int], cache: list[Any], tokens: int, temperature: float
    ) -> _Generated:
        sampler = Sampling(temp=temperature) if temperature else None
        options = {"max_tokens": tokens, "sampler": sampler, "prompt_cache": cache}
        found, drafter = _Generated(), configuration.drafter
        with wired_limit(self.model, [generation_stream]):
            if drafter is not None:
                _forget(drafter)
            asked = time.perf_counter()
            if drafter is not None:
                try:
                    _read_prompt(drafter, prompt)
                except Exception as error:
                    raise self._failed(configuration, f"{type(error).__name__}: {error}") from error
                found.draft_prompt_seconds = time.perf_counter() - asked
            found.began = ended = time.perf_counter()
            steps = (
                self._plain_steps(found, prompt, options)
                if drafter is None
                else self._drafted_steps(found, configuration, prompt, options, temperature)
            )
            for token in steps:
                ended = time.perf_counter()
                if not found.output:
                    found.first_token_seconds = found.draft_prompt_seconds + ended - found.began
                found.output.append(int(token))
        if found.statistics.failures:  # a drafter that is switched off measures nothing
            raise self._failed(configuration, "; ".join(failure.error for failure in found.statistics.failures))
        found.seconds = found.draft_prompt_seconds + ended - found.began
        return found

    def _plain_steps(self, found: _Generated, prompt: Sequence[int], options: Row) -> Iterator[int]:
        """Decode with mlx-lm's own loop, which computes the next token while the last one is read."""

        def fed(count: int, total: int) -> None:
            if count < total:  # the last call comes after the first token
                found.began = time.perf_counter()

        rest = mx.array(list(prompt[-_LEFT:]))
        for token, _ in plain_generate_step(rest, self.model, prompt_progress_callback=fed, **options):
            found.statistics.record("", 0, 0, 1)
            yield token
            if token in self.stop_tokens:
                break

    def _drafted_steps(
        self, found: _Generated, configuration: Configuration, prompt: Sequence[int], options: Row, temperature: float
    ) -> Iterator[int]:
        last, length = found.began, configuration.num_draft_tokens
        arm = id(configuration), temperature

        def on_cycle(cycle: Cycle) -> None:
            nonlocal last
            now = time.perf_counter()
            if not found.cycles:
                found.began = last = now - cycle.draft_seconds - cycle.pass_seconds
            found.cycles.append(
                {
                    "cycle": len(found.cycles),
                    "position": found.statistics.tokens,
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
            self.model,
            drafter=configuration.drafter,
            num_draft_tokens=self._controller(arm, configuration.drafter) if length is None else length,
            verify=configuration.verify,
            stop_tokens=self.stop_tokens,
            cached_tokens=list(prompt[:-_LEFT]),
            statistics=found.statistics,
            on_cycle=on_cycle,
            **options,
        )
        return (token for token, _, _ in steps)

    def _controller(self, arm: tuple[int, float], drafter: Drafter | None) -> Controller:
        """The controller of a configuration at a temperature, kept from prompt to prompt."""
        if arm not in self._controllers:
            self._controllers[arm] = new_controller(self.model, drafter)
        return self._controllers[arm]

    def _difference(
        self, prompt: Sequence[int], plain: Sequence[int], output: Sequence[int]
    ) -> tuple[int | None, float | None]:
        """Number of tokens before the first that is not plain decoding's, and the gap of the two best logits there.

        A pass over several tokens rounds differently from single steps, so with a small gap the two may swap.
        """
        if list(plain) == list(output):
            return None, None
        place = common_prefix(output, plain)
        logits = self.model(mx.array([*prompt, *plain[:place]])[None])[0, -1]
        best: list[float] = np.array(mx.sort(logits)[-2:].astype(mx.float32)).tolist()
        return place, best[1] - best[0]

    def _failed(self, configuration: Configuration, reason: str) -> SpectoolError:
        return SpectoolError(
            f"{self.name}: drafter {configuration.name} fails and cannot be measured: {reason}. Leave it out"
        )


def _forget(drafter: Drafter) -> None:
    """Empty the caches of draft models."""
    for member in getattr(drafter, "drafters", (drafter,)):
        if member.cache is not None:
            member.cache.forget()


def _read_prompt(drafter: Drafter, prompt: Sequence[int]) -> None:
    """Start a drafter, and ask it once, because a draft model reads the prompt when first asked.

    That of a hybrid reads it while the clock runs, if it is asked at all.
    """
    drafter.start(prompt)
    if not drafter.chooses_length:
        drafter.propose(1)
