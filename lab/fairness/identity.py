"""What the figures of a measurement depend on: models, artifacts, and the versions of what reads them."""

import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from spectool import __version__
from spectool.artifacts.container import open_container

_LOOKED_AT = 1 << 20  # bytes at both ends of a file of weights


def weight_bytes(model: Any) -> int:
    """Bytes of an MLX model's weights."""
    weights: dict[str, Any] = dict(tree_flatten(model.parameters()))
    return sum(weight.nbytes for weight in weights.values())


def contents(models: Iterable[str], artifacts: Iterable[Path]) -> dict[str, str | None]:
    """Hashes of what lies at these paths, and the versions of what reads it.

    Two builds of a dictionary, or two trainings of a model, may lie under one path, so a path alone does not say what
    was measured. Artifacts count by the hashes in their headers, weights by their sizes, beginnings and ends. Models
    may be hub ids.
    """
    return {
        **{f"model {path}": _files_hash(Path(path)) for path in models},
        **{f"artifact {path}": open_container(path).sha256 for path in artifacts},
        "mlx": version("mlx"),
        "mlx_lm": version("mlx-lm"),
        "spectool": __version__,
    }


def _files_hash(path: Path) -> str | None:
    """Hash of a model's files; None for a model on the hub."""
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
