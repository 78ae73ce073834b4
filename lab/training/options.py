"""The options of both trainings, and the shapes of models that are trained from scratch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from spectool import SpectoolError


class Size(NamedTuple):
    """A shape by name, with a training step that suits it."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int  # width of the feed-forward part
    rate: float  # peak learning rate
    step_tokens: int  # tokens predicted in a step
    length: int  # tokens predicted in a row of it


# The rate and step of 4m were tried; the others follow it.
SIZES: Mapping[str, Size] = {
    "1m": Size(96, 2, 3, 256, 4e-3, 1024, 256),
    "4m": Size(224, 2, 4, 768, 3e-3, 1024, 256),
    "12m": Size(384, 4, 6, 1024, 2e-3, 4096, 256),
}
_CONTEXT = 4096
Objective = Literal["mean", "s-cdf"]
OBJECTIVES = get_args(Objective)


def shape_of(size: str) -> dict[str, Any]:
    """The Llama configuration of one of `SIZES` as mlx-lm reads it, without what the tokenizer decides."""
    shared = {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": _CONTEXT,
        "model_type": "llama",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    return {**shared, **dict(zip(Size._fields[:4], SIZES[size], strict=False))}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of any training."""

    steps: int
    measure_every: int | None = None  # steps between two measurements; by default a tenth of all
    checkpoint_every: int | None = None  # steps between two checkpoints; by default a twentieth of all
    seed: int = 0

    @property
    def intervals(self) -> tuple[int, int]:
        """Steps between two measurements, and between two checkpoints."""
        tenth, twentieth = max(1, self.steps // 10), max(1, self.steps // 20)
        return self.measure_every or tenth, self.checkpoint_every or twentieth

    def key(self, **more: Any) -> dict[str, Any]:
        """What a result depends on, as JSON values: these options except the checkpoints, and ``more``."""
        chosen = {**asdict(self), "measure_every": self.intervals[0], **more}
        del chosen["checkpoint_every"]
        plain: dict[str, Any] = json.loads(json.dumps(chosen))
        return plain


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """Options of a training from scratch."""

    shape: dict[str, Any]  # a Llama configuration without the vocabulary, from `shape_of`
    rate: float  # peak learning rate
    step_tokens: int  # tokens predicted in a step
    length: int  # tokens predicted in a row; half as many in the first two thirds of the steps
    min_count: int = 3  # ids that occur less often share one row of the vocabulary while training
    softmax_classes: int = 3584  # classes in the softmax of a step; 0 for all
    valid_tokens: int = 20_000  # held-out tokens of each corpus

    @property
    def text_tokens(self) -> int:
        """Tokens of text to train on: enough that no step sees a token twice."""
        return self.steps * self.step_tokens + 3 * (self.step_tokens + 2 * self.length)


def check_training(options: TrainOptions) -> None:
    """Check that whole rows fill a step and fit into the model's context.

    Raises:
        SpectoolError: They do not.
    """
    if options.length % 2 or options.step_tokens % options.length:
        raise SpectoolError(
            f"--step-tokens {options.step_tokens}, --length {options.length}: expected an even length, and a step of "
            "whole rows. Give an even --length, and --step-tokens "
            f"{max(options.length, options.step_tokens // options.length * options.length)}"
        )
    if options.length > _CONTEXT:
        raise SpectoolError(f"--length {options.length}: expected at most the model's context, {_CONTEXT}. Give less")


@dataclass(frozen=True, kw_only=True)
class TuneOptions(RunOptions):
    """Options of a tuning."""

    objective: Objective = "mean"
    rate: float = 1e-4  # peak learning rate
    batch: int = 8  # rows of each task in a step
    length: int = 128  # tokens of a row of text, at most
    valid_rows: int = 64  # held-out rows of each task
