"""A benchmark from beginning to end: every prompt in every configuration, and the page.

All configurations of a prompt begin from copies of one cache, which holds the prompt except its last two tokens, so a
long prompt is computed once. The clock runs from when the target has read the prompt to the last token; the drafter
reads the prompt meanwhile. Draft models forget it in between, so every configuration pays for reading it.
"""

import copy
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import mlx.core as mx
import numpy as np

from spectool import SpectoolError, __version__
from spectool.artifacts.atomic import require_new
from spectool.measure.bench.page import page
from spectool.measure.bench.prompts import ids_of_prompt, load_prompts
from spectool.measure.bench.results import PAGE, PLAIN, Block, Generation, Options, Run
from spectool.measure.degenerate import fault_of
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle, Drafter, Drafters
from spectool.runtime.groups.rank_0 import alike, forward, make_prompt_cache
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.machine import machine_of, weight_bytes
from spectool.runtime.mlx_lm_compat import generate_step as plain_generate_step
from spectool.runtime.mlx_lm_compat import generation_stream, wired_limit
from spectool.runtime.sampling.samplers import Sampling
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.opening import open_tokenizer

StartProgress: TypeAlias = Callable[[str, float, str], AbstractContextManager[Callable[[float], object]]]
"""Begins a progress bar, from its title, total and unit; gives what is called with each step."""
_WARM_UP = 8  # tokens
_LEFT = 2  # tokens of a prompt that each configuration feeds itself


class Configuration(NamedTuple):
    """A drafter with its settings; by default plain decoding with mlx-lm's own loop."""

    name: str = PLAIN
    num_draft_tokens: int | None = 0
    drafter: Drafter | Drafters | None = None
    verify: str | None = None  # as for `generate_step`


def run_benchmark(options: Options, out: Path, say: Callable[[str], object], progress: StartProgress) -> Run:
    """Measure a run into the new folder ``out``, and write its page. After Ctrl-C the page has what was measured."""
    require_new(out)
    prompts = load_prompts(options.prompts, open_tokenizer(options.model), options.count, options.window)
    target, tokenizer, weights = _load(options, say)
    facts = {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_of(target.model),
        "weights": weights,
    }
    facts["versions"] = {"spectool": __version__, "mlx": version("mlx"), "mlx-lm": version("mlx-lm")}
    run = Run(out, options, facts)
    with progress(f"measuring {Path(options.model).name}", len(prompts), "prompts") as done:
        out.mkdir(parents=True, exist_ok=True)
        try:
            for number, prompt in enumerate(prompts):
                ids = ids_of_prompt(prompt, tokenizer)
                require_tokens(f"prompt {prompt.name}", ids, vocabulary_size(target.model), tokenizer)
                if number == 0:  # compile passes and load data, with another prompt than this
                    replace(target, tokens=min(_WARM_UP, target.tokens)).measure([*ids[1:], ids[0]], options.temp, (0,))
                judged = []
                for one in target.measure(ids, options.temp, (options.seed, number)):
                    fault = fault_of(one.output, tokenizer.decode(list(one.output)), prompt.text)
                    judged.append(replace(one, fault=fault))
                run.append(Block(prompt.name, options.prompts, prompt.kind, options.temp, len(ids), tuple(judged)))
                done(1)
        except KeyboardInterrupt as stop:
            if run.blocks:
                stop.args = (
                    f"Interrupted after {len(run.blocks)} of {len(prompts)} prompts, for which see {out / PAGE}.",
                )
            raise
        finally:
            if run.blocks:
                (out / PAGE).write_text(page(run), encoding="utf-8", errors="backslashreplace")
            else:
                out.rmdir()
    return run


def _load(options: Options, say: Callable[[str], object]) -> "tuple[Target, Any, dict[str, int]]":
    """The target with all drafters, its tokenizer from mlx-lm, and the bytes of weights; a model is loaded once."""
    say(f"loading {options.model}")
    model, tokenizer = load_model(options.model, pipeline=options.pipeline)
    load_draft = cache(load_model)
    configurations, weights = [Configuration()], {"target": weight_bytes(model)}
    for name, spec in options.drafters.items():
        say(f"loading {name}")
        sources = dict(spec.sources)
        if sources.get("draft_model"):
            sources["draft_model"] = load_draft(sources["draft_model"])
            weights[name] = weight_bytes(sources["draft_model"][0])
        drafter = load_drafter(tokenizer, **sources)
        configurations += [Configuration(name, k, drafter, spec.verify) for k in options.num_draft_tokens]
    stop = frozenset(() if options.ignore_eos else tokenizer.eos_token_ids)
    return Target(model, configurations, stop, options.tokens), tokenizer, weights


