"""Models that a tuning opens, and the one that it writes.

All weights are trained in float32 and stored in the precision that they had; a quantized draft is dequantized
first, and stored so. With LoRA (mlx-lm's own layers) the weights stay as they are until the model is written,
when what was learned is added to them.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_map, tree_unflatten

from spectool.runtime.host.training import dequantize_model, hf_repo_to_path, linear_to_lora_layers, save_config
from spectool.runtime.host.training import save_model as save_weights
from spectool.runtime.models import load_model
from spectool.tokenization import Tokenizer, open_tokenizer

_TOKENIZER_FILES = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "*.jinja"),
    *("generation_config.json", "chat_template.json"),
)
_SCALE = 20.0  # of what LoRA adds, as in mlx-lm


class OpenedModel(NamedTuple):
    """A model, and where it came from."""

    name: str  # directory or hub id
    path: Path  # its directory
    model: Any  # an mlx-lm model
    tokenizer: Tokenizer

    @property
    def identity(self) -> dict[str, Any]:
        """Its name, its tokenizer, and names, sizes and times of its weight files, as JSON values."""
        found = [(path.name, path.stat()) for path in sorted(self.path.glob("*.safetensors"))]
        files = [[name, at.st_size, int(at.st_mtime)] for name, at in found]
        return {"name": self.name, "files": files, "tokenizer": self.tokenizer.fingerprint}


def open_model(name: str) -> OpenedModel:
    """Load a model by directory or hub id.

    Raises:
        RuntimeUnsupported: mlx-lm cannot load it.
    """
    model, tokenizer = load_model(name)
    path = Path(name) if Path(name).is_dir() else Path(hf_repo_to_path(name))
    return OpenedModel(name, path, model, open_tokenizer(tokenizer))


class Trainable:
    """A draft made ready for training.

    Attributes:
        model: The opened model, changed in place.
        unpacked: Whether it was quantized and is dequantized now.
    """

    def __init__(self, opened: OpenedModel, lora: int | None, seed: int) -> None:
        """Make ``opened`` ready: with LoRA layers of rank ``lora``, drawn by ``seed``, or None to train all weights."""
        self._opened, self._lora = opened, lora
        self._config: dict[str, Any] = json.loads((opened.path / "config.json").read_text(encoding="utf-8"))
        self.unpacked = lora is None and self._config.pop("quantization", None) is not None
        self.model = dequantize_model(opened.model) if self.unpacked else opened.model
        if lora is not None:
            mx.random.seed(seed)
            self.model.freeze()
            options = {"rank": lora, "scale": _SCALE, "dropout": 0.0}
            linear_to_lora_layers(self.model, len(self.model.layers), options)
        else:
            self._config.pop("quantization_config", None)
            self.model.unfreeze()
            self._types = tree_map(lambda weight: weight.dtype, self.model.parameters())
            self.model.set_dtype(mx.float32)
        self.model.train()
        mx.eval(self.model.parameters())

    def write(self, folder: Path) -> None:
        """Write the model for `mlx_lm.load`; it cannot be trained after that."""
        model = self.model
        model.eval()
        if self._lora is not None:
            fused = [(name, module.fuse()) for name, module in model.named_modules() if hasattr(module, "fuse")]
            model.update_modules(tree_unflatten(fused))
        else:
            model.update(tree_map(lambda weight, kind: weight.astype(kind), model.parameters(), self._types))
        save_weights(folder, model)
        save_config(self._config, folder / "config.json")
        for pattern in _TOKENIZER_FILES:
            for path in self._opened.path.glob(pattern):
                shutil.copyfile(path, folder / path.name)
