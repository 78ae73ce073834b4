"""What a request may ask of the model: tokens that it has, settings that mean something, answers that fit."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from copy import copy
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from spectool.runtime.caches.shared import BatchCache
from spectool.runtime.decoding.generation import open_text
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.runtime.mlx_lm_compat import make_prompt_cache
from spectool.serve.answers import Answer, Prompt
from spectool.serve.errors import checked
from spectool.serve.models import context_length
from spectool.serve.options import ServerOptions
from spectool.serve.protocols import responses
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest
from spectool.serve.server import Server
from spectool.tests.commands.chatting import TEMPLATE
from spectool.tests.runtime.models import tiny_model
from spectool.tests.runtime.wider import copied
from spectool.tests.serve.questions import PROMPTS, complete, counted, eventually
from spectool.tests.serve.servers import connect, exchange, post, serving, without_drafter
from spectool.tests.serve.test_refusals import refusal

pytestmark = pytest.mark.nightly

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.fixture(scope="module")
def wider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the demo target with a token that the model does not have."""
    path = copied(tmp_path_factory.mktemp("wider"), template=TEMPLATE)
    with serving(model=path) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (TEXT, {"prompt": "Hej <extra> tam"}, "prompt"),
        (TEXT, {"prompt": [5, 1536]}, "prompt"),
        (TEXT, {"prompt": "Hej <extra> tam", "frequency_penalty": 0.5, "stream": True}, "prompt"),
        (CHAT, {"messages": [{"role": "user", "content": "Hej <extra>"}], "presence_penalty": 1.0}, "messages"),
        (TEXT, {"prompt": "Hej", "logit_bias": {"1536": 100}}, "logit_bias"),
    ],
)
def test_tokens_that_the_model_does_not_have(wider: Server, path: str, body: dict[str, Any], param: str) -> None:
    status, error = refusal(wider, post(path, {**body, "max_tokens": 3}))
    assert (status, error["param"]) == (400, param)
    assert f"{param}: token 1536: the model has 1,536 rows" in error["message"]
    assert exchange(wider, post(TEXT, {"prompt": "Hej", "max_tokens": 3, "logit_bias": {"1535": 1}}))[0] == 200


def test_a_seed_does_not_outlive_its_request(server: Server) -> None:
    def answer(**settings: Any) -> str:
        return str(complete(server, PROMPTS[0], 8, temperature=2.0, **settings).choices[0].text)

    seeded, unseeded, policies = [], [], list[Any]()
    with patch("spectool.serve.engine.open_text", wraps=open_text) as opened:
        for _ in range(3):
            seeded.append(answer(seed=1))
            policies.append(opened.call_args.args[2].num_draft_tokens)
            unseeded.append(answer())
    assert len(set(seeded)) == 1
    assert len(set(unseeded)) == 3
    assert policies == [8] * 3, "the server's policy has learnt from others"


def test_an_answer_ends_where_the_context_does(server: Server) -> None:
    answer = complete(server, PROMPTS[0], 1500)
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == 256
    assert answer.choices[0].finish_reason == "length"
    unlimited = {"prompt": PROMPTS[0], "max_tokens": -1, "top_k": -1, "seed": -1, "temperature": 0}
    assert json.loads(exchange(server, post(TEXT, unlimited))[2])["usage"]["total_tokens"] == 256
    fitting = "a " * 200
    length = complete(server, fitting, 1).usage.prompt_tokens
    whole = fitting + "a " * (255 - length)
    last = complete(server, whole, 100)
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (255, 1)
    status, error = refusal(server, post(TEXT, {"prompt": whole + "a ", "max_tokens": 1}))
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert "prompt is too long" in error["message"]  # what Claude Code looks for
    assert "exceeds the maximum number of tokens allowed" in error["message"]  # and LiteLLM, as Aider has it
    assert "at most 256 tokens, including the answer, got 256" in error["message"]


