"""The stage behind ``spectool train-draft``: text and a tokenizer in, a small model out.

Text becomes a stream of ids (`text`), ids become classes (`vocabulary_classes`), steps are taken
(`training`) on rows that the seed and the step decide (`feed`), and the model is written over all
ids (`export`) and measured as mlx-lm loads it (`bits_per_byte`). What lies where until then is in
`work`. Several processes started by ``mlx.launch`` share every step; the first one writes.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np

from spectool import SpectoolError
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.artifacts.work import work_path, working
from spectool.build.inputs import Progress, Reader
from spectool.build.training import checkpoints
from spectool.build.training.curve import CURVE, Point, read_curve, write_curve
from spectool.build.training.feed import Feed, tokens_needed
from spectool.build.training.interruption import deferred_interrupt
from spectool.build.training.scratch.bits_per_byte import CodeLength, code_lengths, total
from spectool.build.training.scratch.export import save_model, save_tokenizer
from spectool.build.training.scratch.text import Boundaries, Source, Text, boundaries_of, load, prepare
from spectool.build.training.steps import Trainer, any_of, make_optimizer
from spectool.build.training.vocabulary_classes import classes_of
from spectool.build.training.work import CHECKPOINT, finish, finished
from spectool.runtime.host.training import Model, ModelArgs

_VERSION = 3  # of the way in which arguments make a model


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Arguments of a training.

    Attributes:
        shape: A Llama configuration without the vocabulary; see `shapes.shape_of`.
        steps: Steps to take.
        rate: Peak learning rate.
        step_tokens: Tokens predicted in a step.
        length: Tokens predicted in a row; in the first two thirds of the steps half as many.
        seed: Seeds the weights and the order of the text.
        tokens: Tokens of the corpora to train on; None for as many as the steps take.
        min_count: Ids seen fewer times share one row.
        softmax_classes: Classes in a step's softmax; 0 for all.
        boundary: String of the token between documents; None for BOS and EOS.
        valid_tokens: Held-out tokens of each corpus to measure on.
        measure_every: Steps between two measurements; None for a tenth of all.
        checkpoint_every: Steps between two checkpoints; None for a twentieth of all.
    """

    shape: dict[str, Any]
    steps: int
    rate: float
    step_tokens: int
    length: int
    seed: int = 0
    tokens: int | None = None
    min_count: int = 3
    softmax_classes: int = 3584
    boundary: str | None = None
    valid_tokens: int = 20_000
    measure_every: int | None = None
    checkpoint_every: int | None = None

    @property
    def intervals(self) -> tuple[int, int]:
        """Steps between two measurements, and between two checkpoints."""
        tenth, twentieth = max(1, self.steps // 10), max(1, self.steps // 20)
        return self.measure_every or tenth, self.checkpoint_every or twentieth


def train_draft(
    sources: Mapping[str, Source],
    tokenizer: Tokenizer,
    out: Path,
    options: TrainOptions,
    progress: Progress,
    shown: Callable[[Point], None] = lambda point: None,
    reader: Reader = iter,
    reading: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train a model from random weights and write it to ``out``, which `mlx_lm.load` opens.

    The same call goes on where one that was killed had its last checkpoint, with the same numbers
    as without the kill: to the bit on a CPU; an accelerator may add in another order.

    Args:
        sources: Text to train on and to measure on, by name.
        tokenizer: The model's.
        out: Directory of the model, made in one step when all is done. Until then the work lies beside it.
        options: See `TrainOptions`.
        progress: Called with a phrase when something begins.
        shown: Called with every step.
        reader: Iterates over a corpus.
        reading: How the corpora are read, for the record.

    Returns:
        The record that is also written to ``out/training.json``; empty in all processes but the first.

    Raises:
        SpectoolError: Options that do not fit together, text that is too short, another training in the same
            place, or a loss that is no number any more.
        KeyboardInterrupt: Ctrl-C; the step is finished and a checkpoint written before.
    """
    group = mx.distributed.init()
    _check(options, group.size())
    boundaries = boundaries_of(tokenizer, options.boundary)
    key = _key(sources, tokenizer, boundaries, options, group.size(), reading or {})
    first = group.rank() == 0
    record = finished(out, key) if first else None
    if any_of(group, record is not None):
        if first:
            shutil.rmtree(work_path(out), ignore_errors=True)
        progress(f"{out} is finished already; remove it to train it again")
        return record or {}
    with (
        working(out, key, what="training", worth=(CHECKPOINT,), begin_anew=False)
        if first
        else nullcontext(work_path(out)) as work
    ):
        if first:
            limit, seed = key["tokens"], options.seed
            prepare(work, sources, tokenizer, boundaries, limit, options.valid_tokens, seed, progress, reader)
        any_of(group, False)  # the text is there
        run = _Run(tokenizer, options, boundaries, load(work), group, work, progress)
        run.train(shown)
        return run.write(key, out) if first else {}


class _Run:
    """A training in its work directory."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        options: TrainOptions,
        boundaries: Boundaries,
        text: Text,
        group: mx.distributed.Group,
        work: Path,
        progress: Progress,
    ) -> None:
        self._tokenizer, self._options, self._boundaries, self._text = tokenizer, options, boundaries, text
        self._group, self._work, self._progress = group, work, progress
        self._classes = classes_of(np.asarray(text.stream), tokenizer.size, options.min_count)
        end = boundaries.begin if boundaries.end is None else boundaries.end
        ids = {"bos_token_id": boundaries.begin, "eos_token_id": end}
        self._config = {**options.shape, **ids, "vocab_size": self._classes.number}
        mx.random.seed(options.seed)
        self._model = Model(ModelArgs.from_dict(self._config))
        self._optimizer = make_optimizer(self._model)
        self._parameters = sum(weights.size for weights in checkpoints.flat(self._model.parameters()).values())
        self._points: list[Point] = []
        self._spent = 0.0

    def train(self, shown: Callable[[Point], None]) -> None:
        """Take all steps that are missing."""
        options, first = self._options, self._group.rank() == 0
        self._say_what()
        self._go_on()
        steps, step_tokens, length, seed = options.steps, options.step_tokens, options.length, options.seed
        feed = Feed(self._text.stream, steps, step_tokens, length, seed)
        classes, softmax = self._classes, options.softmax_classes
        trainer = Trainer(self._model, self._optimizer, classes, feed, steps, options.rate, softmax, seed, self._group)
        measure_every, save_every = options.intervals
        begun = time.perf_counter() - self._spent
        with deferred_interrupt() as interrupted:
            while len(self._points) < steps:
                step = len(self._points) + 1
                loss, stop = trainer.step(step - 1, interrupted())
                if not math.isfinite(loss):
                    raise SpectoolError(
                        f"the loss of step {step} is {loss}: expected a number. Lower --rate (it is {options.rate:g}), "
                        "with another -o"
                    )
                bits = None
                if first and (step % measure_every == 0 or step == steps):
                    bits = total(code_lengths(self._model, self._text.held_out, length, classes)).bits_per_byte
                self._spent = time.perf_counter() - begun
                self._points.append(Point(step, step * step_tokens, self._spent, loss, bits))
                shown(self._points[-1])
                if first and (stop or step % save_every == 0 or step == steps):
                    self._save()
                if stop:
                    raise KeyboardInterrupt

    def write(self, key: dict[str, Any], out: Path) -> dict[str, Any]:
        """Write the model, measure it as it is stored, and put it in its place."""
        folder = self._work / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._progress("writing and measuring the model")
        stored = save_model(self._model, self._config, self._classes, folder)
        save_tokenizer(self._tokenizer, self._boundaries, folder)
        write_curve(folder / CURVE, self._points)
        _plot(self._points, folder)
        loaded = mlx_lm.load(str(folder))
        measured = code_lengths(loaded[0], self._text.held_out, self._options.length)
        last = self._points[-1]
        record = {
            "arguments": key,
            "seed": self._options.seed,
            "steps": last.step,
            "tokens": last.tokens,
            "seconds": round(last.seconds, 1),
            "loss": last.loss,
            "held_out": {
                **_figures(total(measured), sum(len(text.documents) for text in self._text.held_out.values())),
                "corpora": {
                    name: _figures(found, len(self._text.held_out[name].documents)) for name, found in measured.items()
                },
            },
            "parameters": {"trained": self._parameters, "stored": stored},
            "vocabulary": {
                "common": self._classes.common,
                "rare": self._classes.rare,
                "rare_share_of_text": self._rare_share(),
            },
            "text": {"tokens": len(self._text.stream), "corpora": self._text.inputs},
            "tokenizer": self._tokenizer.identity,
        }
        return finish(folder, out, record)

    def _say_what(self) -> None:
        classes = self._classes
        self._progress(
            f"{self._parameters:,} parameters, {classes.common:,} common ids of {len(classes.of_id):,} "
            f"({self._rare_share():.2%} of the text are others), {len(self._text.stream):,} tokens of text, "
            f"{sum(text.tokens for text in self._text.held_out.values()):,} held out"
        )

    def _rare_share(self) -> float:
        rare = self._classes.of_id[self._text.stream] == self._classes.common
        return float(np.mean(rare))

    def _go_on(self) -> None:
        """Take up the last checkpoint, if there is one."""
        path = self._work / CHECKPOINT
        if path.exists():
            position = checkpoints.load(path, self._model, self._optimizer)
            self._points, self._spent = read_curve(self._work / CURVE)[: position.step], position.seconds
            self._progress(f"going on after step {position.step:,} of {self._options.steps:,}")

    def _save(self) -> None:
        # In this order: the curve may be longer than the checkpoint says, but never shorter.
        write_curve(self._work / CURVE, self._points)
        position = checkpoints.Position(len(self._points), self._spent)
        checkpoints.save(self._work / CHECKPOINT, self._model, self._optimizer, position)


def _figures(measured: CodeLength, documents: int) -> dict[str, Any]:
    return {
        "bits_per_byte": measured.bits_per_byte,
        "nats_per_token": measured.nats_per_token,
        "tokens": measured.tokens,
        "bytes": measured.bytes,
        "documents": documents,
    }


def _plot(points: list[Point], folder: Path) -> None:
    if find_spec("matplotlib") is not None:
        from spectool.build.training.curve_plot import write_plots

        write_plots(points, folder)


def _check(options: TrainOptions, processes: int) -> None:
    """Check that rows fill a step and divide among the processes."""
    share = options.length * processes
    if options.length % 2 or options.step_tokens % share:
        among = f" for each of {processes} processes" if processes > 1 else ""
        raise SpectoolError(
            f"--step-tokens {options.step_tokens}, --length {options.length}: expected an even length, and a step of "
            f"whole rows{among}. Give an even --length, and --step-tokens "
            f"{max(share, options.step_tokens // share * share)}"
        )
    context = options.shape["max_position_embeddings"]
    if options.length > context:
        raise SpectoolError(f"--length {options.length}: expected at most the model's context, {context}. Give less")


def _key(
    sources: Mapping[str, Source],
    tokenizer: Tokenizer,
    boundaries: Boundaries,
    options: TrainOptions,
    processes: int,
    reading: dict[str, Any],
) -> dict[str, Any]:
    """Return what the result depends on, as JSON values."""
    chosen = asdict(options)
    del chosen["checkpoint_every"]
    chosen["tokens"] = options.tokens or tokens_needed(options.steps, options.step_tokens, options.length)
    chosen["measure_every"] = options.intervals[0]
    key = {
        **chosen,
        "boundaries": asdict(boundaries),
        "tokenizer": tokenizer.fingerprint,
        "corpora": {
            name: {
                "corpus": source.corpus.spec,
                "valid": None if source.valid is None else source.valid.spec,
                "weight": source.weight,
                "files": [
                    list(file) for text in (source.corpus, source.valid) if text for file in text.describe_inputs()
                ],
            }
            for name, source in sources.items()
        },
        "reading": reading,
        "processes": processes,
        "version": _VERSION,
    }
    plain: dict[str, Any] = json.loads(json.dumps(key))
    return plain
