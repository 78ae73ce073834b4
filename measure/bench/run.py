"""A benchmark from beginning to end: every prompt in every configuration, resumable."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from spectool import ArtifactError
from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.atomic import atomic_file
from spectool.measure.bench.identity import contents, machine, weight_bytes
from spectool.measure.bench.page import page
from spectool.measure.bench.prompts import BenchPrompt, ids_of_prompt, load_prompts, prompts_hash
from spectool.measure.bench.run_file import PAGE, Block, Header, Options, Run, append, read_run, writing
from spectool.measure.bench.timing import Configuration, Target
from spectool.measure.differences import differences
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.tokenization.opening import open_tokenizer

Say: TypeAlias = Callable[[str], object]
Done: TypeAlias = Callable[[float], object]
StartProgress: TypeAlias = Callable[[str, float, str], AbstractContextManager[Done]]
"""Begins a progress bar, from its title, total and unit; gives what is called with each step."""


def run_benchmark(options: Options, out: Path, pause: float, say: Say, progress: StartProgress) -> Run:
    """Measure what is missing of a run in the folder ``out``, and write its page.

    Before each prompt the machine rests for ``pause`` seconds, so that one without a fan begins each equally cool.
    ``say`` is called with notes for the user, and ``progress`` once.

    Raises:
        ArtifactError: Another run is there or under way, or an artifact is damaged or for another tokenizer.
        RuntimeUnsupported: A model cannot be loaded, or cannot be drafted for.
    """
    drafters = options.drafters.values()
    artifacts = [path for drafter in drafters for path in drafter.artifacts]
    for path in artifacts:
        read_manifest(path)  # before a model is loaded, which takes longer
    prompts = load_prompts(options.prompts, open_tokenizer(options.model), options.count, options.window)
    models = dict.fromkeys([options.model, *(drafter.draft_model for drafter in drafters if drafter.draft_model)])
    header = Header(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        options=options,
        identity={"prompts": prompts_hash(prompts), **contents(models, artifacts)},
        machine=machine(),
        weight_bytes={},
    )
    jobs = list(product(prompts, options.temperatures))
    with writing(out) as there:
        if there and (changed := differences(there.header.key(), header.key())):
            raise ArtifactError(f"{out}: is a run with other settings: {changed}. Name another -o, or remove it")
        measured = {(block.prompt, block.temperature) for block in there.blocks} if there else set()
        missing = [number for number, (prompt, t) in enumerate(jobs) if (prompt.name, t) not in measured]
        if there:
            left = f"resuming: {len(measured)} of {len(jobs)} blocks are" if missing else "nothing was run: all is"
            say(f"{out}: {left} measured already, since {there.header.began}")
        if missing:
            target, tokenizer, weights = _load(options, say)
            first = None if there else header.model_copy(update={"weight_bytes": weights})
            generations = len(missing) * len(options.configurations)
            with progress(f"measuring {Path(options.model).name}", generations, "generations") as done:
                for number in missing:
                    time.sleep(pause)
                    block = _block(target, tokenizer, jobs[number], (options.seed, number), done)
                    append(out, block, first)
                    first = None
        run = read_run(out)
        with atomic_file(out / PAGE) as partial:
            partial.write_text(page(run), encoding="utf-8")
    return run


def _load(options: Options, say: Say) -> tuple[Target, Any, dict[str, int]]:
    """The target with all drafters, its tokenizer from mlx-lm, and the bytes of all weights; a model is loaded once."""
    say(f"loading {options.model}")
    model, tokenizer = load_model(options.model)
    load_draft = cache(load_model)
    configurations, sizes = [Configuration()], {options.model: weight_bytes(model)}
    for name, spec in options.drafters.items():
        say(f"loading {name}")
        draft = None if spec.draft_model is None else load_draft(spec.draft_model)
        if spec.draft_model is not None and draft is not None:
            sizes[spec.draft_model] = weight_bytes(draft[0])
        drafter = load_drafter(
            tokenizer,
            dictionary=spec.dictionaries,
            draft_model=draft,
            alignment=spec.alignment,
            history=spec.history,
        )
        configurations += [Configuration(name, k, drafter, spec.verify) for k in options.num_draft_tokens]
    stop = frozenset(() if options.ignore_eos else tokenizer.eos_token_ids)
    return Target(model, configurations, stop, options.tokens), tokenizer, sizes


def _block(target: Target, tokenizer: Any, job: tuple[BenchPrompt, float], seed: tuple[int, int], done: Done) -> Block:
    """Measure a prompt in every configuration."""
    prompt, temperature = job
    ids = ids_of_prompt(prompt, tokenizer)
    require_tokens(f"prompt {prompt.name}", ids, vocabulary_size(target.model), tokenizer)
    return Block(
        prompt=prompt.name,
        source=prompt.source,
        kind=prompt.kind,
        temperature=temperature,
        prompt_tokens=len(ids),
        generations=tuple(target.measure(ids, temperature, seed, done)),
    )
