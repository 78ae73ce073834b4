"""What the server refuses, and that every refusal is clean JSON and harms nobody else."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spectool.serve.requests import RULES, RequestRefused, parse_body, parse_length
from spectool.serve.server import Server
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
    assert headers["Content-Type"] == "application/json"
    assert int(headers["Content-Length"]) == len(body)
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
        ("prompt", ["a", "b"]),
        ("model", 5),
        ("max_tokens", "five"),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("max_tokens", 2.5),
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 1.5),
        ("top_k", -1),
        ("min_p", [0.1]),
        ("seed", -1),
        ("seed", 2**64),
        ("stop", 5),
        ("stop", [""]),
        ("stop", ["a"] * 17),
        ("logit_bias", {"one": 1}),
        ("logit_bias", {"1": "more"}),
        ("logit_bias", {"99999": 5}),
        ("logprobs", 3),
        ("top_logprobs", 12),
        ("n", 2),
        ("stream", "yes"),
        ("stream_options", True),
        ("num_draft_tokens", 1_000_000),
        ("repetition_context_size", -1),
        ("repetition_context_size", 2**31),
        ("xtc_probability", 2),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}),
        ("response_format", "text"),
        ("echo", True),
        ("suffix", " the end"),
        ("best_of", 4),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "weather"}}),
        ("chat_template", "{{ 1 }}"),
        ("adapters", "./adapter"),
        ("draft_model", "owner/model"),
        ("chat_template_kwargs", {"chat_template": "{{ 1 }}"}),
        ("chat_template_kwargs", {"tokenize": False}),
    ],
)
def test_wrong_values(server: Server, field: str, value: Any) -> None:
    status, error = refusal(server, post(TEXT, {**GOOD, field: value}))
    assert status == 400
    assert error["param"] == field and field in error["message"]


@pytest.mark.parametrize(
    "messages",
    [
        "hello",
        [],
        [5],
        [{"content": "no role"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
    ],
)
def test_wrong_messages(server: Server, messages: Any) -> None:
    status, error = refusal(server, post(CHAT, {"messages": messages}))
    assert (status, error["param"]) == (400, "messages")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/nowhere"), 404),
        (get("/v1/modelsandmore"), 404),
        (post("/v1/embeddings", {}), 404),
        (get(TEXT), 405),
        (post("/metrics", {}), 405),
        (get("/health", "DELETE"), 501),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"POST /v1/completions HTTP/1.1\r\n\r\n", 411),
        (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (post(TEXT, b"", Content_Length="-5"), 400),
        (post(TEXT, b"", Content_Length="1_000"), 400),
        (post(TEXT, b"", Content_Length="many"), 400),
        (post(TEXT, b"", Content_Length="9" * 5000), 413),
        (post(TEXT, GOOD, Origin="http://example.org"), 403),
    ],
)
def test_wrong_addresses_methods_and_lengths(server: Server, data: bytes, status: int) -> None:
    assert refusal(server, data)[0] == status


def test_a_body_shorter_than_it_says(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(post(TEXT, GOOD, Content_Length="1000"))
        connection.shutdown(socket.SHUT_WR)
        assert b" 400 " in connection.recv(1 << 16).split(b"\r\n")[0]


def test_an_oversized_body_is_refused_and_the_client_sees_it(server: Server) -> None:
    for size in (MAX_BODY + 1, 5_000_000):
        status, error = refusal(server, post(TEXT, {"prompt": "a" * size}))
        assert status == 413 and f"{MAX_BODY:,}" in error["message"]


def test_a_page_may_ask_when_it_is_allowed(server: Server) -> None:
    status, headers, _ = exchange(server, post(TEXT, GOOD, Origin="http://localhost:3000"))
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, "http://localhost:3000")
    assert "Access-Control-Allow-Origin" not in exchange(server, post(TEXT, GOOD))[1]


def test_the_server_still_answers(server: Server) -> None:
    with connect(server) as silent, connect(server) as half:  # clients that never finish asking
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Le")
        began = time.monotonic()
        assert exchange(server, post(TEXT, GOOD))[0] == 200
        assert time.monotonic() - began < 10
        silent.close()


def test_null_means_the_default_and_unknown_fields_are_not_looked_at(server: Server) -> None:
    body = {
        **GOOD,
        "temperature": None,
        "stop": None,
        "seed": None,
        "user": "me",
        "adapters": None,
        "xtc_probability": 0,
    }
    assert exchange(server, post(TEXT + "?a=b", body))[0] == 200


def test_fields_that_ask_for_nothing_special_are_let_through(server: Server) -> None:
    harmless = {
        "response_format": {"type": "text"},
        "echo": False,
        "suffix": None,
        "best_of": 1,
        "n": 1,
        "tool_choice": "auto",
        "chat_template": None,
    }
    assert exchange(server, post(TEXT, {**GOOD, **harmless}))[0] == 200
    assert exchange(server, post(TEXT, {**GOOD, "suffix": ""}))[0] == 200


def test_tools_are_refused_where_the_model_cannot_call_them(server: Server) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    body = {"messages": [{"role": "user", "content": "Dzień dobry!"}], "max_tokens": 2, "tools": [tool]}
    status, error = refusal(server, post(CHAT, body))
    assert (status, error["param"]) == (400, "tools") and "no tool calls of" in error["message"]
    for harmless in ({"tools": []}, {"tool_choice": "none"}):
        assert exchange(server, post(CHAT, {**body, **harmless}))[0] == 200


def test_a_head_request_gets_the_headers_alone(server: Server) -> None:
    for path in ("/", "/health", "/v1/models"):
        status, headers, body = exchange(server, get(path, "HEAD"))
        assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 0
    assert exchange(server, get(TEXT, "HEAD"))[::2] == (405, b"")


def test_every_field_that_mlx_lm_reads_has_a_rule() -> None:
    import inspect
    import re

    from mlx_lm.server import APIHandler

    read = set(re.findall(r'body(?:\.get\(|\[)\s*"(\w+)"', inspect.getsource(APIHandler)))
    assert len(read) > 25
    assert read <= set(RULES)


def test_lengths() -> None:
    assert parse_length("10", None, 10) == 10
    with pytest.raises(RequestRefused) as refused:
        parse_length("11", None, 10)
    assert refused.value.status == 413


def test_the_first_model_is_meant_where_none_is_named() -> None:
    for body in (b'{"prompt": "a"}', b'{"prompt": "a", "model": "default_model"}', b'{"prompt": "a", "model": null}'):
        assert parse_body(body, ["one", "two"], "prompt")["model"] == "one"
    assert parse_body(b'{"prompt": "a", "model": "two"}', ["one", "two"], "prompt")["model"] == "two"
