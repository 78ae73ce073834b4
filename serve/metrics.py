"""What a server has done so far, as Prometheus reads it."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from spectool.runtime.drafters.drafter import Cycle

disable_created_metrics()  # type: ignore[no-untyped-call]

_PREFIX = "spectool_"
_VLLM = "vllm:spec_decode_"  # the names that vLLM has given to figures of drafting, for dashboards that know these
# name, without the prefix of ours -> kind, meaning, labels
_SERIES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "requests_total": (Counter, "Requests answered, by path and HTTP status.", ("path", "status")),
    "generations_total": (Counter, "Generations, by how they ended.", ("end",)),
    "prompt_tokens_total": (Counter, "Prompt tokens.", ()),
    "cached_prompt_tokens_total": (Counter, "Prompt tokens found in the prompt cache.", ()),
    "generated_tokens_total": (Counter, "Tokens generated.", ()),
    "target_passes_total": (Counter, "Forward passes of the target after the prompt.", ()),
    "drafted_tokens_total": (Counter, "Draft tokens sent to verification, by source.", ("source",)),
    "accepted_tokens_total": (Counter, "Draft tokens that the target agreed with, by source.", ("source",)),
    "drafter_failures_total": (Counter, "Drafters switched off in a generation because they failed.", ("source",)),
    "prompt_seconds_total": (Counter, "Seconds up to the first token of a generation.", ()),
    "generation_seconds_total": (Counter, "Seconds after the first token of a generation.", ()),
    "waiting_seconds_total": (Counter, "Seconds that requests waited for their turn.", ()),
    "requests_running": (Gauge, "Requests being generated for.", ()),
    "requests_waiting": (Gauge, "Requests waiting for their turn.", ()),
    "prompt_cache_sequences": (Gauge, "Texts in the prompt cache.", ()),
    "prompt_cache_bytes": (Gauge, "Bytes in the prompt cache.", ()),
    f"{_VLLM}num_drafts_total": (Counter, "Passes that verified draft tokens.", ()),
    f"{_VLLM}num_draft_tokens_total": (Counter, "Draft tokens that were verified.", ()),
    f"{_VLLM}num_accepted_tokens_total": (Counter, "Draft tokens that were accepted.", ()),
    f"{_VLLM}num_accepted_tokens_per_pos_total": (Counter, "Accepted draft tokens, by position.", ("position",)),
}


class Metrics:
    """Counters of one server; may be used from several threads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._series = {
            name: kind(name if name.startswith(_VLLM) else _PREFIX + name, meaning, labels, registry=self._registry)
            for name, (kind, meaning, labels) in _SERIES.items()
        }

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add ``amount`` to a counter."""
        series = self._series[name]
        (series.labels(**labels) if labels else series).inc(amount)

    def add_cycle(self, cycle: Cycle) -> None:
        """Add a cycle with drafts to vLLM's figures."""
        self.add(f"{_VLLM}num_drafts_total")
        self.add(f"{_VLLM}num_draft_tokens_total", len(cycle.proposal))
        self.add(f"{_VLLM}num_accepted_tokens_total", cycle.accepted)
        for position in range(cycle.accepted):
            self.add(f"{_VLLM}num_accepted_tokens_per_pos_total", position=str(position))

    def exposition(self, gauges: Mapping[str, float]) -> str:
        """Return all series in Prometheus' text format, 0.0.4; ``gauges`` is what holds at this moment."""
        for name, value in gauges.items():
            self._series[name].set(value)
        return generate_latest(self._registry).decode()
