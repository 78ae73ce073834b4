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
from starlette.datastructures import URL
from starlette.requests import Request

from spectool.serve.errors import RequestRefused, checked
from spectool.serve.gate import parse_json
from spectool.serve.requests import ChatRequest, CompletionRequest
from spectool.serve.server import Server
from spectool.tests.commands.chatting import chat_model
from spectool.tests.serve.servers import connect, exchange, get, post, serving, without_drafter

MAX_BODY = 20_000
TEXT = "/v1/completions"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
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
    for body in (gzip.compress(b"{}"), b"", b"{", b"\xff\xfe{}", b"[1, 2]", b'"text"', b"null", b"[" * 15_000, b"{}"):
        assert refusal(server, post(TEXT, body))[0] == 400, body


def test_a_body_of_many_objects_is_refused() -> None:
    """Each of them would take a hundred times as much memory as in the body."""
    assert parse_json(json.dumps({"user": [{}] * 99_999}).encode())
    with pytest.raises(RequestRefused, match=r"100,000 objects.*got 100,001"):
        parse_json(json.dumps({"user": [{}] * 100_000}).encode())


FUNCTION: dict[str, Any] = {"type": "function", "function": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
NO_SCHEMA = {"type": "json_schema", "name": "a"}
USER = {"role": "user", "content": "a"}
LEAST: dict[str, Any] = {
    TEXT: GOOD,
    CHAT: {"messages": [USER]},
    RESPONSES: {"input": "a"},
    MESSAGES: {"messages": [USER]},
}
# Wrong values of fields, each alone; `test_limits` asks many of them for strange ones.
WRONG: dict[str, dict[str, list[Any]]] = {
    TEXT: {
        "prompt": [5, ["a"] * 17, [1, "a"], [-1], [], [[1], []]],
        "max_tokens": ["five", 0, True, 2.5, 2**63],
        "max_completion_tokens": [0],
        "temperature": [-1, "hot"],
        "presence_penalty": [1e7],
        "frequency_penalty": [-1e7],
        "top_p": [1.5],
        "top_k": [-2],
        "seed": [-2, 2**63],
        "stop": [5, [""], ["a"] * 65],
        "logit_bias": [{"one": 1}, {"1": "more"}, {"99999": 5}],
        "logprobs": [21],
        "n": [17],
        "num_draft_tokens": [1_000_000],
        "repetition_context_size": [-1, 2**31],
        "xtc_probability": [2],
        "echo": [True],
        "suffix": [" the end"],
        "best_of": [4],
        "response_format": ["text", {"type": "yaml"}, NO_SCHEMA, {"type": "grammar", "grammar": "a"}],
        "structured_outputs": [{"choice": []}, {"json": 5}, {"structural_tag": "{}"}, {"regex": "a", "json": {}}],
        **{f"guided_{kind}": ["a"] for kind in ("json", "regex", "choice", "grammar", "patch")},
        **{kind: ["{}"] for kind in ("structural_tag", "json_schema", "regex", "grammar", "ebnf")},
    },
    CHAT: {
        "messages": ["hello", [5], [{"content": "no role"}], [{"role": "nobody", "content": "a"}], []],
        "logprobs": [3],
        "top_logprobs": [21],
        "functions": [[FUNCTION]],
        "modalities": [["text", "audio"]],
        "tools": [{}, [{"type": "web_search"}], [FUNCTION]],
        "tool_choice": [
            "sometimes",
            FUNCTION,
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        ],
        "chat_template_kwargs": [{"chat_template": "{{ 1 }}"}, {"tokenize": False}],
        "prediction": [
            "text",
            {"content": "text"},
            {"type": "image", "content": "a"},
            {"type": "content", "content": 5},
        ],
    },
    RESPONSES: {
        "input": [[], [5], [{"type": "computer_call"}], [{"type": ["message"]}], [{"role": "robot", "content": "a"}]],
        "previous_response_id": ["resp_1"],
        "conversation": ["conv_1"],
        "background": [True],
        "text.format": [5, NO_SCHEMA],
        "tools": [
            5,
            [5],
            [{"type": "function"}],
            [{"type": "namespace", "name": "a", "tools": [5, {"type": "custom"}]}],
        ],
        "instructions": [5],
        "max_output_tokens": [0],
    },
    MESSAGES: {
        "system": [0],
        "tool_choice": [[], {"name": "f"}],
        "messages": [
            "a",
            [5],
            [],
            [{"role": "user", "content": [5]}],
            [{"role": "user", "content": [{"type": ["text"]}]}],
        ],
        "tools": [[{"name": 5, "input_schema": {}}]],
        "temperature": [-5],
        "stop_sequences": [[""]],
        "output_config.format": [{"type": "json_schema"}],
    },
}
for path, items in ((CHAT, "messages"), (RESPONSES, "input"), (MESSAGES, "messages")):
    WRONG[path][items] += [[{"role": "user", "content": content}] for content in (5, [IMAGE])]


@pytest.mark.parametrize(("path", "field"), [(path, field) for path in WRONG for field in WRONG[path]])
def test_wrong_values_are_refused_in_the_form_and_with_the_names_of_the_protocol(
    server: Server, path: str, field: str
) -> None:
    for value in WRONG[path][field]:
        outer, _, inner = field.partition(".")
        status, _, data = exchange(server, post(path, {**LEAST[path], outer: {inner: value} if inner else value}))
        document = json.loads(data)
        error = document["error"]
        assert (status, error["type"], error.get("param", field)) == (400, "invalid_request_error", field), value
        assert (document.get("type") == "error") == (path == MESSAGES)
        assert re.match(rf"{field}[^:]*: .+(, got .+|, expected .+|Send .+)", error["message"]), error["message"]


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        (TEXT, {"prompt": []}, r"prompt: List should have at least 1 item.*, got \[\]"),
        (TEXT, {"prompt": [[1], []]}, r"prompt\[1\]: .*"),
        (CHAT, {"messages": [5]}, r"messages\[0\]: Input should be an object, got 5"),
        (CHAT, {"messages": [{"role": "nobody"}]}, r'messages\[0\].role: .+, got "nobody"'),
        (CHAT, {"messages": None}, "messages: Field required, got nothing"),
        (MESSAGES, {"messages": [{"content": "a"}]}, r"messages\.role: Field required, got nothing"),
        (TEXT, {"logprobs": 21}, "logprobs: Input should be less than or equal to 20, got 21"),
        (MESSAGES, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": "no"}}, 'tool_choice.*, got "no"'),
        (CHAT, {"modalities": ["text", "audio"]}, r'modalities\[1\]: .*, got "audio"'),
        (CHAT, {"logit_bias": {"a": 1}}, "logit_bias.a: The name should be a token id, got 1"),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}]}, 'input: .*store: false.*"msg_1"'),
        (RESPONSES, {"instructions": "a", "input": [{"role": "nobody"}]}, r'input\.role: .+, got "nobody"'),
        (MESSAGES, {"tools": [{"type": "web_search"}, {"name": "f", "strict": 5}]}, r"tools\.strict: .+, got 5"),
        (f"{MESSAGES}/count_tokens", {"messages": [USER], "stop_sequences": [5]}, r"stop_sequences\[0\]: .+, got 5"),
    ],
)
def test_an_error_names_the_place_and_what_is_there(server: Server, path: str, body: Any, problem: str) -> None:
    _, _, data = exchange(server, post(path, {**LEAST.get(path, {}), **body}))
    assert re.fullmatch(problem, json.loads(data)["error"]["message"]), data