CHATS = [checked(ChatRequest, {"messages": [{"role": "user"}]}), responses.chat_of({"input": "a"})]
TEXTS = [checked(CompletionRequest, {"prompt": "a", "max_tokens": limit}) for limit in (-1, None)]


@pytest.mark.parametrize(
    ("requests", "context", "usual", "limit"),
    [
        (TEXTS[:1], None, None, 1 << 15),
        (TEXTS[:1], 4, None, 1 << 15),  # which the prompt leaves already
        (TEXTS[:1], 256, None, 250),
        (TEXTS[1:], 4096, None, 512),
        (CHATS, 4096, None, 4090),  # Codex never sends a limit, Roo Code and Open WebUI only if they are told to
        (CHATS, 1 << 17, None, 1 << 15),
        ([*CHATS, TEXTS[1]], 4096, 7, 7),
    ],
)
def test_an_answer_ends_where_the_context_does_or_somewhere(
    requests: list[GenerationRequest], context: int | None, usual: int | None, limit: int, server: Server
) -> None:
    model = copy(server.engine.model)
    model.context = context
    for request in requests:
        answer = Answer(request, Prompt([1] * 6))
        assert answer.begin(model, ServerOptions(model="m", max_tokens=usual)).max_tokens == limit


STRANGE = [2**63, 2**64, 10**400, -(10**400), 1e308, -1e308, 5e-324, -1, True, "1", "", [], {}, [1], {"a": 1}, 0.5]
FIELDS = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "presence_penalty", "frequency_penalty"]
FIELDS += ["repetition_penalty", "repetition_context_size", "logit_bias", "logprobs", "stop"]
FIELDS += ["num_draft_tokens", "xtc_probability", "xtc_threshold"]
KEYS = ["-1", "+1", "1_0", "５", "٣", " 5", "5 ", "1e1", "1.0", "", "²", str(2**31), str(2**64), "9" * 400, "9" * 5000]


def test_whatever_a_field_holds_the_answer_is_clean(server: Server) -> None:
    """Every answer is JSON without NaN, 200 or a 400 that names the field, and the next request finds all as before."""

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        status, _, data = exchange(server, post(TEXT, body))
        return status, json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} in an answer to {body}"))

    good = {"prompt": PROMPTS[0], "max_tokens": 2}
    before = answer(good)[1]["choices"]
    bodies = [(name, {**good, name: value}) for name in FIELDS for value in STRANGE]
    bodies += [(name, {**body, "temperature": 0.7}) for name, body in bodies if name != "temperature"]
    bodies += [("logit_bias", {**good, "logit_bias": {key: 1}}) for key in KEYS]
    bodies += [("logit_bias", {**good, "logit_bias": {"5": value}}) for value in STRANGE]
    bodies += [("stop", {**good, "stop": [value]}) for value in STRANGE]
    shown = {"logprobs": 5}
    for penalty in (1e-300, 1e-6, 1e6):
        bodies += [("repetition_penalty", {**good, **shown, "repetition_penalty": penalty, "logit_bias": {"5": 1e30}})]
    refused = set()
    for name, body in bodies:
        status, found = answer({**body, "stop": body.get("stop", ["a", "e", "i", "o"])})
        assert status in (200, 400), (body, found)
        if status == 400:
            refused.add(name)
            assert (found["error"]["param"], name in found["error"]["message"]) == (name, True), (body, found)
    assert refused == set(FIELDS)
    for name in ("temperature", "top_p", "seed", "logit_bias"):
        for constant in ("NaN", "Infinity", "-Infinity", "1e999"):
            data = f'{{"prompt": "a", "max_tokens": 1, "{name}": {constant}}}'.encode()
            assert refusal(server, post(TEXT, data))[0] == 400
    assert answer(good)[1]["choices"] == before


