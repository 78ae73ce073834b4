"""Pretrained models behind the server, where they are in the cache: ``make test-real``."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from platformdirs import user_cache_path

from spectool.runtime.loading import load_drafter
from spectool.tests.serve.servers import client, serving

pytestmark = pytest.mark.real
MODELS = Path(os.environ.get("SPECTOOL_MODELS", user_cache_path("spectool-models")))
PROMPT = "The quick brown fox jumps over the"


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma3-270m"])
def asking(request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    path = MODELS / request.param
    if not (path / "config.json").exists():
        pytest.skip(f"no {request.param} in {MODELS}; get it with: python benchmarks/real_models.py {request.param}")
    with serving(lambda tokenizer: load_drafter(tokenizer), model=str(path), num_draft_tokens=4) as running:
        yield client(running)


def test_a_text_goes_on_with_its_space_and_stops_where_it_is_told(asking: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "default_model", "prompt": PROMPT, "max_tokens": 12}
    whole = asking.completions.create(**asked).choices[0].text
    assert whole.startswith(" ")
    for place in range(1, 16, 3):
        stop = whole[place : place + 5]
        choice = asking.completions.create(**asked, stop=stop).choices[0]
        assert (choice.text, choice.finish_reason) == (whole.partition(stop)[0], "stop")


def test_a_chat_and_its_stream_say_the_same(asking: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Say hello in Polish."}]
    asked: dict[str, Any] = {"model": "default_model", "messages": messages, "max_tokens": 16, "logprobs": True}
    answer = asking.chat.completions.create(**asked, top_logprobs=3).choices[0]
    chunks = asking.chat.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.message.content
    assert answer.logprobs is not None and answer.logprobs.content
    assert all(place.token == place.top_logprobs[0].token for place in answer.logprobs.content)
