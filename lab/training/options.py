"""What a training from scratch is asked: the model's shape, its steps, and how its text is read.

A size by name (``4m``) is enough; a ``config.json`` says more. A shape is a Llama configuration as mlx-lm reads it,
without what the tokenizer decides.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click

from spectool import SpectoolError
from spectool.artifacts.options import option
from spectool.lab.training.run_options import RunOptions


class Size(NamedTuple):
    """A shape by name, with a training step that suits it."""

    hidden_size: int  # width of the residual stream
    num_hidden_layers: int  # number of layers
    num_attention_heads: int  # attention heads of each
    intermediate_size: int  # width of the feed-forward part
    rate: float  # peak learning rate
    step_tokens: int  # tokens predicted in a step
    length: int  # tokens predicted in a row of it


# Rates and steps: 4m was tried, the others follow it.
SIZES: Mapping[str, Size] = {
    "1m": Size(96, 2, 3, 256, 4e-3, 1024, 256),
    "4m": Size(224, 2, 4, 768, 3e-3, 1024, 256),
    "12m": Size(384, 4, 6, 1024, 2e-3, 4096, 256),
    "30m": Size(512, 8, 8, 1408, 1e-3, 16_384, 512),
    "100m": Size(768, 12, 12, 2048, 6e-4, 32_768, 1024),
}
_DEFAULTS: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
_NUMBERS = Size._fields[:4]
_NOT_OF_THE_SHAPE = (
    *("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("_name_or_path", "dtype", "quantization", "quantization_config", "torch_dtype", "transformers_version"),
)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """Arguments of a training; those of the command have their help."""

    shape: dict[str, Any]  # a Llama configuration without the vocabulary; see `shape_of`
    rate: float  # peak learning rate
    step_tokens: int  # tokens predicted in a step
    length: int  # tokens predicted in a row; in the first two thirds of the steps half as many
    tokens: int | None = option(
        click.IntRange(1),
        "Tokens of the corpora to use, from documents in random order; by default as many as the steps take.",
        None,
        metavar="N",
    )
    min_count: int = option(
        click.IntRange(0), "Ids that occur less often share one row of the vocabulary while training.", 3
    )
    softmax_classes: int = option(
        click.IntRange(0), "Classes in the softmax of a step, the others by sample; 0 for all.", 3584, metavar="N"
    )
    boundary: str | None = option(
        str, "Token between documents; by default BOS before and EOS after.", None, metavar="TOKEN"
    )
    valid_tokens: int = option(click.IntRange(1), "Held-out tokens of each corpus.", 20_000)

    @property
    def text_tokens(self) -> int:
        """Tokens of text to train on; by default so many that the steps see none twice."""
        return self.tokens or self.steps * self.step_tokens + 3 * (self.step_tokens + 2 * self.length)


def shape_of(size: str, config: Path | None = None) -> dict[str, Any]:
    """Return a Llama configuration without the vocabulary: of a size, one of `SIZES`, or from a ``config.json``.

    Raises:
        SpectoolError: The file is not readable or of another type of model, or its numbers do not fit together.
    """
    if config is None:
        return {**_DEFAULTS, **dict(zip(_NUMBERS, SIZES[size], strict=False))}
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SpectoolError(f"{config}: not readable as JSON ({error}). Give the config.json of a model") from error
    kind = found.get("model_type") if isinstance(found, dict) else type(found).__name__
    if kind != "llama":
        raise SpectoolError(f"{config}: expected model_type llama, got {kind}. Give another --config, or a --size")
    if missing := [name for name in _NUMBERS if not isinstance(found.get(name), int) or found[name] < 1]:
        raise SpectoolError(
            f"{config}: expected whole numbers above 0 for {', '.join(missing)}. Add them, or give a --size"
        )
    hidden, heads = found["hidden_size"], found["num_attention_heads"]
    key_heads = found.get("num_key_value_heads") or heads
    if found.get("head_dim") is None and (hidden % heads or hidden // heads % 2):
        raise SpectoolError(
            f"{config}: expected a hidden_size of an even number for each head, got {hidden} for {heads} heads; "
            f"{max(1, round(hidden / heads / 2)) * 2 * heads} would do"
        )
    if heads % key_heads:
        raise SpectoolError(
            f"{config}: expected num_attention_heads to be a multiple of num_key_value_heads, got {heads} and "
            f"{key_heads}"
        )
    return {**_DEFAULTS, **{name: value for name, value in found.items() if name not in _NOT_OF_THE_SHAPE}}


def check(options: TrainOptions, processes: int) -> None:
    """Check that rows fill a step, divide among the processes and fit into the model's context.

    Raises:
        SpectoolError: They do not.
    """
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
