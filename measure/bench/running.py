"""A benchmark from beginning to end: models one after the other, prompts in every configuration, resumable.

    .RUN.work/key.json         what is measured: a run goes on only with the same
    .RUN.work/weights.json     bytes and bits of the models loaded so far
    .RUN.work/block-00012/     the rows of one prompt in every configuration

What a killed run had finished stays and is not measured again; one process writes, nothing half-written counts.
"""

import gc
import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import pyarrow as pa
import pyarrow.compute as pc
from mlx.utils import tree_flatten

from spectool import ArtifactError
from spectool.artifacts.atomic import check_replaceable, naming, writing
from spectool.artifacts.benchmark import (
    FORMAT,
    PLAIN,
    VERSION,
    Benchmark,
    Row,
    join_blocks,
    read_block,
    write_block,
)
from spectool.artifacts.manifest import MANIFEST, Manifest, read_manifest, seal
from spectool.artifacts.resumable import differences, read_json, work_path, working, write_json
from spectool.commands.console import progress, say
from spectool.measure.bench.energy import Meter, metering
from spectool.measure.bench.experiment import DrafterSpec, Experiment, ModelSpec, serves
from spectool.measure.bench.machine import machine, versions
from spectool.measure.bench.prompt_sources import Prompt, encoded, fingerprint, load_prompts
from spectool.measure.bench.timing import Configuration, Target
from spectool.runtime.decoding.token_ids import require_tokens, vocabulary_size
from spectool.runtime.drafters.prompt_lookup import with_prompt_lookup
from spectool.runtime.loading import load_drafter, load_model
from spectool.tokenization.opening import open_tokenizer


class _Loaded(NamedTuple):
    """A target and what drafts for it."""

    target: Target  # measures
    tokenizer: Any  # mlx-lm's ``TokenizerWrapper`` of it
    plain: Configuration  # plain decoding
    drafted: Mapping[DrafterSpec, Sequence[Configuration]]  # a drafter in every strategy and draft length
    # by the target's name: bytes (``sizes``) and bits of quantised weights, its own and of draft models
    weights: dict[str, Row]


def _load(experiment: Experiment, spec: ModelSpec, meter: Meter) -> _Loaded:
    """Load a target and all its drafters, each draft model once; say so before each."""
    say(f"loading {spec.name}")
    model, tokenizer = load_model(spec.path)
    load_draft = cache(load_model)
    drafted, drafts = dict[DrafterSpec, list[Configuration]](), dict[str, Any]()
    for drafter in spec.drafters:
        say(f"loading {drafter.name}")
        draft = None if drafter.draft_model is None else load_draft(drafter.draft_model)
        if draft is not None:
            drafts[drafter.name] = draft[0]
        configurations = drafted[drafter] = []
        for strategy in drafter.strategies or (None,):
            loaded = load_drafter(
                tokenizer,
                dictionary=drafter.dictionary,
                draft_model=draft,
                alignment=drafter.alignment,
                strategy=strategy,
                history=drafter.history,
                min_probability=drafter.min_draft_prob,
            )
            loaded = with_prompt_lookup(loaded) if drafter.prompt_lookup else loaded
            configurations += [
                Configuration(drafter.name, strategy, k, loaded, drafter.verify) for k in experiment.num_draft_tokens
            ]
    stop = frozenset(() if experiment.ignore_eos else tokenizer.eos_token_ids)
    weights: dict[str, Row] = {}
    for part, count in (("sizes", weight_bytes), ("bits", _bits)):
        weights[part] = {spec.name: count(model)}
        weights[f"draft_{part}"] = {spec.name: {name: count(draft) for name, draft in drafts.items()}}
    target = Target(spec.name, model, stop, experiment.tokens, meter)
    return _Loaded(target, tokenizer, Configuration(), drafted, weights)


def weight_bytes(model: Any) -> int:
    """Return the bytes of an MLX model's weights."""
    weights: dict[str, Any] = dict(tree_flatten(model.parameters()))
    return sum(weight.nbytes for weight in weights.values())