def test_quantised_caches_are_kept_and_continued() -> None:
    with serving(kv_bits=8, quantized_kv_start=8) as running:
        first = complete(running, PROMPTS[0]).choices[0].text
        assert first == complete(running, PROMPTS[0]).choices[0].text
        assert complete(running, PROMPTS[0] + first).choices[0].text
        assert counted(running)["cached_prompt_tokens"] > 0


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "qwen3_5", "nemotron-nas"])
def test_a_text_takes_what_its_caches_do(kind: str, server: Server) -> None:
    model = copy(server.engine.model)
    model.model = tiny_model(kind)
    vars(model).pop("_leaf_sizes", None)
    for tokens in (1, 48, 600):
        caches = BatchCache(make_prompt_cache(model.model), 0, [0])
        caches.begin([tokens])
        model.model(mx.zeros((1, tokens), dtype=mx.int32), cache=caches.entries)
        assert model.cache_bytes(tokens) == sum(array.nbytes for array in caches.arrays())


def test_texts_and_kept_caches_get_shares_of_the_memory_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = load_model(str(demo_path("target")))
    parameters: Any = tree_flatten(model.parameters())
    weights = sum(weight.nbytes for _, weight in parameters)
    cache = make_prompt_cache(model)
    model(mx.zeros((1, 256), dtype=mx.int32), cache=cache)
    text = sum(leaf.nbytes for leaf in cache)
    for key in ("max_recommended_working_set_size", "total_memory"):  # Metal, CUDA
        # A text of twice the length takes as much as two, and so does every other one in caches that they share.
        for batch, lengths, written in ((None, [200] * 4, 3), (None, [400, 200], 1), (2, [400, 200], 2)):
            known = {key: weights + 2 * 3 * text + 4}
            monkeypatch.setattr(mx, "device_info", known.copy)
            with (
                serving(without_drafter, batch=batch) as running,
                patch.object(Loop, "step", return_value=[]),
                ExitStack() as clients,
            ):
                running.engine.model.context = 1024
                for length in lengths:
                    asked = post(TEXT, {"prompt": PROMPTS[0], "max_tokens": length})
                    clients.enter_context(connect(running)).sendall(asked)
                    time.sleep(0.1)
                eventually(running, "running", written)
                eventually(running, "waiting", len(lengths) - written)
    monkeypatch.setattr(mx, "device_info", lambda: {"total_memory": weights + 4 * 2 * text})  # two texts in a quarter
    for given, kept in ((None, 2), (10**9, 3)):
        with serving(without_drafter, prompt_cache_bytes=given) as running:
            for prompt in PROMPTS:
                complete(running, prompt)
            assert counted(running)["kept"] == kept


def test_the_context_is_found_where_a_model_keeps_it() -> None:
    # Gemma 3 nests a dictionary, Llama 4 an object; PLaMo keeps it under another name, and Lille calls it otherwise.
    gemma = SimpleNamespace(args=SimpleNamespace(text_config={"max_position_embeddings": 4096}))
    plamo = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=4096))
    lille = SimpleNamespace(args=SimpleNamespace(block_size=4096))
    for model in (tiny_model("qwen3"), tiny_model("llama4"), gemma, plamo, lille):
        assert context_length(model, object()) == 4096
    assert context_length(tiny_model("llama"), SimpleNamespace(model_max_length=512)) == 512
    assert context_length(tiny_model("llama"), SimpleNamespace(model_max_length=10**30)) is None


@pytest.mark.parametrize(
    ("options", "times"), [({}, 1), ({"measure": False}, 0), ({"num_draft_tokens": 0}, 0), ({"num_draft_tokens": 4}, 0)]
)
def test_passes_are_timed_once_if_at_all_not_before_the_weights_are_read(
    options: dict[str, Any], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = list[Any]()
    monkeypatch.setattr("spectool.runtime.policy.costs.known_costs", lambda model: None)
    monkeypatch.setattr("spectool.runtime.policy.costs._measured", lambda model, before: called.append(model))
    with serving(**{"num_draft_tokens": None, **options}):
        assert len(called) == times
