"""A benchmark from beginning to end: one model after the other, each prompt in every configuration, resumable.

    .RUN.work/key.json         what is measured: a run only goes on with the same
    .RUN.work/weights.json     bytes and bits of the models loaded so far
    .RUN.work/block-00012/     the rows of one prompt in every configuration

Blocks that a killed run had finished are kept and not measured again. Only one process writes, and a block is renamed
to its name when all of it is on disk.
"""

import gc
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import mlx.core as mx
import pyarrow as pa
import pyarrow.compute as pc

from spectool import ArtifactError
from spectool.artifacts.atomic import atomic_directory, check_replaceable, explain_full_disk
from spectool.artifacts.benchmark import (
    PLAIN,
    Benchmark,
    Row,
    join_blocks,
    read_block,
    write_block,
)
from spectool.artifacts.manifest import MANIFEST, read_manifest
from spectool.artifacts.resumable import differences, read_json, resumable_work, work_path, write_json
from spectool.measure.bench.experiment import DrafterSpec, Experiment, ModelSpec, serves
from spectool.measure.bench.identity import contents, machine, weight_bits, weight_bytes
from spectool.measure.bench.prompt_sources import BenchPrompt, ids_of_prompt, load_prompts, prompts_hash
from spectool.measure.bench.timing import Configuration, Target
from spectool.runtime.decoding.token_ids import require_tokens, vocabulary_size
from spectool.runtime.loading import load_drafter, load_model
from spectool.tokenization.opening import open_tokenizer

Say: TypeAlias = Callable[[str], object]
StartProgress: TypeAlias = Callable[[str, float, str], AbstractContextManager[Callable[[float], object]]]
"""Begins a progress bar, from its title, total and unit; gives what is called with each step."""


class _Loaded(NamedTuple):
    """A target and what drafts for it."""

    target: Target
    tokenizer: Any  # mlx-lm's ``TokenizerWrapper`` of the target
    plain: Configuration
    drafted: Mapping[DrafterSpec, Sequence[Configuration]]  # each drafter in every draft length
    weights: dict[str, Row]  # bytes (``sizes``) and bits of target and draft models, by the target's name


class _Job(NamedTuple):
    """A block to measure."""

    number: int
    model: ModelSpec
    repetition: int
    prompt: BenchPrompt
    temperature: float

    @property
    def drafters(self) -> list[DrafterSpec]:
        """Those for the prompt's language."""
        return self.model.drafters_for(self.prompt.language)


def run_experiment(experiment: Experiment, out: Path, pause: float, say: Say, progress: StartProgress) -> Benchmark:
    """Measure what is missing of an experiment and write the run to ``out``.

    Before each prompt the machine rests for ``pause`` seconds, so that one without a fan begins each equally cool.
    ``say`` is called with notes for the user, and ``progress`` for each model.

    Raises:
        ArtifactError: Another run is there or under way, or an artifact is damaged or for another tokenizer.
        RuntimeUnsupported: A model cannot be loaded, or cannot be drafted for.
    """
    out = out.resolve()
    check_replaceable(out, Benchmark.format)
    for path in [path for model in experiment.models for drafter in model.drafters for path in drafter.artifacts]:
        read_manifest(path)  # before a model is loaded, which takes longer
    tokenizers = [open_tokenizer(model.path) for model in experiment.models]
    prompts = load_prompts(experiment.prompts, tokenizers[0], experiment.seed)
    identity = _identity(experiment, prompts)
    if (out / MANIFEST).exists():
        return _measured_before(out, identity, say)
    jobs = _jobs(experiment, prompts)
    with explain_full_disk(out), resumable_work(out, identity, what="run", keep=("block-*",), begin_anew=False) as work:
        began = datetime.fromtimestamp((work / "key.json").stat().st_mtime, UTC).isoformat(timespec="seconds")
        missing = [job for job in jobs if not _is_measured(_block(work, job), say)]
        left, planned = (_generations(experiment, some) for some in (missing, jobs))
        if left < planned:
            say(f"resuming: {planned - left} of {planned} generations are measured already")
        for model in experiment.models:
            if mine := [job for job in missing if job.model is model]:
                _measure_model(experiment, model, mine, work, pause, say, progress)
        statistics = {
            "machine": machine(),
            "began": began,
            "blocks": len(jobs),
            "prompts": len({job.prompt.name for job in jobs}),
            **(read_json(work / "weights.json") or {}),
        }
        roles = {
            model.name: {"name": model.path, "fingerprint": tokenizer.fingerprint, "size": tokenizer.size}
            for model, tokenizer in zip(experiment.models, tokenizers, strict=True)
        }
        with atomic_directory(out) as partial:
            join_blocks([_block(work, job) for job in jobs], partial)
            generations, _ = read_block(partial)
            statistics |= count_outputs(generations)
            described = experiment.model_dump(mode="json")
            Benchmark.seal(partial, described, roles, {"identity": identity}, statistics)
        return Benchmark(out)


def count_outputs(rows: pa.Table) -> Row:
    """Number of generations, and how many of the drafted ones leave plain decoding's output.

    Tokens are compared up to the first that differs, because all after it are another text. Drawn outputs are not
    compared.
    """
    compared = rows.filter((pc.field("drafter") != PLAIN) & (pc.field("temperature") == 0))
    parts = compared.filter(pc.is_valid(pc.field("first_difference")))
    tokens = pc.sum(pc.coalesce(pc.add(compared["first_difference"], 1), compared["tokens"])).as_py()
    return {
        "seconds": round(pc.sum(rows["seconds"]).as_py(), 3),
        "generations": len(rows),
        "different": len(parts) if len(compared) else None,
        "compared": {"outputs": len(compared), "tokens": tokens or 0},
        "first_difference": pc.min(parts["first_difference"]).as_py(),
        "largest_gap": pc.max(parts["gap"]).as_py(),
    }


