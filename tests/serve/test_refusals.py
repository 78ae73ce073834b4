"""What the server refuses, and that every refusal is clean JSON and harms nobody else."""

import gzip
import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spectool.serve.errors import RequestRefused, checked
from spectool.serve.requests import ChatRequest, CompletionRequest, without_effect
from spectool.serve.server import Server
from spectool.tests.commands.chatting import chat_model
from spectool.tests.serve.servers import connect, exchange, get, post, serving, without_drafter

MAX_BODY = 20_000
TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
GOOD = {"prompt": "Most w Jaworowcu", "max_tokens": 2}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(without_drafter, max_body=MAX_BODY, allowed_origins=("http://localhost:3000",)) as running:
        yield running


def refusal(server: Server, data: bytes) -> tuple[int, dict[str, Any]]:
    status, headers, body = exchange(server, data)
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body)
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return status, error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b"[1, 2]",
        b'"text"',
        b"null",
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}",
        b'{"prompt": "\\ud800"}',
        b"[" * 15_000,
        b"{}",
    ],
)
def test_bodies_that_are_no_request(server: Server, body: bytes) -> None:
    status, _ = refusal(server, post(TEXT, body))
    assert status == 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", 5),
        ("prompt", ["a"] * 17),
        ("prompt", [1, "a"]),
        ("prompt", [-1]),
        ("model", 5),
        ("max_tokens", "five"),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("max_tokens", 2.5),
        ("temperature", -1),
        ("temperature", "hot"),
        ("temperature", 5),
        ("temperature", 2.01),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("max_completion_tokens", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", [0.1]),
        ("seed", -2),
        ("seed", 2**63),
        ("max_tokens", 2**63),
        ("top_k", 2**63),
        ("stop", 5),
        ("stop", [""]),
        ("stop", ["a"] * 65),
        ("logit_bias", {"one": 1}),
        ("logit_bias", {"1": "more"}),
        ("logit_bias", {"99999": 5}),
        ("logprobs", 21),
        ("n", 17),
        ("stream", "yes"),
        ("stream_options", True),
        ("num_draft_tokens", 1_000_000),
        ("repetition_context_size", -1),
        ("repetition_context_size", 2**31),
        ("xtc_probability", 2),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a"}}),
        ("response_format", "text"),
        ("echo", True),
        ("suffix", " the end"),
        ("best_of", 4),
        ("chat_template", "{{ 1 }}"),
        ("adapters", "./adapter"),
        ("draft_model", "owner/model"),
    ],
)
def test_wrong_values(server: Server, field: str, value: Any) -> None:
    status, error = refusal(server, post(TEXT, {**GOOD, field: value}))
    assert status == 400
    assert error["param"] == field
    assert re.match(rf"{field}[^:]*: .+(, got .+|, expected .+)", error["message"]), error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_logprobs", 21),
        ("logprobs", 3),
        ("tools", {}),
        ("tools", [{"type": "web_search"}]),
        ("tools", [{"type": "function", "function": {"parameters": {}}}]),
        ("tool_choice", "sometimes"),
        ("tool_choice", {"type": "function", "function": {}}),
        ("tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
        ("tool_choice", {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "a"}]}),
        ("chat_template_kwargs", {"chat_template": "{{ 1 }}"}),
        ("chat_template_kwargs", {"tokenize": False}),
        ("prediction", "text"),
        ("prediction", {"content": "text"}),
        ("prediction", {"type": "image", "content": "text"}),
        ("prediction", {"type": "content", "content": 5}),
        ("prediction", {"type": "content", "content": [{"type": "image_url", "text": "x"}]}),
    ],
)
def test_wrong_values_of_a_chat(server: Server, field: str, value: Any) -> None:
    status, error = refusal(server, post(CHAT, {"messages": [{"role": "user", "content": "a"}], field: value}))
    assert (status, error["param"]) == (400, field)


@pytest.mark.parametrize(
    ("path", "field", "value", "got"),
    [
        (CHAT, "response_format", {"type": "json"}, "response_format.type: .* or 'json_schema', got \"json\""),
        (CHAT, "response_format", {"type": "json_schema"}, "response_format: .*have a schema, got {.*"),
        (CHAT, "response_format", {"type": "json_schema", "json_schema": {}}, ".*json_schema.schema: .*, got nothing"),
        (TEXT, "prompt", ["a"] * 17, "prompt: List should have at most 16 items, .*,…"),
        (TEXT, "prompt", [], r"prompt: List should have at least 1 item.*, got \[\]"),
        (TEXT, "prompt", [[1], []], r"prompt\[1\]: List should have at least 1 item.*, got \[\]"),
    ],
)
def test_the_error_of_a_value_of_several_kinds_is_that_of_the_kind_that_was_meant(
    server: Server, path: str, field: str, value: Any, got: str
) -> None:
    status, error = refusal(server, post(path, {"messages": [{"role": "user", "content": "a"}], field: value}))
    assert (status, error["param"]) == (400, field)
    assert re.fullmatch(got, error["message"]), error["message"]


