"""A benchmark from beginning to end: every prompt in every configuration, and the page.

All configurations of a prompt begin from copies of one cache, which holds the prompt except its last token, so a long
prompt is computed once. The clock runs from the pass over that token to the last one that is written; the drafter reads
the prompt meanwhile. Draft models forget it in between, so every configuration pays for reading it.
"""

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from tqdm import tqdm

from spectool import SpectoolError, __version__
from spectool.artifacts.atomic import naming, require_new
from spectool.measure.bench.prompts import ids_of_prompt, load_prompts
from spectool.measure.bench.results import PAGE, PLAIN, Block, Generation, Options, Run, page
from spectool.runtime.caches.own import prefill
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle
from spectool.runtime.groups.mirrored import repeatable
from spectool.runtime.groups.rank_0 import forward, make_prompt_cache, run_on_all_ranks
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.machine import machine_of
from spectool.runtime.mlx_lm_compat import generate_step as plain_generate_step
from spectool.runtime.mlx_lm_compat import generation_stream, wired_limit
from spectool.runtime.sampling.samplers import Sampling
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.opening import open_tokenizer

_WARM_UP = 8  # tokens


def run_benchmark(options: Options, out: Path, say: Callable[[str], object]) -> Run:
    """Measure a run into the new folder ``out``, and write its page.

    After Ctrl-C, the page has what was measured so far.
    """
    require_new(out)
    prompts = load_prompts(options.prompts, open_tokenizer(options.model), options.count, options.window)
    say(f"loading {options.model}")
    model, tokenizer = load_model(options.model, lazy=True, pipeline=options.pipeline)
    stop = frozenset(() if options.ignore_eos else tokenizer.eos_token_ids)
    load_draft, drafters = cache(load_model), dict[str, Any]()  # a draft model of several is loaded once
    for name, spec in options.drafters.items():
        draft = spec.sources.get("draft_model")
        drafters[name] = load_drafter(tokenizer, **{**spec.sources, "draft_model": draft and load_draft(draft)})
    target = Target(model, drafters, options, stop)
    facts = {"began": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine_of(model)}
    facts["versions"] = f"spectool {__version__}, mlx {version('mlx')}, mlx-lm {version('mlx-lm')}"
    run = Run(out, options, facts)
    try:
        bar = tqdm(prompts, f"measuring {Path(options.model).name}", unit=" prompts", disable=None)
        for number, prompt in enumerate(bar):
            ids = ids_of_prompt(prompt, tokenizer)
            if not ids:
                raise SpectoolError(f"prompt {prompt.name}: expected tokens, got none. Give a larger --window, or text")
            require_tokens(f"prompt {prompt.name}", ids, vocabulary_size(model))
            if number == 0:  # compile passes and load data, with another prompt than this
                short = replace(options, tokens=min(_WARM_UP, options.tokens))
                replace(target, options=short).measure([*ids[1:], ids[0]], 0)
            measured = tuple(target.measure(ids, number))
            run.append(Block(prompt.name, options.prompts, prompt.kind, options.temp, len(ids), measured))
    except KeyboardInterrupt as stopped:
        see = f", for which see {out / PAGE}" if run.blocks else ""
        stopped.args = (f"Interrupted after {len(run.blocks)} of {len(prompts)} prompts{see}.",)
        raise
    finally:
        if run.blocks:
            with naming(out / PAGE):
                (out / PAGE).write_text(page(run), encoding="utf-8", errors="backslashreplace")
    return run


