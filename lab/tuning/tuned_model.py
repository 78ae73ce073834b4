"""Models that a tuning opens, and the one that it writes.

All weights are trained in float32 and stored in the precision that they had. A quantized draft is dequantized first,
and stays so.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_map

from spectool.lab.mlx_lm_training import dequantize_model, hf_repo_to_path, save_config
from spectool.lab.mlx_lm_training import save_model as save_weights
from spectool.runtime.loading import load_model
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_TOKENIZER_FILES = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "*.jinja"),
    *("generation_config.json", "chat_template.json"),
)


class OpenedModel(NamedTuple):
    """A model, and where it came from."""

    name: str  # directory or hub id
    path: Path  # its directory
    model: Any  # an mlx-lm model
    tokenizer: Tokenizer

    @classmethod
    def load(cls, name: str) -> "OpenedModel":
        """Load a model by directory or hub id.

        Raises:
            RuntimeUnsupported: mlx-lm cannot load it.
        """
        model, tokenizer = load_model(name)
        path = Path(name) if Path(name).is_dir() else Path(hf_repo_to_path(name))
        return cls(name, path, model, open_tokenizer(tokenizer))

    @property
    def identity(self) -> dict[str, Any]:
        """Its name, its tokenizer, and names, sizes and times of its weight files, as JSON values."""
        found = [(path.name, path.stat()) for path in sorted(self.path.glob("*.safetensors"))]
        files = [[name, at.st_size, int(at.st_mtime)] for name, at in found]
        return {"name": self.name, "files": files, "tokenizer": self.tokenizer.fingerprint}


class Trainable:
    """A draft made ready for training.

    Attributes:
        model: The opened model, changed in place.
        unpacked: Whether it was quantized and is dequantized now.
    """

    def __init__(self, opened: OpenedModel) -> None:
        """Make ``opened`` ready."""
        self._opened = opened
        self._config: dict[str, Any] = json.loads((opened.path / "config.json").read_text(encoding="utf-8"))
        self.unpacked = self._config.pop("quantization", None) is not None
        self._config.pop("quantization_config", None)
        self.model = dequantize_model(opened.model) if self.unpacked else opened.model
        self.model.unfreeze()
        self._types = tree_map(lambda weight: weight.dtype, self.model.parameters())
        self.model.set_dtype(mx.float32)
        self.model.train()
        mx.eval(self.model.parameters())

    def write(self, folder: Path) -> None:
        """Write the model for `mlx_lm.load`; it cannot be trained after that."""
        self.model.eval()
        self.model.update(tree_map(lambda weight, kind: weight.astype(kind), self.model.parameters(), self._types))
        save_weights(folder, self.model)
        save_config(self._config, folder / "config.json")
        for pattern in _TOKENIZER_FILES:
            for path in self._opened.path.glob(pattern):
                shutil.copyfile(path, folder / path.name)