@pytest.mark.parametrize(
    ("messages", "got"),
    [
        ("hello", '"hello"'),
        ([], "[]"),
        ([5], "5 at messages[0]"),
        ([{"content": "no role"}], "nothing at messages[0].role"),
        ([{"role": None, "content": "no role"}], "null at messages[0].role"),
        ([{"role": "user", "content": 5}], "5"),
        (
            [
                {"role": "user", "content": "a"},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]},
            ],
            '{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}',
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], '{"type": "text"}'),
        ([{"role": "user", "content": {"a": 1}}], '{"a": 1}'),
        ([{"role": "nobody", "content": "a"}], '"nobody" at messages[0].role'),
    ],
)
def test_wrong_messages(server: Server, messages: Any, got: str) -> None:
    status, error = refusal(server, post(CHAT, {"messages": messages}))
    got, _, place = got.partition(" at ")
    assert re.fullmatch(rf"{re.escape(place or 'messages')}: .+, got {re.escape(got)}", error["message"])
    assert (status, error["param"]) == (400, "messages")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/nowhere"), 404),
        (get("/v1/modelsandmore"), 404),
        (post("/v1/embeddings", {}), 404),
        (get(TEXT), 405),
        (post("/health", {}), 405),
        (get("/health", "DELETE"), 405),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 403),
        (b"GET / HTTP/1.0\r\n\r\n", 403),
        (post(TEXT, GOOD, Origin="http://example.org"), 403),
    ],
)
def test_wrong_addresses_methods_and_lengths(server: Server, data: bytes, status: int) -> None:
    assert refusal(server, data)[0] == status


def test_a_wrong_method_is_told_the_right_one(server: Server) -> None:
    assert exchange(server, get(TEXT))[1]["allow"] == "post"
    assert set(exchange(server, post("/health", {}))[1]["allow"].split(", ")) == {"get", "head"}


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: 127.0.0.1\r\n\r\n",
        post(TEXT, b"", Content_Length="-5"),
        post(TEXT, b"", Content_Length="1_000"),
        post(TEXT, b"", Content_Length="9" * 5000),
    ],
)
def test_what_is_no_request_at_all(server: Server, data: bytes) -> None:
    assert exchange(server, data)[0] in (400, 413)


def test_a_body_shorter_than_it_says(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(post(TEXT, GOOD, Content_Length="1000"))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1 << 16)[:12] in (b"", b"HTTP/1.1 400")


def test_an_oversized_body_is_refused_and_the_client_sees_it(server: Server) -> None:
    for size in (MAX_BODY + 1, 5_000_000):
        status, error = refusal(server, post(TEXT, {"prompt": "a" * size}))
        assert status == 413 and f"{MAX_BODY:,}" in error["message"]
    chunk = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert refusal(server, head + chunk * 3 + b"0\r\n\r\n")[0] == 413


def test_a_page_may_ask_when_it_is_allowed(server: Server) -> None:
    status, headers, _ = exchange(server, post(TEXT, GOOD, Origin="http://localhost:3000"))
    assert (status, headers["access-control-allow-origin"]) == (200, "http://localhost:3000")
    assert "access-control-allow-origin" not in exchange(server, post(TEXT, GOOD))[1]
    asked = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Private-Network: true\r\n\r\n"
    for origin, allowed in (("http://localhost:3000", 200), ("http://example.org", 400)):
        head = get(TEXT, "OPTIONS").removesuffix(b"\r\n") + f"Origin: {origin}\r\n{asked}".encode()
        assert exchange(server, head)[0] == allowed


def test_the_server_still_answers(server: Server) -> None:
    with connect(server) as silent, connect(server) as half:  # clients that never finish asking
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Le")
        began = time.monotonic()
        assert exchange(server, post(TEXT, GOOD))[0] == 200
        assert time.monotonic() - began < 10
        silent.close()


