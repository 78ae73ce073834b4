"""One prompt in every configuration: plain decoding and each drafter, one after the other.

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
from spectool.measure.bench.run_file import PLAIN, Generation
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle, Drafter, Drafters, members_of
from spectool.runtime.mlx_lm_compat import generate_step as plain_generate_step
from spectool.runtime.mlx_lm_compat import generation_stream, make_prompt_cache, wired_limit
from spectool.runtime.policy.costs import new_policy
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.samplers import Sampling
from spectool.tokenization.incremental.common_prefix import common_prefix

_LEFT = 2  # tokens of a prompt that each configuration feeds itself
_WARM_UP = 8  # tokens


@dataclass
class Configuration:
    """A drafter with its settings, and what it has learnt; by default plain decoding."""

    name: str = PLAIN  # the drafter's; `PLAIN` for mlx-lm's own loop
    num_draft_tokens: int | None = 0  # k; 0 for plain decoding, None to choose while decoding
    drafter: Drafter | Drafters | None = None  # None for plain decoding
    # how drafts are verified above temperature 0; None as `generate_step` chooses
    verify: Literal["exact", "rejection"] | None = None
    warm: set[bool] = field(default_factory=set)  # whether it has run without drawing, and with it
    # Without a draft length, by temperature: they keep learning, as in a session.
    policies: dict[float, Policy] = field(default_factory=dict)

    def draft_length(self, model: Any, temperature: float) -> int | Policy:
        """The draft length, or what chooses it while decoding."""
        if self.num_draft_tokens is not None:
            return self.num_draft_tokens
        if temperature not in self.policies:
            self.policies[temperature] = new_policy(model, self.drafter)
        return self.policies[temperature]


@dataclass
class _Clock:
    """Times of a generation, and its cycles."""

    began: float = 0.0  # when the first pass began, or the drafting for it
    draft_seconds: float = 0.0
    proposed: list[int] = field(default_factory=list)  # by cycle
    accepted: list[int] = field(default_factory=list)

    def on_cycle(self, cycle: Cycle) -> None:
        """Add a cycle that has just ended."""
        if not self.proposed:
            self.began = time.perf_counter() - cycle.draft_seconds - cycle.pass_seconds
        self.draft_seconds += cycle.draft_seconds
        self.proposed.append(len(cycle.proposal))
        self.accepted.append(cycle.accepted)


@dataclass
class Target:
    """A target model that decodes prompts in many configurations."""

    model: Any  # an mlx-lm model
    configurations: Sequence[Configuration]  # plain decoding among them
    stop_tokens: frozenset[int]  # end an output
    tokens: int  # of an output, at most

    def measure(
        self, prompt: Sequence[int], temperature: float, seed: Sequence[int], on_generation: Callable[[float], object]
    ) -> list[Generation]:
        """The timed generations of one prompt in every configuration.

        A configuration that has never run generates some tokens first, because the first pass of a shape compiles and
        the first draft loads its data. It does so after another prompt, so that drafters still have to read this one.

        Args:
            prompt: Token ids.
            temperature: 0 takes the most probable token.
            seed: For sampling, and for the order in which configurations run; all generations of a block begin with the
                same random state.
            on_generation: Called with 1 after each generation.
        """
        self._warm_up([*prompt[1:], prompt[0]], temperature)
        rng, cache = np.random.default_rng(list(seed)), self._begin(prompt)
        drawn = int(rng.integers(1 << 32))
        found = []
        for place in rng.permutation(len(self.configurations)):
            copied = copy.deepcopy(cache)
            mx.eval([entry.state for entry in copied])
            mx.random.seed(drawn)
            found.append(self._generate(self.configurations[place], prompt, copied, self.tokens, temperature))
            on_generation(1)
        plain = next(one.output for one in found if one.drafter == PLAIN)
        # Above temperature 0 both outputs are drawn, so where they part means nothing.
        return found if temperature else [self._with_gap(one, prompt, plain) for one in found]

    def _warm_up(self, prompt: Sequence[int], temperature: float) -> None:
        cold = [each for each in self.configurations if (temperature > 0) not in each.warm]
        cache = self._begin(prompt) if cold else []
        for each in cold:
            self._generate(each, prompt, copy.deepcopy(cache), min(_WARM_UP, self.tokens), temperature)
            each.warm.add(temperature > 0)

    def _begin(self, prompt: Sequence[int]) -> list[Any]:
        cache: list[Any] = make_prompt_cache(self.model)
        prefill(self.model, cache, prompt[:-_LEFT])
        return cache

    def _generate(
        self, configuration: Configuration, prompt: Sequence[int], cache: list[Any], tokens: int, temperature: float
    ) -> Generation:
        sampler = Sampling(temp=temperature) if temperature else None
        options: dict[str, Any] = {"max_tokens": tokens, "sampler": sampler, "prompt_cache": cache}
        clock, drafter, statistics = _Clock(), configuration.drafter, DraftStatistics()
        output = []
        with wired_limit(self.model, [generation_stream]):
            draft_prompt_seconds = 0.0 if drafter is None else _prompt_seconds(configuration, drafter, prompt)
            clock.began = ended = time.perf_counter()
            if drafter is None:
                steps = self._plain_steps(clock, prompt, options)
            else:
                options |= {"statistics": statistics, "on_cycle": clock.on_cycle}
                steps = self._drafted_steps(configuration, prompt, options, temperature)
            for token in steps:
                ended = time.perf_counter()
                output.append(int(token))
        if statistics.failures:  # a drafter that is switched off measures nothing
            raise _failed(configuration, "; ".join(failure.error for failure in statistics.failures))
        return Generation(
            drafter=configuration.name,
            num_draft_tokens=configuration.num_draft_tokens,
            output=tuple(output),
            proposed=tuple(clock.proposed),
            accepted=tuple(clock.accepted),
            draft_prompt_seconds=draft_prompt_seconds,
            decoding_seconds=ended - clock.began,
            draft_seconds=clock.draft_seconds,
        )

    def _plain_steps(self, clock: _Clock, prompt: Sequence[int], options: dict[str, Any]) -> Iterator[int]:
        """Decode with mlx-lm's own loop, which computes the next token while the last one is read."""

        def fed(count: int, total: int) -> None:
            if count < total:  # the last call comes after the first token
                clock.began = time.perf_counter()

        rest = mx.array(list(prompt[-_LEFT:]))
        for token, _ in plain_generate_step(rest, self.model, prompt_progress_callback=fed, **options):
            yield token
            if token in self.stop_tokens:
                break

    def _drafted_steps(
        self, configuration: Configuration, prompt: Sequence[int], options: dict[str, Any], temperature: float
    ) -> Iterator[int]:
        steps = generate_step(
            mx.array(list(prompt[-_LEFT:])),
            self.model,
            drafter=configuration.drafter,
            num_draft_tokens=configuration.draft_length(self.model, temperature),
            verify=configuration.verify,
            stop_tokens=self.stop_tokens,
            cached_tokens=list(prompt[:-_LEFT]),
            **options,
        )
        return (token for token, _, _ in steps)

    def _with_gap(self, one: Generation, prompt: Sequence[int], plain: Sequence[int]) -> Generation:
        """A generation with the gap of the two best logits where it leaves plain decoding's output, if it does.

        A pass over several tokens rounds differently from single steps, so with a small gap the two may swap.
        """
        if one.output == plain:
            return one
        place = common_prefix(one.output, plain)
        logits = self.model(mx.array([*prompt, *plain[:place]])[None])[0, -1]
        best: list[float] = np.array(mx.sort(logits)[-2:].astype(mx.float32)).tolist()
        return one.model_copy(update={"gap": best[1] - best[0]})


def _prompt_seconds(configuration: Configuration, drafter: Drafter | Drafters, prompt: Sequence[int]) -> float:
    """The seconds in which look-ups read a prompt; a draft model forgets it, and reads it when first asked."""
    if drafter.cache is not None:
        drafter.cache.forget()
    asked = time.perf_counter()
    try:
        for member in members_of(drafter):
            if not member.costs_a_pass:
                member.start(prompt)
    except Exception as error:
        raise _failed(configuration, f"{type(error).__name__}: {error}") from error
    return time.perf_counter() - asked


def _failed(configuration: Configuration, reason: str) -> SpectoolError:
    return SpectoolError(f"drafter {configuration.name} fails and cannot be measured: {reason}. Leave it out")