NO_LENGTH = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (get("/nowhere"), {404}),
        (get("/v1/modelsandmore"), {404}),
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
    for asked, right in ((get(TEXT), {"post"}), (post("/health", {}), {"get", "head"})):
        status, headers, _ = exchange(server, asked)
        assert (status, set(headers["allow"].split(", "))) == (405, right)


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
    nothing |= {"response_format": {"type": "text"}, "echo": False, "suffix": "", "best_of": 1, "n": 1}
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
    assert sorted(checked(ChatRequest, chat).without_effect) == ["top_logprobs"]
    assert sorted(checked(ChatRequest, {**chat, "logprobs": True}).without_effect) == []


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


def test_keys_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(without_drafter, api_keys=("ключ х", "two")) as running:  # whose last byte is a space in Latin-1
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
        for headers in ({"x_api_key": "ключ х"}, {"Authorization": "Bearer ключ х "}):
            assert exchange(running, post(TEXT, GOOD, **headers))[0] == 200
        # Starlette before 1.0.1 made the address of Host and path as they came.
        as_they_come = property(lambda self: URL(f"http://{self.headers['host']}{self.scope['path']}"))
        monkeypatch.setattr(Request, "url", as_they_come)
        assert refusal(running, post(TEXT, GOOD, Host="localhost/?"))[0] == 401


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
