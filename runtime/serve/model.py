"""The model that a server has loaded, and its drafter."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from spectool import SpectoolError
from spectool.runtime.commands.model_options import check_kv_bits
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.host.server import ModelProvider
from spectool.runtime.models import cannot_load
from spectool.runtime.serve.options import ServerOptions
from spectool.runtime.serve.requests import RequestRefused


class DraftingProvider(ModelProvider):  # type: ignore[misc]
    """Loads a model, and its drafter with it.

    Attributes:
        drafter: For the loaded model; None to decode plainly.
        controller: Chooses its draft lengths, for all requests: one alone may be too short to learn in.
        vocabulary: One more than the largest token id of its tokenizer.
    """

    drafter: Drafter | None = None
    vocabulary = 0

    def __init__(self, options: ServerOptions, make_drafter: Callable[[str, Any], Drafter | None]) -> None:
        """Load as ``options`` say; ``make_drafter`` gets the model's name and tokenizer."""
        self.controller = Controller()
        super().__init__(options)
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
        try:
            super()._load(model_path, adapter_path, draft_model_path)
        except Exception as error:
            raise cannot_load(model_path, error) from error
        try:
            self.drafter = self._make_drafter(model_path, self.tokenizer)
            # Raises what a request would, before the first one; nothing is computed.
            options = self.cli_args
            if options.kv_bits:
                check_kv_bits(self.model, options.kv_group_size, choices=())
            generate_step(
                mx.array([0]), self.model, drafter=self.drafter, kv_bits=options.kv_bits, verify=options.verify
            ).close()
        except BaseException:
            self.reset()
            raise
        self.vocabulary = max(self.tokenizer.get_vocab().values(), default=-1) + 1
