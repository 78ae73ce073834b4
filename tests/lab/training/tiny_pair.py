"""Random models with the demo's tokenizers, small enough to tune in a second, and the command on them."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from click.testing import CliRunner, Result
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import save_config, save_model

from spectool.cli import main
from spectool.lab.training.options import shape_of
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

TINY = ["--length", "24", "--batch", "2", "--valid-rows", "4", "--rate", "0.01"]
CORPORA = ["--corpus", "pl=sample:pl", "--corpus", "uk=sample:uk"]


def tokenizer_of(name: Any) -> Tokenizer:
    return open_tokenizer(demo_path(name))


def random_model(tokenizer: Any = "target", hidden: int = 16, seed: int = 0, scale: float = 1.0) -> Any:
    """A random Llama model over the ids of a demo tokenizer; ``scale`` sharpens what it says."""
    mx.random.seed(seed)
    model = Model(ModelArgs.from_dict(config_of(tokenizer, hidden)))
    model.model.embed_tokens.weight = scale * mx.random.normal(model.model.embed_tokens.weight.shape)
    mx.eval(model.parameters())
    return model


def config_of(tokenizer: Any, hidden: int) -> dict[str, Any]:
    opened = tokenizer_of(tokenizer)
    return {
        **shape_of("1m"),
        "hidden_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 2 * hidden,
        "vocab_size": opened.size,
        "bos_token_id": opened.roles.bos,
        "eos_token_id": next(iter(opened.roles.eos), None),
        "tie_word_embeddings": True,
    }


def stored(folder: Path, tokenizer: Any = "target", hidden: int = 16, seed: int = 0, scale: float = 1.0) -> Path:
    """Write such a model for mlx-lm to load."""
    model = random_model(tokenizer, hidden, seed, scale)
    save_model(folder, model)
    save_config(config_of(tokenizer, hidden), folder / "config.json")
    for path in demo_path(tokenizer).glob("tokenizer*"):
        shutil.copyfile(path, folder / path.name)
    return folder


def weights_hash(model: Any) -> str:
    """SHA-256 of all weights as they are in memory."""
    digest = hashlib.sha256()
    for name, weight in sorted(tree_flatten(model.parameters())):
        digest.update(f"{name} {weight.dtype} {weight.shape}".encode())
        digest.update(np.array(weight.view(mx.uint8)).tobytes())
    return digest.hexdigest()


def run(draft: Path, target: Path, *arguments: object, corpora: list[str] = CORPORA) -> Result:
    command = [
        "lab",
        "tune-draft",
        "--draft",
        str(draft),
        "--target",
        str(target),
        *corpora,
        *TINY,
        *map(str, arguments),
    ]
    return CliRunner().invoke(main, command)


def tuned(draft: Path, target: Path, *arguments: object, corpora: list[str] = CORPORA) -> dict[str, Any]:
    """Run the command; return what ``--json`` prints."""
    result = run(draft, target, *arguments, "--json", corpora=corpora)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found
