"""What a run is of, in full: a run goes on, and is taken for measured, only where all of it is the same.

Two builds of a dictionary, or two trainings of a model, may lie under one path. So artifacts count by the hashes in
their manifests, and weights by their sizes, beginnings and ends.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spectool.artifacts.manifest import MANIFEST
from spectool.measure.bench.experiment import Experiment
from spectool.measure.bench.machine import versions
from spectool.measure.bench.prompt_sources import Prompt, fingerprint

_LOOKED_AT = 1 << 20  # bytes at both ends of a file of weights


def identity(experiment: Experiment, prompts: Sequence[Prompt], watts: float | None) -> dict[str, Any]:
    """Return what the rows of a run depend on, as JSON has it.

    Args:
        experiment: What is measured.
        prompts: Its prompts.
        watts: Stated power.
    """
    drafters = [drafter for model in experiment.models for drafter in model.drafters]
    models = [*(model.path for model in experiment.models), *(drafter.draft_model for drafter in drafters)]
    artifacts = [path for drafter in drafters for path in drafter.artifacts]
    return {
        "experiment": experiment.described(),
        "prompts": fingerprint(prompts),
        "stated watts": watts,
        **{f"model {path}": _weights(Path(path)) for path in models if path is not None},
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
