"""Prompts for a server, the answers that mlx-lm gives to them, and the server's metrics."""

import time
from functools import cache
from typing import Any

from spectool.serve.handler import Server
from spectool.tests.serve.servers import TARGET, client, exchange, get

PROMPTS = [
    "Most w Jaworowcu zamknięty do końca",
    "Негода на Приліщині: синоптики радять не",
    "Mamo, mamo, mamo, dlaczego",
]
MESSAGES: list[Any] = [
    {"role": "system", "content": "Odpowiadaj krótko."},
    {"role": "user", "content": [{"type": "text", "text": "Wczoraj wieczorem "}, {"type": "text", "text": "w domu"}]},
]
LONG = "Wczoraj wieczorem w domu kultury i w domu kultury i znowu. " * 6
TOKENS = 24


@cache
def alone(prompt: str, max_tokens: int = TOKENS) -> str:
    """Return what ``mlx_lm.generate`` answers."""
    from mlx_lm import generate, load

    model, tokenizer, *_ = load(TARGET)
    return str(generate(model, tokenizer, prompt, max_tokens=max_tokens))


def complete(server: Server, prompt: str, max_tokens: int = TOKENS, **options: Any) -> Any:
    return client(server).completions.create(model=TARGET, prompt=prompt, max_tokens=max_tokens, **options)


def series(server: Server) -> dict[str, float]:
    """Return the metrics by name and labels."""
    status, headers, body = exchange(server, get("/metrics"))
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def eventually(server: Server, name: str, value: float, seconds: float = 20) -> None:
    """Wait for a metric."""
    until = time.monotonic() + seconds
    while (now := series(server).get(name)) != value:
        assert time.monotonic() < until, f"{name}: expected {value}, got {now}"
        time.sleep(0.02)
