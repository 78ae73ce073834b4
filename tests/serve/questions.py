"""Prompts for a server, the answers that mlx-lm gives to them, answers that are given, and what the server counts."""

import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from spectool.runtime.decoding.generation import open_text
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.serve.server import Server
from spectool.tests.commands.chatting import TEMPLATE, chat_model
from spectool.tests.serve.servers import TARGET, client

PROMPTS = [
    "Most w Jaworowcu zamknięty do końca",
    "Негода на Приліщині: синоптики радять не",
    "Mamo, mamo, mamo, dlaczego",
]
MESSAGES: list[Any] = [
    {"role": "system", "content": "Wczoraj"},
    {"role": "user", "content": [{"type": "text", "text": "wieczorem "}, {"type": "text", "text": "w domu"}]},
]
CHAT = "Wczoraj wieczorem w domu"  # the messages in the template of `chatting_model`
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
]
LONG = "Wczoraj wieczorem w domu kultury i w domu kultury i znowu. " * 6
TOKENS = 24


@cache
def alone(prompt: str, max_tokens: int = TOKENS) -> str:
    """What mlx-lm answers, with the space that may stand between the prompt and the answer."""
    from mlx_lm import load, stream_generate

    model, tokenizer, *_ = load(TARGET)
    tokens = [response.token for response in stream_generate(model, tokenizer, prompt, max_tokens=max_tokens)]
    before = tokenizer.encode(prompt)
    return str(tokenizer.decode([*before, *tokens])).removeprefix(tokenizer.decode(before))


def chatting_model(folder: Path) -> str:
    """A copy of the demo target that converses and calls tools, as far as its template and tokenizer are concerned."""
    path = Path(chat_model(folder, "{{ bos_token }}" + TEMPLATE))
    config = path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tool_parser_type": "json_tools"}))
    return str(path)


@contextmanager
def writing_down(server: Server, *texts: str, constrained: bool = False) -> Iterator[None]:
    """Let the server's model write these texts, one answer after the other, whatever it is asked.

    If it is ``constrained``, the answer follows its grammar all the same.
    """
    tokenizer = server.engine.model.tokenizer
    left = list(texts)

    def opened(prompt: Any, model: Any, settings: GenerationSettings) -> Any:
        tokens = [*tokenizer.encode(left.pop(0), add_special_tokens=False), *tokenizer.eos_token_ids]
        before = len(settings.cached_tokens) + len(prompt)

        def write(history: mx.array, logits: mx.array) -> mx.array:
            token = tokens[min(history.size - before, len(tokens) - 1)]
            others = logits - 100 if constrained else mx.full(logits.shape, -math.inf)
            return mx.where(mx.arange(logits.shape[-1]) == token, 0.0, others)

        grammar = settings.grammar if constrained else None
        return open_text(prompt, model, replace(settings, logits_processors=[write], grammar=grammar))

    with patch("spectool.serve.engine.open_text", opened):
        yield


def complete(server: Server, prompt: str, max_tokens: int = TOKENS, **options: Any) -> Any:
    return client(server).completions.create(model="default_model", prompt=prompt, max_tokens=max_tokens, **options)


def counted(server: Server) -> Counter[str]:
    """What a server has done so far, how many requests are running and waiting, and how many prompts are kept."""
    engine = server.engine
    running = {id(answer.request) for answer in list(engine._writing.values())}
    now = {
        "running": len(running),
        "waiting": engine.waiting,
        "line": len(engine._waiting),
        "kept": len(engine._caches._kept),
    }
    return Counter({**getattr(engine, "counts", {}), **now})


def eventually(server: Server, name: str, value: int, seconds: float = 20) -> None:
    """Wait until something is counted so often."""
    until = time.monotonic() + seconds
    while (now := counted(server)[name]) != value:
        assert time.monotonic() < until, f"{name}: expected {value}, got {now}"
        time.sleep(0.02)
