"""What a server is started with, under the names that mlx-lm's server reads."""

from dataclasses import dataclass, field
from typing import Any, Literal

from spectool.serve.requests import AUTOMATIC


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What a server is started with.

    Attributes:
        model: Directory or hub id.
        other_models: More models that requests may name, drafted for from the history alone.
        num_draft_tokens: Maximum number of draft tokens per cycle; `AUTOMATIC` for the number that is fastest.
        verify: How drafts are verified above temperature 0, as in ``generate_step``.
        allowed_origins: Web pages that browsers may ask from; ``*`` for all.
        max_body: Largest body of a request, in bytes.
        max_prompt_tokens: Longest prompt; None for what the model was made for.
        max_waiting: Requests that may wait for their turn.
        temp: Of requests that do not say, like ``top_p``, ``top_k``, ``min_p`` and ``max_tokens``.
        chat_template_args: Variables of the chat template.
        prompt_cache_size: Texts whose caches are kept.
        prompt_cache_bytes: Largest size of these caches together; None for no limit.
        kv_bits: Bits of quantised caches, as in ``generate_step``, like ``kv_group_size``, ``quantized_kv_start`` and
            ``prefill_step_size``.
    """

    model: str
    other_models: tuple[str, ...] = ()
    num_draft_tokens: int = AUTOMATIC
    verify: Literal["exact", "rejection"] = "rejection"
    allowed_origins: tuple[str, ...] = ()
    max_body: int = 16 << 20
    max_prompt_tokens: int | None = None
    max_waiting: int = 64
    temp: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 512
    chat_template_args: dict[str, Any] = field(default_factory=dict)
    prompt_cache_size: int = 10
    prompt_cache_bytes: int | None = None
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    prefill_step_size: int = 2048
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