@dataclass(frozen=True)
class Target:
    """A target model that decodes prompts in all configurations."""

    model: Any  # an mlx-lm model
    drafters: Mapping[str, Any]  # `Drafter` or `DrafterSet`, by the name that the options have
    options: Options
    stop_tokens: frozenset[int]  # end an output

    def measure(self, prompt: Sequence[int], number: int) -> list[Generation]:
        """The timed generations of a prompt in every configuration, in the order in which they ran.

        The order and the sampling, which begins alike in all of them, depend on the seed and on the prompt's number.
        """
        rng, begun = np.random.default_rng([self.options.seed, number]), make_prompt_cache(self.model)
        prefill(self.model, begun, prompt[:-1])
        drawn, configurations, found = int(rng.integers(1 << 32)), self.options.configurations, list[Generation]()
        for place in rng.permutation(len(configurations)):
            cache = copy.deepcopy(begun)
            mx.eval([entry.state for entry in cache])
            found.append(self._generate(*configurations[int(place)], prompt, cache, drawn))
        plain = next(one.output for one in found if one.drafter == PLAIN)
        # Above temperature 0 both outputs are drawn, so where they differ means nothing.
        compared = not self.options.temp
        return [self._with_gap(one, prompt, plain) if compared and one.output != plain else one for one in found]

    def _generate(
        self, name: str, num_draft_tokens: int | None, prompt: Sequence[int], cache: list[Any], seed: int
    ) -> Generation:
        cycles, statistics, options = list[Cycle](), DraftStatistics(), self.options
        settings: Any = list(prompt[-1:]), options.tokens, sorted(self.stop_tokens), options.temp, seed
        if name == PLAIN:
            output, seconds = run_on_all_ranks(plain_text, self.model, cache, *settings)
        else:
            drafter = self.drafters[name]
            if drafter.cache is not None:
                drafter.cache.forget()
            drafting: dict[str, Any] = {"drafter": drafter, "num_draft_tokens": num_draft_tokens}
            drafting |= {"cached_tokens": list(prompt[:-1]), "stop_tokens": self.stop_tokens}
            drafting |= {"statistics": statistics, "on_cycle": cycles.append}
            output, seconds = _timed(partial(generate_step, **drafting), self.model, cache, *settings)
        if statistics.failures:  # a drafter that is switched off measures nothing
            reason = "; ".join(statistics.failures)
            raise SpectoolError(f"drafter {name} fails and cannot be measured: {reason}. Leave it out")
        proposed, accepted = (tuple(len(each.proposal) for each in cycles), tuple(each.accepted for each in cycles))
        drafted = sum(cycle.draft_seconds for cycle in cycles)
        return Generation(name, num_draft_tokens, tuple(output), seconds, drafted, proposed, accepted)

    def _with_gap(self, one: Generation, prompt: Sequence[int], plain: Sequence[int]) -> Generation:
        """A generation with the gap of the two best logits where it leaves plain decoding's output."""
        place = common_prefix(one.output, plain)
        tokens, cache = [*prompt, *plain[:place]], make_prompt_cache(self.model)
        prefill(self.model, cache, tokens[:-1])  # no logits of a long prompt
        logits = forward(self.model, mx.array(tokens[-1:])[None], cache)[0, -1]
        second, best = np.array(mx.sort(logits)[-2:].astype(mx.float32)).tolist()
        return replace(one, gap=best - second)


@repeatable
def plain_text(model: Any, cache: list[Any], *settings: Any) -> tuple[list[int], float]:
    """A text of mlx-lm's own loop, which computes the next token while the last one is read, and its seconds."""
    found = _timed(plain_generate_step, model, cache, *settings)
    mx.synchronize(generation_stream)  # the loop has begun one pass more than it reads
    return found


def _timed(
    step: Callable[..., Iterable[Any]],
    model: Any,
    cache: list[Any],
    prompt: list[int],
    tokens: int,
    stops: list[int],
    temp: float,
    seed: int,
) -> tuple[list[int], float]:
    """Tokens of a generation, and its seconds from the pass over the last token of the prompt."""
    output: list[int] = []
    mx.random.seed(seed)
    sampler = Sampling(temp=temp) if temp else None
    with wired_limit(model, [generation_stream]):
        generated = step(mx.array(prompt), model, max_tokens=tokens, sampler=sampler, prompt_cache=cache)
        began = ended = time.perf_counter()
        for token, *_ in generated:
            ended = time.perf_counter()
            output.append(int(token))
            if output[-1] in stops:
                break
    return output, ended - began
