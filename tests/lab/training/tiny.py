"""The smallest training that there is, as the command and as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.llama import Model, ModelArgs

from spectool.lab.training.classes import Classes
from spectool.lab.training.options import shape_of
from spectool.lab.training.run import CURVE, Point, TrainingRun, read_table
from spectool.runtime.demo_models import demo_path
from spectool.tests import running as commands

TOKENIZER = str(demo_path("target"))
OTHER = str(demo_path("other"))
STEP = ["--step-tokens", "128", "--length", "32", "--rate", "0.01"]
TINY = ["lab", "train-draft", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", "--size", "1m", *STEP]


run = partial(commands.run, *TINY)
trained = partial(commands.figures, *TINY)


def started(*arguments: object) -> subprocess.Popen[str]:
    """Start the command in a process of its own, whose stderr can be read line by line."""
    command = [sys.executable, "-m", "spectool.cli", *TINY, *map(str, arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@contextmanager
def interrupted_at(step: int) -> Iterator[None]:
    """Interrupt a training where it would write the checkpoint of ``step``; its tables are there by then."""
    save = TrainingRun._save

    def fail(run: Any, path: Path, done: int) -> None:
        if done == step:
            raise KeyboardInterrupt
        save(run, path, done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "_save", fail)
        yield


def curve(out: Path) -> list[Point]:
    """The curve of a model without its times, which no run repeats."""
    return [point._replace(seconds=0.0) for point in read_table(out / CURVE, Point)]


def tiny_model(classes: Classes, tied: bool = True, seed: int = 0) -> tuple[Model, dict[str, Any]]:
    """A random model over classes whose logits differ by several units, and its configuration."""
    config = {**shape_of("1m"), "tie_word_embeddings": tied, "vocab_size": classes.number}
    mx.random.seed(seed)
    model = Model(ModelArgs.from_dict(config))
    table = model.model.embed_tokens if tied else model.lm_head
    table.weight = 0.5 * mx.random.normal(table.weight.shape)
    mx.eval(model.parameters())
    return model, config


def random_stream(ids: int, tokens: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Tokens by Zipf's law: some ids often, many never."""
    return (np.minimum(rng.zipf(1.3, tokens), ids) - 1).astype(np.int32)
