"""What a server has done so far, as Prometheus reads it and as people do."""

import html
from collections.abc import Mapping
from threading import Lock

_PREFIX = "spectool_"
# name -> kind and meaning; what a series is split by stands in its labels
_SERIES = {
    "requests_total": ("counter", "Requests answered, by path and HTTP status."),
    "generations_total": ("counter", "Generations, by how they ended."),
    "prompt_tokens_total": ("counter", "Prompt tokens."),
    "cached_prompt_tokens_total": ("counter", "Prompt tokens found in the prompt cache."),
    "generated_tokens_total": ("counter", "Tokens sent."),
    "target_passes_total": ("counter", "Forward passes of the target after the prompt."),
    "drafted_tokens_total": ("counter", "Draft tokens sent to verification, by source."),
    "accepted_tokens_total": ("counter", "Draft tokens that the target agreed with, by source."),
    "prompt_seconds_total": ("counter", "Seconds up to the first token of a generation."),
    "generation_seconds_total": ("counter", "Seconds after the first token of a generation."),
    "waiting_seconds_total": ("counter", "Seconds that requests waited for their turn."),
    "requests_running": ("gauge", "Requests being generated for."),
    "requests_waiting": ("gauge", "Requests waiting for their turn."),
    "prompt_cache_sequences": ("gauge", "Texts in the prompt cache."),
    "prompt_cache_bytes": ("gauge", "Bytes in the prompt cache."),
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>spectool serve</title>
<style>body{{font:16px system-ui;margin:2em}}td{{padding:.1em 1.5em .1em 0}}td+td{{text-align:right}}</style></head>
<body><h1>spectool serve</h1>
<p>Models: {models}. OpenAI-compatible: <code>/v1/chat/completions</code>, <code>/v1/completions</code>,
<code>/v1/models</code>. For Prometheus: <a href="/metrics">/metrics</a>.</p>
<table>
{rows}
</table></body></html>
"""


class Metrics:
    """Counters of one server; may be used from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add ``amount`` to a counter."""
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def exposition(self, gauges: Mapping[str, float]) -> str:
        """Return all series in Prometheus' text format, 0.0.4; ``gauges`` is what holds at this moment."""
        values = self._all(gauges)
        lines = []
        for name, (kind, meaning) in _SERIES.items():
            lines += [f"# HELP {_PREFIX}{name} {meaning}", f"# TYPE {_PREFIX}{name} {kind}"]
            for (series, labels), value in values.items():
                if series == name:
                    written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
                    lines.append(f"{_PREFIX}{name}{f'{{{written}}}' if written else ''} {value!r}")
        return "\n".join(lines) + "\n"

    def page(self, gauges: Mapping[str, float], models: str) -> str:
        """Return a small HTML page with the same figures and the ratios that users compare."""
        values = self._all(gauges)

        def total(name: str) -> float:
            return sum(value for (series, _), value in values.items() if series == name)

        facts = [
            ("tokens per pass", _ratio(total("generated_tokens_total"), total("target_passes_total"))),
            ("acceptance", _ratio(total("accepted_tokens_total"), total("drafted_tokens_total"))),
            ("tokens per second", _ratio(total("generated_tokens_total"), total("generation_seconds_total"))),
        ]
        for (name, labels), value in values.items():
            split = ", ".join(text for _, text in labels)
            label = name.removesuffix("_total").replace("_", " ")
            facts.append((f"{label} ({split})" if split else label, f"{value:,.10g}"))
        rows = "\n".join(f"<tr><td>{html.escape(key)}</td><td>{html.escape(value)}</td></tr>" for key, value in facts)
        return _PAGE.format(models=html.escape(models), rows=rows)

    def _all(self, gauges: Mapping[str, float]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return counters and gauges in the order of the series, counters without labels also while they are 0."""
        with self._lock:
            known = dict(self._values)
        known |= {(name, ()): value for name, value in gauges.items()}
        split = {"requests_total", "generations_total", "drafted_tokens_total", "accepted_tokens_total"}
        for name in _SERIES:
            if name not in split:
                known.setdefault((name, ()), 0)
        order = {name: place for place, name in enumerate(_SERIES)}
        return dict(sorted(known.items(), key=lambda item: (order[item[0][0]], item[0][1])))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _ratio(amount: float, base: float) -> str:
    return f"{amount / base:.2f}" if base else "none yet"
