"""The smallest training that there is, as the command and as a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from click.testing import CliRunner, Result
from mlx_lm.models.llama import Model, ModelArgs

from spectool.build.training.curve import CURVE, Point, read_curve
from spectool.build.training.scratch.shapes import shape_of
from spectool.build.training.vocabulary_classes import Classes
from spectool.cli import main
from spectool.runtime.demo_models import demo_path

TOKENIZER = str(demo_path("target"))
OTHER = str(demo_path("other"))
SHAPE = ["--hidden", "32", "--layers", "1", "--heads", "2", "--intermediate", "64"]
STEP = ["--step-tokens", "128", "--length", "32", "--rate", "0.01"]
TINY = ["train-draft", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", *SHAPE, *STEP]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*TINY, *map(str, arguments)])


def trained(*arguments: object) -> dict[str, Any]:
    """Run the command; return what ``--json`` prints."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def error_of(result: Result) -> str:
    assert result.exit_code == 1, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1 and "Traceback" not in result.output
    return lines[0]


def started(*arguments: object) -> subprocess.Popen[str]:
    """Start the command in a process of its own, whose stderr can be read line by line."""
    command = [sys.executable, "-m", "spectool.cli", *TINY, *map(str, arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def curve(out: Path) -> list[Point]:
    """The curve of a model without its times, which no run repeats."""
    return [point._replace(seconds=0.0) for point in read_curve(out / CURVE)]


def tiny_model(classes: Classes, tied: bool = True, seed: int = 0) -> tuple[Model, dict[str, Any]]:
    """A random model over classes whose logits differ by several units, and its configuration."""
    shape = shape_of("1m", hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    config = {**shape, "tie_word_embeddings": tied, "vocab_size": classes.number}
    mx.random.seed(seed)
    model = Model(ModelArgs.from_dict(config))
    table = model.model.embed_tokens if tied else model.lm_head
    table.weight = 0.5 * mx.random.normal(table.weight.shape)
    mx.eval(model.parameters())
    return model, config


def random_stream(ids: int, tokens: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Tokens by Zipf's law: some ids often, many never."""
    return (np.minimum(rng.zipf(1.3, tokens), ids) - 1).astype(np.int32)
