"""What a server is started with: the fields are options of ``serve``, and what mlx-lm's server reads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import click

from spectool.artifacts.options import option
from spectool.commands.options import Finite, section
from spectool.serve.requests import AUTOMATIC

_COUNT, _SHARE = click.IntRange(1), Finite(0, 1)
_model: Callable[..., Any] = partial(option, **section("Model"))
_address: Callable[..., Any] = partial(option, **section("Who may ask, and how much"))
_defaults: Callable[..., Any] = partial(option, **section("Defaults of requests that do not say"))
_cache: Callable[..., Any] = partial(option, **section("Cache"))


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What a server is started with, under the names that mlx-lm's server reads."""

    model: str  # directory or hub id
    num_draft_tokens: int = AUTOMATIC  # per verification at most; `AUTOMATIC` for as many as pay
    verify: Literal["exact", "rejection"] = "rejection"  # above temperature 0, as in ``generate_step``
    other_models: tuple[str, ...] = _model(
        str,
        "Another model that requests may name, drafted for from the history alone. Can be repeated.",
        (),
        names=["--allow-model"],
        multiple=True,
        metavar="M3",
    )
    allowed_origins: tuple[str, ...] = _address(
        str,
        "Web page that browsers may ask from, such as http://localhost:3000; `*` for all. Can be repeated.",
        (),
        names=["--allowed-origin"],
        multiple=True,
        metavar="URL",
    )
    max_body: int = _address(_COUNT, "Refuse requests with larger bodies.", 16 << 20, metavar="BYTES")
    max_prompt_tokens: int | None = _address(
        _COUNT, "Refuse longer prompts; by default those longer than the model was made for.", None, metavar="N"
    )
    max_waiting: int = _address(_COUNT, "Refuse requests while so many are waiting for their turn.", 64)
    temp: float = _defaults(Finite(0), "Temperature.", 0.0)
    top_p: float = _defaults(_SHARE, "Sample from tokens up to this mass.", 1.0)
    top_k: int = _defaults(click.IntRange(0), "Sample from this many tokens; 0 from all.", 0)
    min_p: float = _defaults(_SHARE, "Least share of the best token's probability.", 0.0)
    max_tokens: int = _defaults(_COUNT, "Tokens of an answer.", 512, names=["-m", "--max-tokens"])
    chat_template_args: dict[str, Any] = field(default_factory=dict)
    prompt_cache_size: int = _cache(
        _COUNT, "Texts whose caches are kept, so that the next turn of a conversation costs that turn only.", 10
    )
    prompt_cache_bytes: int | None = _cache(_COUNT, "Drop the oldest of them beyond this.", None, metavar="BYTES")
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