def _identity(experiment: Experiment, prompts: Sequence[BenchPrompt]) -> dict[str, Any]:
    """What the rows of a run depend on, as JSON has it: a run only goes on if all of it is the same."""
    drafters = [drafter for model in experiment.models for drafter in model.drafters]
    models = [*(model.path for model in experiment.models), *(drafter.draft_model for drafter in drafters)]
    artifacts = [path for drafter in drafters for path in drafter.artifacts]
    return {
        "experiment": experiment.model_dump(mode="json"),
        "prompts": prompts_hash(prompts),
        **contents((path for path in models if path is not None), artifacts),
    }


def _measured_before(out: Path, identity: Row, say: Say) -> Benchmark:
    """The run that is there, if it is of the same experiment."""
    run = Benchmark(out)
    changed = differences(run.manifest.inputs.get("identity") or {}, identity)
    if changed:
        raise ArtifactError(f"{out}: is a run with other settings: {changed}. Name another -o, or remove it")
    say(f"{out}: already measured, on {run.manifest.statistics['began']}; nothing was run")
    shutil.rmtree(work_path(out), ignore_errors=True)  # left by a process that was killed just before removing it
    return run


def _jobs(experiment: Experiment, prompts: Sequence[BenchPrompt]) -> list[_Job]:
    every = product(experiment.models, range(experiment.repetitions), prompts, experiment.temperature)
    wanted = [each for each in every if serves(each[0], each[2].language)]
    return [_Job(number, *each) for number, each in enumerate(wanted)]


def _generations(experiment: Experiment, jobs: Sequence[_Job]) -> int:
    """Number of generations: plain decoding and every drafter and draft length, in every block."""
    drafted = sum(len(job.drafters) for job in jobs)
    return len(jobs) + len(experiment.num_draft_tokens) * drafted


def _block(work: Path, job: _Job) -> Path:
    return work / f"block-{job.number:05}"


def _is_measured(folder: Path, say: Say) -> bool:
    """Whether a block is there; one that cannot be read is removed."""
    try:
        if folder.exists():
            read_block(folder)
    except ArtifactError as error:
        say(f"measuring again: {error}")
        shutil.rmtree(folder)
    return folder.exists()


def _measure_model(
    experiment: Experiment,
    model: ModelSpec,
    jobs: Sequence[_Job],
    work: Path,
    pause: float,
    say: Say,
    progress: StartProgress,
) -> None:
    """Load a model with its drafters, measure its blocks, and free it again."""
    loaded = _load(experiment, model, say)
    known = read_json(work / "weights.json") or {}  # a resumed run may not load every model again
    merged = {part: known.get(part, {}) | more for part, more in loaded.weights.items()}
    write_json(work / "weights.json", merged)
    with progress(f"measuring {model.name}", _generations(experiment, jobs), "generations") as done:
        for job in jobs:
            time.sleep(pause)
            _measure_block(loaded, experiment.seed, job, work, done)
    del loaded
    gc.collect()
    mx.clear_cache()


def _load(experiment: Experiment, spec: ModelSpec, say: Say) -> _Loaded:
    """Load a target and all its drafters, each draft model once."""
    say(f"loading {spec.name}")
    model, tokenizer = load_model(spec.path)
    load_draft = cache(load_model)
    drafted, drafts = dict[DrafterSpec, Sequence[Configuration]](), dict[str, Any]()
    for drafter in spec.drafters:
        say(f"loading {drafter.name}")
        draft = None if drafter.draft_model is None else load_draft(drafter.draft_model)
        if draft is not None:
            drafts[drafter.name] = draft[0]
        loaded = load_drafter(
            tokenizer,
            dictionary=drafter.dictionary,
            draft_model=draft,
            alignment=drafter.alignment,
            history=drafter.history,
            min_probability=drafter.min_draft_prob,
        )
        lengths = experiment.num_draft_tokens
        drafted[drafter] = [Configuration(drafter.name, k, loaded, drafter.verify) for k in lengths]
    stop = frozenset(() if experiment.ignore_eos else tokenizer.eos_token_ids)
    weights: dict[str, Row] = {}
    for part, measure in (("sizes", weight_bytes), ("bits", weight_bits)):
        weights[part] = {spec.name: measure(model)}
        weights[f"draft_{part}"] = {spec.name: {name: measure(draft) for name, draft in drafts.items()}}
    return _Loaded(Target(spec.name, model, stop, experiment.tokens), tokenizer, Configuration(), drafted, weights)


def _measure_block(loaded: _Loaded, seed: int, job: _Job, work: Path, on_generation: Callable[[float], object]) -> None:
    """Measure a prompt in every configuration for its language, and put the block in its place: all or nothing."""
    prompt = job.prompt
    labels = {"language": prompt.language, "kind": prompt.kind, "prompt": prompt.name, "repetition": job.repetition}
    mine = [loaded.plain, *chain.from_iterable(loaded.drafted[drafter] for drafter in job.drafters)]
    ids = ids_of_prompt(prompt, loaded.tokenizer)
    require_tokens(f"prompt {prompt.name}", ids, vocabulary_size(loaded.target.model), loaded.tokenizer)
    block = loaded.target.measure(job.number, ids, mine, job.temperature, (seed, job.number), labels, on_generation)
    unfinished = work / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    write_block(unfinished, block.generations, block.cycles)
    unfinished.rename(_block(work, job))