def _bits(model: Any) -> list[int]:
    """Return the bits of quantised weights; several where layers differ, none where nothing is quantised."""
    return sorted({module.bits for module in model.modules() if hasattr(module, "bits")})


class _Job(NamedTuple):
    """A block to measure."""

    number: int
    model: ModelSpec
    repetition: int
    prompt: Prompt
    temperature: float

    @property
    def drafters(self) -> list[DrafterSpec]:
        """Those for the prompt's language."""
        return self.model.drafters_for(self.prompt.language)


def run_experiment(experiment: Experiment, out: Path, watts: float | None, pause: float = 0.0) -> Benchmark:
    """Measure what is missing of an experiment and write the run to ``out``.

    Args:
        experiment: What to measure.
        out: Directory of the run.
        watts: Power to estimate energy with; None to measure it where the machine can.
        pause: Seconds of rest before each prompt, so that a machine without a fan begins each equally cool.

    Raises:
        ArtifactError: Another run is there or under way, or an artifact is damaged or for another tokenizer.
        CorpusError: A source of prompts cannot be read.
        RuntimeUnsupported: A model cannot be loaded, or cannot be drafted for.
    """
    out = out.resolve()
    check_replaceable(out, FORMAT)
    for path in [path for model in experiment.models for drafter in model.drafters for path in drafter.artifacts]:
        read_manifest(path)  # before a model is loaded, which takes longer
    tokenizers = [open_tokenizer(model.path) for model in experiment.models]
    prompts = load_prompts(experiment.prompts, tokenizers[0], experiment.seed)
    now = _identity(experiment, prompts, watts)
    if (out / MANIFEST).exists():
        return _measured_before(out, now)
    jobs = _jobs(experiment, prompts)
    with naming(out), working(out, now, what="run", keep=("block-*",), begin_anew=False) as work:
        weights = work / "weights.json"
        began = datetime.fromtimestamp((work / "key.json").stat().st_mtime, UTC).isoformat(timespec="seconds")
        missing = [job for job in jobs if not _is_measured(_block(work, job))]
        left, planned = (_generations(experiment, some) for some in (missing, jobs))
        if left < planned:
            say(f"going on: {planned - left} of {planned} generations were measured before")
        with metering(watts) as meter:
            for model in experiment.models:
                mine = [job for job in missing if job.model is model]
                if mine:
                    loaded = _load(experiment, model, meter)
                    known = read_json(weights) or {}  # a resumed run may not load every model again
                    write_json(weights, {part: known.get(part, {}) | more for part, more in loaded.weights.items()})
                    left = _generations(experiment, mine)
                    with progress(f"measuring {model.name}", left, "generations") as done:
                        for job in mine:
                            time.sleep(pause)
                            _measure(loaded, experiment.seed, job, work, done)
                    del loaded
                    gc.collect()
                    mx.clear_cache()
            power = {"source": meter.source, "watts": watts}
        statistics = {
            "machine": machine(),
            "began": began,
            "blocks": len(jobs),
            "prompts": len({job.prompt.name for job in jobs}),
            **(read_json(weights) or {}),
            "power": power,
        }
        roles = {
            model.name: {"name": model.path, "fingerprint": tokenizer.fingerprint, "size": tokenizer.size}
            for model, tokenizer in zip(experiment.models, tokenizers, strict=True)
        }
        with writing(out) as partial:
            join_blocks([_block(work, job) for job in jobs], partial)
            generations, _ = read_block(partial)
            statistics |= count(generations)
            seal(
                partial,
                Manifest(FORMAT, VERSION, experiment.model_dump(mode="json"), roles, {"identity": now}, statistics),
            )
        return Benchmark(out)


def _measured_before(out: Path, now: Row) -> Benchmark:
    """Return the run that is there, if it is of the same."""
    run = Benchmark(out)
    changed = differences(run.manifest.inputs.get("identity") or {}, now)
    if changed:
        raise ArtifactError(f"{out}: is a run with other settings: {changed}. Name another -o, or remove it")
    say(f"{out}: measured before, begun {run.manifest.statistics['began']}; nothing was run")
    shutil.rmtree(work_path(out), ignore_errors=True)  # left where a process was killed after its last step but one
    return run


