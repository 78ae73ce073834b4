"""The model that a server has loaded, and its drafter."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from spectool import SpectoolError
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.loading import open_target
from spectool.serve.mlx_lm_server import ModelProvider
from spectool.serve.options import ServerOptions
from spectool.serve.requests import RequestRefused


class DraftingProvider(ModelProvider):  # type: ignore[misc]  # mlx-lm has no types
    """Loads a model, and its drafter with it.

    Attributes:
        drafter: For the loaded model; None to decode plainly.
        controller: Chooses its draft lengths, for all requests: one alone may be too short to learn in.
    """

    drafter: Drafter | None = None

    def __init__(self, options: ServerOptions, make_drafter: Callable[[str, Any], Drafter | None]) -> None:
        """Load as ``options`` say; ``make_drafter`` gets the model's name and tokenizer."""
        super().__init__(options)
        self.controller = Controller()
        self._make_drafter = make_drafter

    def load(self, model_path: str, adapter_path: Any = None, draft_model_path: Any = None) -> Any:
        """Return a model and its tokenizer, loaded if they are not yet.

        Raises:
            RequestRefused: The model cannot be loaded, or not served with these options.
        """
        try:
            return super().load(model_path, adapter_path, draft_model_path)
        except SpectoolError as error:
            raise RequestRefused(404, str(error), param="model", code="model_not_found") from error

    def reset(self) -> None:
        """Forget the model and its drafter."""
        super().reset()
        self.drafter, self.controller = None, Controller()

    def _load(self, model_path: str, adapter_path: Any = None, draft_model_path: Any = None) -> None:
        """Load as `generate` does, with no processor of images and without mlx-lm's draft models."""
        self.reset()
        gc.collect()
        mx.clear_cache()
        options = self.cli_args
        model, tokenizer, drafter = open_target(
            model_path, partial(self._make_drafter, model_path), options.kv_group_size if options.kv_bits else None
        )
        # Raises what a request would, before the first one; nothing is computed.
        generate_step(mx.array([0]), model, drafter=drafter, kv_bits=options.kv_bits, verify=options.verify).close()
        mx.eval(model.parameters())
        self.model, self.tokenizer, self.drafter = model, tokenizer, drafter
        self.model_key = (model_path, adapter_path, draft_model_path)
