"""A benchmark from beginning to end: every prompt in every configuration, and the page."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from mlx.utils import tree_flatten

from spectool import __version__
from spectool.artifacts.atomic import explain_full_disk, require_new
from spectool.measure.bench.page import page
from spectool.measure.bench.prompts import ids_of_prompt, load_prompts
from spectool.measure.bench.run_file import PAGE, Block, Options, Run
from spectool.measure.bench.timing import Configuration, Target
from spectool.measure.degenerate import fault_of
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.policy.costs import machine_name
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.tokenization.opening import open_tokenizer

StartProgress: TypeAlias = Callable[[str, float, str], AbstractContextManager[Callable[[float], object]]]
"""Begins a progress bar, from its title, total and unit; gives what is called with each step."""
_WARM_UP = 8  # tokens


def run_benchmark(options: Options, out: Path, say: Callable[[str], object], progress: StartProgress) -> Run:
    """Measure a run into the new folder ``out``, and write its page. After Ctrl-C the page has what was measured.

    Raises:
        ArtifactError: ``out`` exists already, or an artifact is damaged or for another tokenizer.
        RuntimeUnsupported: A model cannot be loaded, or cannot be drafted for.
    """
    require_new(out)
    prompts = load_prompts(options.prompts, open_tokenizer(options.model), options.count, options.window)
    jobs = list(product(options.temperatures, prompts))
    target, tokenizer, weights = _load(options, say)
    facts: dict[str, Any] = {"began": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine_name()}
    facts["versions"] = {"spectool": __version__, "mlx": version("mlx"), "mlx-lm": version("mlx-lm")}
    run = Run(out, options, facts | {"weights": weights})
    with explain_full_disk(out), progress(f"measuring {Path(options.model).name}", len(jobs), "prompts") as done:
        out.mkdir(parents=True, exist_ok=True)
        try:
            for number, (temperature, prompt) in enumerate(jobs):
                time.sleep(options.pause)
                ids = ids_of_prompt(prompt, tokenizer)
                require_tokens(f"prompt {prompt.name}", ids, vocabulary_size(target.model), tokenizer)
                if prompt is prompts[0]:  # compile passes and load data, with another prompt than this
                    replace(target, tokens=min(_WARM_UP, target.tokens)).measure([*ids[1:], ids[0]], temperature, (0,))
                found = target.measure(ids, temperature, (options.seed, number))
                texts = [tokenizer.decode(list(one.output)) for one in found]
                faults = [fault_of(one.output, text, prompt.text) for one, text in zip(found, texts, strict=True)]
                judged = tuple(replace(one, fault=fault) for one, fault in zip(found, faults, strict=True))
                run.append(Block(prompt.name, prompt.source, prompt.kind, temperature, len(ids), judged))
                done(1)
        except KeyboardInterrupt as stop:
            if run.blocks:
                done_of = f"{len(run.blocks)} of {len(jobs)} prompts"
                stop.args = (f"Interrupted after {done_of}, which {out / PAGE} is about.",)
            raise
        finally:
            if run.blocks:
                (out / PAGE).write_text(page(run), encoding="utf-8")
            else:
                out.rmdir()
    return run


def _load(options: Options, say: Callable[[str], object]) -> tuple[Target, Any, dict[str, int]]:
    """The target with all drafters, its tokenizer from mlx-lm, and the bytes of weights; a model is loaded once."""
    say(f"loading {options.model}")
    model, tokenizer = load_model(options.model)
    load_draft = cache(load_model)
    configurations, weights = [Configuration()], {"target": _bytes_of(model)}
    for name, spec in options.drafters.items():
        say(f"loading {name}")
        sources = dict(spec.sources)
        if sources.get("draft_model"):
            sources["draft_model"] = load_draft(sources["draft_model"])
            weights[name] = _bytes_of(sources["draft_model"][0])
        drafter = load_drafter(tokenizer, **sources)
        configurations += [Configuration(name, k, drafter, spec.verify) for k in options.num_draft_tokens]
    stop = frozenset(() if options.ignore_eos else tokenizer.eos_token_ids)
    return Target(model, configurations, stop, options.tokens), tokenizer, weights


def _bytes_of(model: Any) -> int:
    weights: dict[str, Any] = dict(tree_flatten(model.parameters()))
    return sum(weight.nbytes for weight in weights.values())
