"""One prompt in every configuration: plain decoding and each drafter, one after the other.

All begin from copies of one cache, which holds the prompt except its last two tokens, so a long prompt is computed
once. The clock runs from when the target has read the prompt to the last token; the drafter reads the prompt meanwhile.
Draft models forget it in between, so every configuration pays for reading it.
"""

import copy
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np

from spectool import SpectoolError
from spectool.measure.bench.run_file import PLAIN, Generation
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle, Drafter, Drafters
from spectool.runtime.mlx_lm_compat import generate_step as plain_generate_step
from spectool.runtime.mlx_lm_compat import generation_stream, make_prompt_cache, wired_limit
from spectool.runtime.sampling.samplers import Sampling
from spectool.tokenization.incremental.common_prefix import common_prefix

_LEFT = 2  # tokens of a prompt that each configuration feeds itself


@dataclass(frozen=True)
class Configuration:
    """A drafter with its settings; by default plain decoding."""

    name: str = PLAIN  # the drafter's; `PLAIN` for mlx-lm's own loop
    num_draft_tokens: int | None = 0  # 0 for plain decoding, None to choose while decoding
    drafter: Drafter | Drafters | None = None  # None for plain decoding
    verify: str | None = None  # as for `generate_step`


@dataclass(frozen=True)
class Target:
    """A target model that decodes prompts in many configurations."""

    model: Any  # an mlx-lm model
    configurations: Sequence[Configuration]  # plain decoding among them
    stop_tokens: frozenset[int]  # end an output
    tokens: int  # of an output, at most

    def measure(self, prompt: Sequence[int], temperature: float, seed: Sequence[int]) -> list[Generation]:
        """The timed generations of one prompt in every configuration.

        Args:
            prompt: Token ids.
            temperature: 0 takes the most probable token.
            seed: For the order in which configurations run, and for sampling, which begins alike in all of them.
        """
        rng, begun, found = np.random.default_rng(list(seed)), make_prompt_cache(self.model), list[Generation]()
        prefill(self.model, begun, prompt[:-_LEFT])
        drawn = int(rng.integers(1 << 32))
        for place in rng.permutation(len(self.configurations)):
            cache = copy.deepcopy(begun)
            mx.eval([entry.state for entry in cache])
            mx.random.seed(drawn)
            sampler = Sampling(temp=temperature) if temperature else None
            options = {"max_tokens": self.tokens, "sampler": sampler, "prompt_cache": cache}
            found.append(self._generate(self.configurations[place], prompt, options))
        plain = next(one.output for one in found if one.drafter == PLAIN)
        # Above temperature 0 both outputs are drawn, so where they differ means nothing.
        return found if temperature else [self._with_gap(one, prompt, plain) for one in found]

    def _generate(self, one: Configuration, prompt: Sequence[int], options: dict[str, Any]) -> Generation:
        began = ended = 0.0
        cycles, output, statistics = list[Cycle](), list[int](), DraftStatistics()

        def fed(count: int, total: int) -> None:
            nonlocal began
            if count < total:  # the last call comes after the first token
                began = time.perf_counter()

        rest = mx.array(list(prompt[-_LEFT:]))
        options["prompt_progress_callback"] = fed
        steps: Iterable[tuple[Any, ...]]
        if one.drafter is None:  # mlx-lm's own loop, which computes the next token while the last one is read
            steps = plain_generate_step(rest, self.model, **options)
        else:
            if one.drafter.cache is not None:
                one.drafter.cache.forget()
            options |= {"drafter": one.drafter, "num_draft_tokens": one.num_draft_tokens, "verify": one.verify}
            options |= {"statistics": statistics, "on_cycle": cycles.append, "stop_tokens": self.stop_tokens}
            steps = generate_step(rest, self.model, cached_tokens=list(prompt[:-_LEFT]), **options)
        with wired_limit(self.model, [generation_stream]):
            for token, *_ in steps:
                ended = time.perf_counter()
                output.append(int(token))
                if output[-1] in self.stop_tokens:
                    break
        if statistics.failures:  # a drafter that is switched off measures nothing
            reason = "; ".join(failure.error for failure in statistics.failures)
            raise SpectoolError(f"drafter {one.name} fails and cannot be measured: {reason}. Leave it out")
        return Generation(
            drafter=one.name,
            num_draft_tokens=one.num_draft_tokens,
            output=tuple(output),
            seconds=ended - began,
            draft_seconds=sum(cycle.draft_seconds for cycle in cycles),
            proposed=tuple(len(cycle.proposal) for cycle in cycles),
            accepted=tuple(cycle.accepted for cycle in cycles),
        )

    def _with_gap(self, one: Generation, prompt: Sequence[int], plain: Sequence[int]) -> Generation:
        """A generation with the gap of the two best logits where it leaves plain decoding's output, if it does.

        A pass over several tokens rounds differently from single steps, so with a small gap the two may swap.
        """
        if one.output == plain:
            return one
        place = common_prefix(one.output, plain)
        logits = self.model(mx.array([*prompt, *plain[:place]])[None])[0, -1]
        second, best = np.array(mx.sort(logits)[-2:].astype(mx.float32)).tolist()
        return replace(one, gap=best - second)