@dataclass(frozen=True)
class Target:
    """A target model that decodes prompts in many configurations."""

    model: Any  # an mlx-lm model
    configurations: Sequence[Configuration]  # plain decoding among them
    stop_tokens: frozenset[int]  # end an output
    tokens: int  # of an output, at most

    def measure(self, prompt: Sequence[int], temperature: float, seed: Sequence[int]) -> list[Generation]:
        """The timed generations of one prompt in every configuration, in the order in which they ran.

        ``seed`` is for that order and for sampling, which begins alike in all of them.
        """
        rng, begun, found = np.random.default_rng(list(seed)), make_prompt_cache(self.model), list[Generation]()
        prefill(self.model, begun, prompt[:-_LEFT])
        drawn = int(rng.integers(1 << 32))
        for place in rng.permutation(len(self.configurations)):
            cache = copy.deepcopy(begun)
            mx.eval([entry.state for entry in cache])
            found.append(self._generate(self.configurations[place], prompt, cache, temperature, drawn))
        plain = next(one.output for one in found if one.drafter == PLAIN)
        # Above temperature 0 both outputs are drawn, so where they differ means nothing.
        return found if temperature else [self._with_gap(one, prompt, plain) for one in found]

    def _generate(
        self, one: Configuration, prompt: Sequence[int], cache: list[Any], temperature: float, seed: int
    ) -> Generation:
        cycles, statistics, rest = list[Cycle](), DraftStatistics(), list(prompt[-_LEFT:])
        settings: Any = rest, self.tokens, sorted(self.stop_tokens), temperature, seed
        if one.drafter is None:
            output, seconds = alike(plain_text, self.model, cache, *settings)
        else:
            if one.drafter.cache is not None:
                one.drafter.cache.forget()
            options: dict[str, Any] = {"drafter": one.drafter, "num_draft_tokens": one.num_draft_tokens}
            options |= {"verify": one.verify, "cached_tokens": list(prompt[:-_LEFT]), "stop_tokens": self.stop_tokens}
            options |= {"statistics": statistics, "on_cycle": cycles.append}
            output, seconds = _timed(partial(generate_step, **options), self.model, cache, *settings)
        if statistics.failures:  # a drafter that is switched off measures nothing
            reason = "; ".join(failure.error for failure in statistics.failures)
            raise SpectoolError(f"drafter {one.name} fails and cannot be measured: {reason}. Leave it out")
        proposed, accepted = (tuple(len(each.proposal) for each in cycles), tuple(each.accepted for each in cycles))
        drafted = sum(cycle.draft_seconds for cycle in cycles)
        return Generation(one.name, one.num_draft_tokens, tuple(output), seconds, drafted, proposed, accepted)

    def _with_gap(self, one: Generation, prompt: Sequence[int], plain: Sequence[int]) -> Generation:
        """A generation with the gap of the two best logits where it leaves plain decoding's output, if it does."""
        if one.output == plain:
            return one
        place = common_prefix(one.output, plain)
        logits = forward(self.model, mx.array([*prompt, *plain[:place]])[None])[0, -1]
        second, best = np.array(mx.sort(logits)[-2:].astype(mx.float32)).tolist()
        return replace(one, gap=best - second)


def plain_text(
    model: Any, cache: list[Any], prompt: list[int], tokens: int, stops: list[int], temperature: float, seed: int
) -> tuple[list[int], float]:
    """A text of mlx-lm's own loop, which computes the next token while the last one is read, and its seconds."""
    found = _timed(plain_generate_step, model, cache, prompt, tokens, stops, temperature, seed)
    mx.synchronize(generation_stream)  # the loop has begun one pass more than it reads
    return found


def _timed(
    step: Callable[..., Iterable[tuple[Any, ...]]],
    model: Any,
    cache: list[Any],
    prompt: list[int],
    tokens: int,
    stops: list[int],
    temperature: float,
    seed: int,
) -> tuple[list[int], float]:
    """Tokens of a generation, and its seconds from when the target has read the prompt."""
    began = ended = 0.0
    output: list[int] = []

    def fed(count: int, total: int) -> None:
        nonlocal began
        if count < total:  # the last call comes after the first token
            began = time.perf_counter()

    mx.random.seed(seed)
    sampler = Sampling(temp=temperature) if temperature else None
    options = {"max_tokens": tokens, "sampler": sampler, "prompt_cache": cache, "prompt_progress_callback": fed}
    with wired_limit(model, [generation_stream]):
        for token, *_ in step(mx.array(prompt), model, **options):
            ended = time.perf_counter()
            output.append(int(token))
            if output[-1] in stops:
                break
    return output, ended - began
