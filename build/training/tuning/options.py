"""The arguments of a tuning: what fits together, and what a model depends on."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from spectool import SpectoolError
from spectool.build.training.examples.pairing import Pairing
from spectool.build.training.examples.tasks import Supervision
from spectool.build.training.tuning.corrective import Objective
from spectool.build.training.tuning.tuned_model import Opened
from spectool.corpora import Corpus

_VERSION = 4  # of the way in which arguments make a model


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Arguments of a tuning.

    Attributes:
        steps: Steps to take.
        rate: Peak learning rate.
        batch: Rows of every task in a step.
        seed: Seeds the order of the rows, the target's sampling, LoRA's layers and the coins of the acceptance proxy.
        on: What the draft learns from.
        objective: How the tasks' gradients become one.
        weigh_by: What a task's distance to the best one is measured in.
        normalize: Whether their weights are scaled to sum to 1.
        lora: Rank of LoRA's layers; None to train all weights.
        length: Tokens in a row.
        prompt_tokens: The target's tokens in a prompt.
        max_tokens: Tokens that it goes on for.
        temperature: Of that.
        completions: Prompts of each task.
        valid_rows: Rows of each task to measure on.
        measure_every: Steps between two measurements; None for a tenth of all.
        checkpoint_every: Steps between two checkpoints; None for a twentieth of all.
    """

    steps: int
    rate: float = 1e-4
    batch: int = 8
    seed: int = 0
    on: Supervision = "text"
    objective: Objective = "mean"
    weigh_by: Literal["cross-entropy", "kl"] = "cross-entropy"
    normalize: bool = False
    lora: int | None = None
    length: int = 128
    prompt_tokens: int = 32
    max_tokens: int = 64
    temperature: float = 1.0
    completions: int = 512
    valid_rows: int = 64
    measure_every: int | None = None
    checkpoint_every: int | None = None

    @property
    def intervals(self) -> tuple[int, int]:
        """Steps between two measurements, and between two checkpoints."""
        tenth, twentieth = max(1, self.steps // 10), max(1, self.steps // 20)
        return self.measure_every or tenth, self.checkpoint_every or twentieth


def check(
    draft: Opened, target: Opened, corpora: dict[str, Corpus], pairing: Pairing | None, options: TuneOptions
) -> None:
    """Check that the objective has tasks to weigh, and the supervision what it needs.

    Raises:
        SpectoolError: It has not.
    """
    if options.objective == "s-cdf" and len(corpora) < 2:
        raise SpectoolError(
            "--objective s-cdf weighs tasks by their distance to the best one: expected two or more --corpus, got "
            f"{len(corpora)}. Give a --corpus NAME=SPEC for each task, or --objective mean"
        )
    if options.weigh_by == "kl" and options.on != "distribution":
        raise SpectoolError(
            f"--weigh-by kl needs the target's probabilities: expected --on distribution, got --on {options.on}. Give "
            "--on distribution, or --weigh-by cross-entropy"
        )
    if options.on == "distribution" and pairing is None:
        raise SpectoolError(
            f"{draft.name}: has other ids than {target.name}, so that their distributions cannot be compared. Align "
            f"them (spectool align --draft {draft.name} --target {target.name} -o X.align) and give --alignment "
            "X.align, or give --on completions"
        )


def key_of(
    draft: Opened,
    target: Opened,
    corpora: dict[str, Corpus],
    options: TuneOptions,
    alignment: Path | None,
    reading: dict[str, Any],
) -> dict[str, Any]:
    """Return what the result depends on, as JSON values."""
    chosen = asdict(options)
    del chosen["checkpoint_every"]
    chosen["measure_every"] = options.intervals[0]
    models = {"draft": draft, "target": target}
    key = {
        "command": "tune-draft",
        **chosen,
        **{
            role: {"name": m.name, "files": m.files, "tokenizer": m.tokenizer.fingerprint} for role, m in models.items()
        },
        "alignment": None if alignment is None else str(alignment),
        "corpora": {name: corpus.spec for name, corpus in corpora.items()},
        "files": [list(file) for corpus in corpora.values() for file in corpus.describe_inputs()],
        "reading": reading,
        "version": _VERSION,
    }
    plain: dict[str, Any] = json.loads(json.dumps(key))
    return plain
