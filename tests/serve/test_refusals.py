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


def test_bodies_that_are_no_request(server: Server) -> None:
    for value in (b"NaN", b"1e999", b"9" * 5000, b'"\\ud800"'):
        assert refusal(server, post(TEXT, b'{"prompt": "a", "seed": ' + value + b"}"))[0] == 400, value
    for body in (b"", b"{", b"\xff\xfe{}", b"[1, 2]", b'"text"', b"null", b"[" * 15_000, b"{}"):
        assert refusal(server, post(TEXT, body))[0] == 400, body


# Each field alone; `test_limits` asks all of them for strange values.
WRONG: dict[str, list[Any]] = {
    "prompt": [5, ["a"] * 17, [1, "a"], [-1], [], [[1], []]],
    "model": [5],
    "max_tokens": ["five", 0, True, 2.5, 2**63],
    "temperature": [-1, "hot", 2.01],
    "presence_penalty": [3],
    "frequency_penalty": [-3],
    "max_completion_tokens": [0],
    "top_p": [1.5],
    "top_k": [-2, 2**63],
    "min_p": [[0.1]],
    "seed": [-2, 2**63],
    "stop": [5, [""], ["a"] * 65],
    "logit_bias": [{"one": 1}, {"1": "more"}, {"99999": 5}],
    "logprobs": [21],
    "n": [17],
    "stream": ["yes"],
    "stream_options": [True],
    "num_draft_tokens": [1_000_000],
    "repetition_context_size": [-1, 2**31],
    "xtc_probability": [2],
    "response_format": ["text", {"type": "json"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}],
    "echo": [True],
    "suffix": [" the end"],
    "best_of": [4],
    "chat_template": ["{{ 1 }}"],
    "adapters": ["./adapter"],
    "draft_model": ["owner/model"],
}
FUNCTION: dict[str, Any] = {"type": "function", "function": {}}
WRONG_IN_CHATS: dict[str, list[Any]] = {
    "top_logprobs": [21],
    "logprobs": [3],
    "tools": [{}, [{"type": "web_search"}], [FUNCTION]],
    "tool_choice": ["sometimes", FUNCTION, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}],
    "chat_template_kwargs": [{"chat_template": "{{ 1 }}"}, {"tokenize": False}],
    "prediction": [
        "text",
        {"content": "text"},
        {"type": "image", "content": "text"},
        {"type": "content", "content": 5},
    ],
}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values(server: Server, field: str) -> None:
    for value in WRONG[field]:
        status, error = refusal(server, post(TEXT, {**GOOD, field: value}))
        assert (status, error["param"]) == (400, field), value
        assert re.match(rf"{field}[^:]*: .+(, got .+|, expected .+)", error["message"]), error["message"]


def test_wrong_values_of_a_chat(server: Server) -> None:
    for field, values in WRONG_IN_CHATS.items():
        for value in values:
            body = {"messages": [{"role": "user", "content": "a"}], field: value}
            status, error = refusal(server, post(CHAT, body))
            assert (status, error["param"]) == (400, field), value


def test_the_error_of_a_value_of_several_kinds_is_that_of_the_kind_that_was_meant(server: Server) -> None:
    for value, got in (([], r"prompt: List should have at least 1 item.*, got \[\]"), ([[1], []], r"prompt\[1\]: .*")):
        assert re.fullmatch(got, refusal(server, post(TEXT, {"prompt": value}))[1]["message"])


@pytest.mark.parametrize(
    ("messages", "got", "place"),
    [
        ("hello", '"hello"', "messages"),
        ([5], "5", "messages[0]"),
        ([{"content": "no role"}], "nothing", "messages[0].role"),
        ([{"role": "nobody", "content": "a"}], '"nobody"', "messages[0].role"),
        ([{"role": "user", "content": 5}], "5", "messages"),
        ([{"role": "user", "content": [{"type": "text"}]}], '{"type": "text"}', "messages"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], '{"type": "image_url"}', "messages"),
    ],
)
def test_wrong_messages(server: Server, messages: Any, got: str, place: str) -> None:
    status, error = refusal(server, post(CHAT, {"messages": messages}))
    assert re.fullmatch(rf"{re.escape(place)}: .+, got {re.escape(got)}", error["message"])
    assert (status, error["param"]) == (400, "messages")


NO_LENGTH = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (get("/nowhere"), {404}),
        (get("/v1/modelsandmore"), {404}),
        (get(TEXT), {405}),
        (post("/health", {}), {405}),
        (NO_LENGTH + b"\r\n", {400}),
        (NO_LENGTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
        (b"GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", {403}),
        (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", {403}),
        (b"GET / HTTP/1.0\r\n\r\n", {403}),
        (post(TEXT, GOOD, Origin="http://example.org"), {403}),
        (b"nonsense\r\n\r\n", {400}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: 127.0.0.1\r\n\r\n", {400}),
        (post(TEXT, b"", Content_Length="-5"), {400, 413}),
        (post(TEXT, b"", Content_Length="9" * 5000), {400, 413}),
    ],
)
def test_wrong_addresses_methods_and_lengths(server: Server, data: bytes, statuses: set[int]) -> None:
    assert exchange(server, data)[0] in statuses


def test_a_wrong_method_is_told_the_right_one(server: Server) -> None:
    assert exchange(server, get(TEXT))[1]["allow"] == "post"
    assert set(exchange(server, post("/health", {}))[1]["allow"].split(", ")) == {"get", "head"}


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
    nothing = {"temperature": None, "stop": None, "seed": None, "adapters": None, "xtc_probability": 0}
    body = {**GOOD, **nothing, "user": "me"}
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
    harmless = {"response_format": {"type": "text"}, "echo": False, "suffix": None, "best_of": 1, "n": 1}
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


def test_every_rule_is_told() -> None:
    for kind in (ChatRequest, CompletionRequest):
        for name in kind.model_fields:
            with pytest.raises(RequestRefused, match=rf"{name}\S*: .+, got "):
                checked(kind, {"messages": [{"role": "user"}], "prompt": "a", name: [[{}]]})