def _jobs(experiment: Experiment, prompts: Sequence[Prompt]) -> list[_Job]:
    every = product(experiment.models, range(experiment.repetitions), prompts, experiment.temperature)
    wanted = [each for each in every if serves(each[0], each[2].language)]
    return [_Job(number, *each) for number, each in enumerate(wanted)]


def _generations(experiment: Experiment, jobs: Sequence[_Job]) -> int:
    """Count plain decoding, and every combination of drafter, strategy and draft length, of every block."""
    drafted = sum(len(drafter.strategies) or 1 for job in jobs for drafter in job.drafters)
    return len(jobs) + len(experiment.num_draft_tokens) * drafted


def _block(work: Path, job: _Job) -> Path:
    return work / f"block-{job.number:05}"


def _is_measured(folder: Path) -> bool:
    """Return whether a block is there; one that cannot be read is removed."""
    try:
        if folder.exists():
            read_block(folder)
    except ArtifactError as error:
        say(f"measuring again: {error}")
        shutil.rmtree(folder)
    return folder.exists()


def _measure(loaded: _Loaded, seed: int, job: _Job, work: Path, on_generation: Callable[[float], object]) -> None:
    """Measure a block, a prompt in every configuration for its language, and put it in its place: all or nothing."""
    prompt = job.prompt
    labels = {"language": prompt.language, "kind": prompt.kind, "prompt": prompt.name, "repetition": job.repetition}
    mine = [loaded.plain, *chain.from_iterable(loaded.drafted[drafter] for drafter in job.drafters)]
    ids = encoded(prompt, loaded.tokenizer)
    require_tokens(f"prompt {prompt.name}", ids, vocabulary_size(loaded.target.model), loaded.tokenizer)
    block = loaded.target.measure(job.number, ids, mine, job.temperature, (seed, job.number), labels, on_generation)
    unfinished = work / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    write_block(unfinished, block.generations, block.cycles)
    unfinished.rename(_block(work, job))


def count(rows: pa.Table) -> Row:
    """Sum up generations: how many there are, and how many of the drafted ones leave plain decoding's output.

    Tokens are compared up to the first that differs; behind it all are others. Drawn outputs are not compared.
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


_LOOKED_AT = 1 << 20  # bytes at both ends of a file of weights


def _identity(experiment: Experiment, prompts: Sequence[Prompt], watts: float | None) -> dict[str, Any]:
    """Return what the rows of a run depend on, as JSON has it: a run goes on only where all of it is the same."""
    drafters = [drafter for model in experiment.models for drafter in model.drafters]
    models = [*(model.path for model in experiment.models), *(drafter.draft_model for drafter in drafters)]
    artifacts = [path for drafter in drafters for path in drafter.artifacts]
    return {
        "experiment": experiment.model_dump(mode="json"),
        "prompts": fingerprint(prompts),
        "stated watts": watts,
        **contents((path for path in models if path is not None), artifacts),
    }


def contents(models: Iterable[str], artifacts: Iterable[Path]) -> dict[str, Any]:
    """Return hashes of what lies at these paths, and the versions of what reads it.

    Two builds of a dictionary, or two trainings of a model, may lie under one path. So artifacts count by the hashes in
    their manifests, and weights by their sizes, beginnings and ends.

    Args:
        models: Directories or hub ids.
        artifacts: Directories with a manifest.
    """
    return {
        **{f"model {path}": _weights(Path(path)) for path in models},
        **{f"artifact {path}": hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest() for path in artifacts},
        **versions(),
    }


def _weights(path: Path) -> str | None:
    """Return a hash of a model's files; None for one on the hub."""
    if not path.is_dir():
        return None
    digest = hashlib.sha256()
    for file in sorted([*path.glob("*.safetensors"), path / "config.json", path / "tokenizer.json"]):
        if file.exists():
            size = file.stat().st_size
            with file.open("rb") as stream:
                begin = stream.read(_LOOKED_AT)
                stream.seek(max(0, size - _LOOKED_AT))
                digest.update(f"{file.name} {size}\n".encode() + begin + stream.read(_LOOKED_AT))
    return digest.hexdigest()
