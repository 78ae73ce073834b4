"""A benchmark from beginning to end: models one after the other, prompts in every way, resumable.

    RUN.partial/experiment.json    what is measured: a run goes on only with the same
    RUN.partial/block-00012/       the rows of one prompt in every way
    RUN/                           the whole run; RUN.partial goes when it is there

What a killed run had finished stays and is not measured again.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from spectool import ArtifactError
from spectool.artifacts.benchmark import FORMAT, PLAIN, VERSION, Benchmark, Row, read_block, write_block
from spectool.artifacts.manifest import MANIFEST, Manifest, read_manifest, seal
from spectool.artifacts.replacing import check_replaceable, writing
from spectool.artifacts.tokenizer import Tokenizer
from spectool.artifacts.tokenizer_source import open_tokenizer
from spectool.bench.energy import Meter, metering
from spectool.bench.experiment import DrafterSpec, Experiment, ModelSpec
from spectool.bench.machine import machine
from spectool.bench.measuring import Target, Way
from spectool.bench.prompt_sources import Prompt, encoded, fingerprint, load_prompts
from spectool.build.count_work import read_json, write_json
from spectool.runtime.loading import load_drafter, load_model

_EXPERIMENT, _SIZES = "experiment.json", "sizes.json"


@dataclass(frozen=True, slots=True)
class Progress:
    """Told how far a run is.

    Attributes:
        begin: Called once with the generations that were measured before, and with all.
        step: Called after each generation.
        say: Called with a phrase when something begins.
    """

    begin: Callable[[int, int], object] = lambda done, total: None
    step: Callable[[], object] = lambda: None
    say: Callable[[str], object] = lambda phrase: None


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
    check_replaceable(out, FORMAT)
    work = out.with_name(f"{out.name}.partial")
    tokenizers = [open_tokenizer(model.path) for model in experiment.models]
    prompts = load_prompts(experiment.prompts, tokenizers[0])
    _take_up(work, out, {"experiment": experiment.described(), "prompts": fingerprint(prompts)})
    if (out / MANIFEST).exists():
        return Benchmark(out)
    blocks = [
        (place, repetition, prompt)
        for place, model in enumerate(experiment.models)
        for repetition in range(experiment.repetitions)
        for prompt in prompts
        if prompt.language in (model.languages or (prompt.language,))
    ]
    missing = [number for number in range(len(blocks)) if not _folder(work, number).exists()]
    generations = [_ways(experiment, experiment.models[place], prompt.language) for place, _, prompt in blocks]
    left = sum(generations[number] for number in missing)
    progress.begin(sum(generations) - left, sum(generations))
    with metering(watts) as meter:
        for place, model in enumerate(experiment.models):
            mine = [number for number in missing if blocks[number][0] == place]
            if mine:
                progress.say(f"loading {model.name}")
                measuring = _Measuring(experiment, model, meter, progress)
                _note_sizes(work, measuring.sizes())
                measuring.warm_up(blocks[mine[0]][2])
                for number in mine:
                    _, repetition, prompt = blocks[number]
                    measuring.block(work, number, prompt, repetition)
        power = {"source": meter.source, "watts": meter.watts}
    return _finish(work, out, experiment, tokenizers, prompts, len(blocks), power)


def _take_up(work: Path, out: Path, experiment: Row) -> None:
    """Make the folder of a run that is under way, or check that it is of the same experiment."""
    advice = "Name another -o, or remove it"
    if (out / MANIFEST).exists():
        if read_manifest(out).inputs.get("experiment") != experiment:
            raise ArtifactError(f"{out}: is the run of another experiment. {advice}")
        return
    file = work / _EXPERIMENT
    if not file.exists():
        work.mkdir(parents=True, exist_ok=True)
        write_json(file, experiment)
    elif read_json(file) != experiment:
        raise ArtifactError(f"{work}: holds the beginning of another experiment's run. {advice}")


def _ways(experiment: Experiment, model: ModelSpec, language: str) -> int:
    """Count plain decoding, and every combination of drafter, strategy and draft length for prompts in a language."""
    drafters = model.drafters_for(language)
    return 1 + len(experiment.num_draft_tokens) * sum(len(drafter.strategies) or 1 for drafter in drafters)


class _Measuring:
    """A loaded model with its drafters."""

    def __init__(self, experiment: Experiment, spec: ModelSpec, meter: Meter, progress: Progress) -> None:
        self._spec, self._seed, self._progress = spec, experiment.seed, progress
        self._model, self._tokenizer = load_model(spec.path)
        stop = frozenset(() if experiment.ignore_eos else self._tokenizer.eos_token_ids)
        self._target = Target(spec.name, self._model, stop, experiment.tokens, experiment.temperature, meter)
        self._drafts: dict[str, Any] = {}  # loaded once, whatever they are used for
        self._ways: list[tuple[DrafterSpec | None, Way]] = [(None, Way(PLAIN, None, 0, None))]
        for drafter in spec.drafters:
            progress.say(f"loading {drafter.name}")
            if drafter.draft_model is not None and drafter.draft_model not in self._drafts:
                self._drafts[drafter.draft_model] = load_model(drafter.draft_model)
            for strategy in drafter.strategies or (None,):
                loaded = load_drafter(
                    self._tokenizer,
                    dictionary=drafter.dictionary,
                    draft_model=None if drafter.draft_model is None else self._drafts[drafter.draft_model],
                    alignment=drafter.alignment,
                    strategy=strategy,
                    history=drafter.history,
                )
                for k in experiment.num_draft_tokens:
                    self._ways.append((drafter, Way(drafter.name, strategy, k, loaded)))

    def sizes(self) -> Row:
        """Return the bytes of weights, of the model and of each drafter's."""
        drafts = {
            drafter.name: _bytes(self._drafts[drafter.draft_model][0])
            for drafter in self._spec.drafters
            if drafter.draft_model is not None
        }
        return {"sizes": {self._spec.name: _bytes(self._model)}, "draft_sizes": drafts}

    def warm_up(self, prompt: Prompt) -> None:
        self._progress.say("warming up")
        self._target.warm_up(encoded(prompt, self._tokenizer), self._ways_for(prompt))

    def _ways_for(self, prompt: Prompt) -> list[Way]:
        drafters = [None, *self._spec.drafters_for(prompt.language)]
        return [way for drafter, way in self._ways if drafter in drafters]

    def block(self, work: Path, number: int, prompt: Prompt, repetition: int) -> None:
        """Measure a block and put it in its place, all of it or nothing."""
        labels = {"language": prompt.language, "kind": prompt.kind, "prompt": prompt.name, "repetition": repetition}
        ids = encoded(prompt, self._tokenizer)
        block = self._target.measure(
            number, ids, self._ways_for(prompt), (self._seed, number), labels, self._progress.step
        )
        unfinished = work / "block.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        write_block(unfinished, block.generations, block.cycles)
        unfinished.rename(_folder(work, number))


