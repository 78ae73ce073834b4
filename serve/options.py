"""What a server is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spectool import expanded
from spectool.runtime.settings import QUANTIZED_KV_START

DEFAULT_MODEL = "default_model"
"""A name for the model that the server was started with, whatever that is."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What a server is started with; requests that leave out sampling settings and ``max_tokens`` get these."""

    model: str
    adapter_path: Path | None = None  # directory of a LoRA adapter
    pipeline: bool = False  # processes of a group get some of the layers each, and not a part of every layer
    chat_template: str | None = None  # takes the place of the model's own
    served_names: tuple[str, ...] = ()  # that requests may use for ``model``; without any, it goes by its own
    batch: int | None = None  # texts that are written at the same time; None for what fits into memory, up to 16
    num_draft_tokens: int | None = None  # at most, per cycle; None for the number that is fastest
    measure: bool = True  # passes are timed once, at the start, if nobody knows what they cost
    api_keys: tuple[str, ...] = ()  # that clients may present; without any, no key is asked for
    allowed_origins: tuple[str, ...] = ()
    max_connections: int = 256
    max_body: int = 16 << 20  # bytes
    max_prompt_tokens: int | None = None  # None for what the model was made for
    max_waiting: int = 64  # requests
    sampling: Mapping[str, Any] = field(default_factory=dict)  # the settings that are not as usual, by name
    max_tokens: int | None = None  # None for 512 in a text, and in a chat for what the context allows, up to 32,768
    template_variables: dict[str, Any] = field(default_factory=dict)
    prompt_cache_size: int = 10
    prompt_cache_bytes: int | None = None  # of all together; None for a quarter of the memory that the weights leave
    kv_bits: int | None = None  # as in `generate_step`
    quantized_kv_start: int = QUANTIZED_KV_START
    prefill_step_size: int = 512  # prompt tokens in one pass; an abort takes effect between two passes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model: by default its hub id, or the name of its directory."""
        path = expanded(self.model)
        return self.served_names or (path.resolve().name if path.is_dir() else self.model,)

    def settings(self, among: Mapping[str, Any], asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The settings of sampling that are ``among`` some: what a request has ``asked`` for, or what is usual here."""
        known = {**self.sampling, **(asked or {})}
        return {name: known[name] for name in among if name in known}

    def name_of(self, wanted: str) -> str | None:
        """The name of the model that a request wants; None if it wants another one."""
        if wanted == DEFAULT_MODEL or (wanted == self.model and not self.served_names):
            return self.names[0]
        return wanted if wanted in self.names else None