def test_null_means_the_default_and_fields_without_effect_are_named(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    body = {
        **GOOD,
        "temperature": None,
        "stop": None,
        "seed": None,
        "user": "me",
        "adapters": None,
        "xtc_probability": 0,
    }
    status, headers, _ = exchange(server, post(TEXT + "?a=b", body))
    assert (status, headers["x-spectool-ignored-fields"]) == (200, "user")
    strange = {"ignore_eos": True, "max_token": 5, "a\r\nb": 1}
    status, headers, _ = exchange(server, post(TEXT, {**body, **strange}))
    assert (status, headers["x-spectool-ignored-fields"]) == (200, "?, ignore_eos, max_token, user")
    assert '"ignore_eos"' in caplog.text
    many = exchange(server, post(TEXT, {**body, **{f"field{i}": 1 for i in range(1000)}}))[1]
    assert 1000 < len(many["x-spectool-ignored-fields"]) < 5000  # more than clients read was an error for them
    chat = {"messages": [{"role": "user", "content": "Most"}], "max_tokens": 1, "top_logprobs": 2}
    assert without_effect(checked(ChatRequest, chat)) == ["top_logprobs"]
    assert without_effect(checked(ChatRequest, {**chat, "logprobs": True})) == []


def test_fields_that_ask_for_nothing_special_are_let_through(server: Server) -> None:
    harmless = {
        "response_format": {"type": "text"},
        "echo": False,
        "suffix": None,
        "best_of": 1,
        "n": 1,
        "chat_template": None,
    }
    assert exchange(server, post(TEXT, {**GOOD, **harmless}))[0] == 200
    assert exchange(server, post(TEXT, {**GOOD, "suffix": ""}))[0] == 200


def test_what_the_model_cannot_do_is_refused(server: Server, tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    body = {"messages": [{"role": "user", "content": "Dzień dobry!"}], "max_tokens": 2}
    status, error = refusal(server, post(CHAT, body))
    assert status == 400 and "no chat template" in error["message"]
    with serving(without_drafter, model=chat_model(tmp_path)) as chatting:
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            status, error = refusal(chatting, post(CHAT, {**body, "tools": [tool], "tool_choice": choice}))
            assert (status, error["param"]) == (400, "tool_choice")
            assert error["message"].endswith("cannot read tool calls of chatting")  # and not where it lies
        status, headers, plain = exchange(chatting, post(CHAT, body))
        assert (status, headers.get("x-spectool-ignored-fields")) == (200, None)
        for streamed in (False, True):  # agents always offer some
            status, headers, data = exchange(chatting, post(CHAT, {**body, "tools": [tool], "stream": streamed}))
            assert (status, headers["x-spectool-ignored-fields"]) == (200, "tools")
            if not streamed:
                assert json.loads(data)["choices"] == json.loads(plain)["choices"]
        for harmless in ({"tools": []}, {"tools": [tool], "tool_choice": "none"}):
            assert exchange(chatting, post(CHAT, {**body, **harmless}))[0] == 200
        calls = [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{"}}]
        spoilt = [{"role": "assistant", "tool_calls": calls}, *body["messages"]]
        assert exchange(chatting, post(CHAT, {**body, "messages": spoilt}))[0] == 200  # they stay text


def test_a_compressed_body_is_named(server: Server) -> None:
    packed = gzip.compress(json.dumps(GOOD).encode())
    status, _, data = exchange(server, post(TEXT, packed, Content_Encoding="gzip"))
    assert (status, b"Content-Encoding: expected none, got gzip" in data) == (415, True)
    assert exchange(server, get("/v1/models/"))[0] == 200


def test_keys_are_asked_for() -> None:
    with serving(without_drafter, api_keys=("sésame", "two")) as running:
        for headers in ({}, {"Authorization": "Bearer three"}, {"Authorization": "two"}, {"x_api_key": ""}):
            status, error = refusal(running, post(TEXT, GOOD, **headers))
            assert (status, error["type"]) == (401, "authentication_error")
        for path in ("/v1/models", "/v1/models/demo"):
            assert refusal(running, get(path))[0] == 401
        for path in ("/health", "/"):
            assert exchange(running, get(path))[0] == 200
        right = {"x_api_key": "two"}
        for headers in ({"Authorization": "Bearer two"}, {"authorization": "bearer  two"}, right):
            assert exchange(running, post(TEXT, GOOD, **headers))[0] == 200
        for wrong in ("Bearer none", "Basic dHdv"):  # what clients of two keys send in the other header
            assert exchange(running, post(TEXT, GOOD, Authorization=wrong, **right))[0] == 200
        assert exchange(running, post(TEXT, GOOD, x_api_key="sésame"))[0] == 200


def test_a_head_request_gets_the_headers_alone(server: Server) -> None:
    for path in ("/", "/health", "/v1/models"):
        status, headers, body = exchange(server, get(path, "HEAD"))
        assert (status, body) == (200, b"") and int(headers["content-length"]) > 0
    assert exchange(server, get(TEXT, "HEAD"))[::2] == (405, b"")


def test_every_field_of_openai_s_that_asks_for_something_else_has_a_rule() -> None:
    declared = ChatRequest.model_fields.keys() | CompletionRequest.model_fields.keys()
    assert {"n", "best_of", "echo", "suffix", "response_format", "tool_choice", "logit_bias", "stop"} <= declared


def test_every_rule_is_told() -> None:
    for kind in (ChatRequest, CompletionRequest):
        for name in kind.model_fields:
            with pytest.raises(RequestRefused, match=rf"{name}\S*: .+, got "):
                checked(kind, {"messages": [{"role": "user"}], "prompt": "a", name: object_of_no_use})


object_of_no_use = [[{}]]