def _bytes(model: Any) -> int:
    weights: dict[str, Any] = dict(tree_flatten(model.parameters()))
    return sum(weight.nbytes for weight in weights.values())


def _note_sizes(work: Path, sizes: Row) -> None:
    """Add sizes to those that are known: a resumed run may load no model."""
    known = read_json(work / _SIZES) or {"sizes": {}, "draft_sizes": {}}
    write_json(work / _SIZES, {part: {**known[part], **sizes[part]} for part in known})


def _folder(work: Path, number: int) -> Path:
    return work / f"block-{number:05}"


def _finish(
    work: Path,
    out: Path,
    experiment: Experiment,
    tokenizers: Sequence[Tokenizer],
    prompts: Sequence[Prompt],
    blocks: int,
    power: Row,
) -> Benchmark:
    """Put all blocks together, seal them, and remove what they were put together from."""
    read = [read_block(_folder(work, number)) for number in range(blocks)]
    generations = [row for block in read for row in block.generations]
    began = datetime.fromtimestamp((work / _EXPERIMENT).stat().st_mtime, UTC)
    statistics = {
        "machine": machine(),
        "began": began.isoformat(timespec="seconds"),
        "seconds": round(sum(row["seconds"] + row["prompt_seconds"] for row in generations), 3),
        "blocks": blocks,
        "prompts": len(prompts),
        "generations": len(generations),
        "different": sum(row["first_difference"] is not None for row in generations),
        **read_json(work / _SIZES),
        "power": power,
    }
    roles = {
        model.name: {"name": model.path, "fingerprint": tokenizer.fingerprint, "size": tokenizer.size}
        for model, tokenizer in zip(experiment.models, tokenizers, strict=True)
    }
    inputs = {"experiment": read_json(work / _EXPERIMENT)}
    with writing(out) as partial:
        write_block(partial, generations, (row for block in read for row in block.cycles))
        seal(partial, Manifest(FORMAT, VERSION, experiment.described(), roles, inputs, statistics))
    shutil.rmtree(work)
    return Benchmark(out)
