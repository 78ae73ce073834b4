"""A benchmark from beginning to end: models one after the other, prompts in every way, resumable.

What a killed run had finished stays (`work`) and is not measured again.
"""

import gc
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import pyarrow.compute as pc

from spectool import ArtifactError
from spectool.artifacts.formats.benchmark import FORMAT, VERSION, Benchmark, Row, join_blocks, read_block
from spectool.artifacts.manifest import MANIFEST, Manifest, read_manifest, seal
from spectool.artifacts.replacing import check_replaceable, naming, writing
from spectool.artifacts.tokenizer.opening import open_tokenizer
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.artifacts.work import differences, work_path
from spectool.measure.bench.energy import Meter, metering
from spectool.measure.bench.experiment import Experiment, ModelSpec
from spectool.measure.bench.identity import identity
from spectool.measure.bench.loaded import Loaded
from spectool.measure.bench.machine import machine
from spectool.measure.bench.progress import Progress
from spectool.measure.bench.prompt_sources import Prompt, load_prompts
from spectool.measure.bench.work import ADVICE, Work, open_work


class _Job(NamedTuple):
    """A block to measure."""

    number: int
    model: ModelSpec
    repetition: int
    prompt: Prompt


def run_experiment(experiment: Experiment, out: Path, watts: float | None, progress: Progress) -> Benchmark:
    """Measure what is missing of an experiment and write the run to ``out``.

    Args:
        experiment: What to measure.
        out: Directory of the run.
        watts: Power to estimate energy with; None to measure it where the machine tells.
        progress: Told how far it is.

    Raises:
        ArtifactError: Another run is there or under way, or an artifact is damaged or for another tokenizer.
        CorpusError: A source of prompts cannot be read.
        RuntimeUnsupported: A model cannot be loaded, or cannot be drafted for.
    """
    out = out.resolve()
    check_replaceable(out, FORMAT)
    for path in [path for model in experiment.models for drafter in model.drafters for path in drafter.artifacts]:
        read_manifest(Path(path))  # before a model is loaded, which takes longer
    tokenizers = [open_tokenizer(model.path) for model in experiment.models]
    prompts = load_prompts(experiment.prompts, tokenizers[0])
    now = identity(experiment, prompts, watts)
    if (out / MANIFEST).exists():
        return _measured_before(out, now, progress)
    jobs = _jobs(experiment, prompts)
    with naming(out), open_work(out, now) as work:
        missing = set(work.missing(len(jobs), progress.say))
        ways = [_ways(experiment, job) for job in jobs]
        left = sum(ways[number] for number in missing)
        progress.begin(sum(ways) - left, sum(ways))
        with metering(watts) as meter:
            for model in experiment.models:
                mine = [job for job in jobs if job.model is model and job.number in missing]
                if mine:
                    _measure(work, experiment, mine, meter, progress)
            power = {"source": meter.source, "watts": meter.watts}
        return _finish(work, out, experiment, tokenizers, jobs, now, power)


def _measured_before(out: Path, now: Row, progress: Progress) -> Benchmark:
    """Return the run that is there, if it is of the same."""
    run = Benchmark(out)
    changed = differences(run.manifest.inputs.get("identity") or {}, now)
    if changed:
        raise ArtifactError(f"{out}: is a run with other settings: {changed}. {ADVICE}")
    progress.say(f"{out}: measured before, begun {run.manifest.statistics['began']}; nothing was run")
    shutil.rmtree(work_path(out), ignore_errors=True)  # left where a process was killed after its last step but one
    return run


def _jobs(experiment: Experiment, prompts: Sequence[Prompt]) -> list[_Job]:
    found: list[_Job] = []
    for model in experiment.models:
        for repetition in range(experiment.repetitions):
            for prompt in prompts:
                if prompt.language in (model.languages or (prompt.language,)):
                    found.append(_Job(len(found), model, repetition, prompt))
    return found


def _ways(experiment: Experiment, job: _Job) -> int:
    """Count plain decoding, and every combination of drafter, strategy and draft length for a prompt."""
    drafters = job.model.drafters_for(job.prompt.language)
    return 1 + len(experiment.num_draft_tokens) * sum(len(drafter.strategies) or 1 for drafter in drafters)


def _measure(work: Work, experiment: Experiment, jobs: Sequence[_Job], meter: Meter, progress: Progress) -> None:
    """Measure the blocks of one model; nothing of it stays in memory."""
    loaded = Loaded(experiment, jobs[0].model, meter, progress)
    work.note_sizes(loaded.sizes())
    for job in jobs:
        work.put(job.number, loaded.measure(job.number, job.prompt, job.repetition))
    del loaded
    gc.collect()
    mx.clear_cache()


def _finish(
    work: Work,
    out: Path,
    experiment: Experiment,
    tokenizers: Sequence[Tokenizer],
    jobs: Sequence[_Job],
    now: Row,
    power: Row,
) -> Benchmark:
    """Put all blocks together and seal them."""
    folders = [work.folder(job.number) for job in jobs]
    seconds = generations = different = 0
    for folder in folders:
        rows, _ = read_block(folder)
        generations += len(rows)
        seconds += pc.sum(rows["seconds"]).as_py()
        different += len(rows) - rows["first_difference"].null_count
    statistics = {
        "machine": machine(),
        "began": work.began,
        "seconds": round(seconds, 3),
        "blocks": len(jobs),
        "prompts": len({job.prompt.name for job in jobs}),
        "generations": generations,
        "different": None if experiment.temperature else different,
        **work.sizes(),
        "power": power,
    }
    roles = {
        model.name: {"name": model.path, "fingerprint": tokenizer.fingerprint, "size": tokenizer.size}
        for model, tokenizer in zip(experiment.models, tokenizers, strict=True)
    }
    with writing(out) as partial:
        join_blocks(folders, partial)
        seal(partial, Manifest(FORMAT, VERSION, experiment.described(), roles, {"identity": now}, statistics))
    return Benchmark(out)
