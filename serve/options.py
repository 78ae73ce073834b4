"""What a server is started with."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from spectool.runtime.settings import QUANTIZED_KV_START, SAMPLER

DEFAULT_MODEL = "default_model"
"""A name for the model that the server was started with, whatever that is."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What a server is started with.

    Requests that do not set ``temp``, ``top_p``, ``top_k``, ``min_p`` and ``max_tokens`` get these.

    Attributes:
        adapter_path: Directory of a LoRA adapter.
        pipeline: Whether processes of a group get some of the layers each, and not a part of every layer.
        chat_template: Takes the place of the model's own.
        served_names: Names that requests may use for ``model``; without any, it goes by its own.
        batch: Texts that are written at the same time; None for what fits into memory, up to 16.
        num_draft_tokens: Maximum number of draft tokens per cycle; None for the number that is fastest.
        measure: Whether passes are timed once, at the start, if nobody knows what they cost.
        api_keys: Keys that clients may present; without any, no key is asked for.
        max_tokens: Of an answer; None for 512 in a text, and in a chat for what the context allows, up to 32,768.
        max_prompt_tokens: Longest prompt; None for what the model was made for.
        prompt_cache_bytes: Of all kept caches together; None for a quarter of the memory that the weights leave.
        kv_bits: As in ``generate_step``, like ``verify`` and ``quantized_kv_start``.
        prefill_step_size: Prompt tokens in one pass. An abort takes effect between two passes.
    """

    model: str
    adapter_path: Path | None = None
    pipeline: bool = False
    chat_template: str | None = None
    served_names: tuple[str, ...] = ()
    batch: int | None = None
    num_draft_tokens: int | None = None
    measure: bool = True
    verify: Literal["exact", "rejection"] = "rejection"
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_connections: int = 256
    max_body: int = 16 << 20
    max_prompt_tokens: int | None = None
    max_waiting: int = 64
    temp: float = SAMPLER["temp"].default
    top_p: float = SAMPLER["top_p"].default
    top_k: int = 0
    min_p: float = SAMPLER["min_p"].default
    max_tokens: int | None = None
    template_variables: dict[str, Any] = field(default_factory=dict)
    prompt_cache_size: int = 10
    prompt_cache_bytes: int | None = None
    kv_bits: int | None = None
    quantized_kv_start: int = QUANTIZED_KV_START
    prefill_step_size: int = 512

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model: by default its hub id, or the name of its directory."""
        path = Path(self.model).expanduser()
        return self.served_names or (path.resolve().name if path.is_dir() else self.model,)

    def name_of(self, wanted: str) -> str | None:
        """The name of the model that a request wants; None if it wants another one."""
        if wanted == DEFAULT_MODEL or (wanted == self.model and not self.served_names):
            return self.names[0]
        return wanted if wanted in self.names else None
