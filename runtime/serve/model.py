"""What a server is started with, and the model that it has loaded."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import mlx.core as mx

from spectool import SpectoolError
from spectool.runtime.commands.model_options import check_kv_bits
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.host.generation import DEFAULT_QUANTIZED_KV_START
from spectool.runtime.host.server import ModelProvider
from spectool.runtime.models import cannot_load
from spectool.runtime.serve.requests import AUTOMATIC, RequestRefused


@dataclass(frozen=True)
class ServerOptions:
    """What a server is started with, under the names that mlx-lm's server reads.

    Attributes:
        model: Directory or hub id of the model.
        other_models: Further models that requests may name; they take the place of the loaded one.
        max_body: Bytes of a request's body.
        max_prompt_tokens: Tokens of a prompt; None for the model's ``max_position_embeddings``.
        max_waiting: Requests in line, beside the one being served.
        num_draft_tokens: Draft tokens per verification at most; `AUTOMATIC` for as many as pay.
        verify: How drafts are verified above temperature 0, as in ``generate_step``.
        allowed_origins: Web pages that may ask, as browsers name them; ``*`` for all.
    """

    model: str
    other_models: tuple[str, ...] = ()
    max_body: int = 16 << 20
    max_prompt_tokens: int | None = None
    max_waiting: int = 64
    allowed_origins: tuple[str, ...] = ()
    num_draft_tokens: int = AUTOMATIC
    verify: Literal["exact", "rejection"] = "rejection"
    max_tokens: int = 512
    temp: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    chat_template_args: dict[str, Any] = field(default_factory=dict)
    prefill_step_size: int = 2048
    prompt_cache_size: int = 10
    prompt_cache_bytes: int | None = None
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = DEFAULT_QUANTIZED_KV_START
    # Read by mlx-lm's server and not offered: no remote code, no adapters, no draft models of its own.
    trust_remote_code: bool = False
    adapter_path: None = None
    draft_model: None = None
    chat_template: None = None
    use_default_chat_template: bool = False
    pipeline: bool = False

    @property
    def models(self) -> tuple[str, ...]:
        """Names that requests may use."""
        return (self.model, *self.other_models)


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
