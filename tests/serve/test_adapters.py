"""The protocols of Claude Code and Codex, with the official clients of both."""

import json
from collections import deque
from typing import TYPE_CHECKING, Any, get_args

import pytest
from openai.types.responses import ResponseStreamEvent

from spectool.serve.answers import Answer, Prompt
from spectool.serve.deltas import Delta
from spectool.serve.errors import RequestRefused
from spectool.serve.protocols import responses
from spectool.serve.protocols.messages import MessageWriter, chat_of
from spectool.serve.server import Server
from spectool.tests.serve.questions import CHAT, TOKENS, alone, writing_down
from spectool.tests.serve.servers import client, exchange, get, post
from spectool.tests.serve.test_answers import CALL
from spectool.tests.serve.test_call_forms import splitter_of

if TYPE_CHECKING:
    from anthropic import Anthropic

pytestmark = pytest.mark.nightly

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
SAID = alone(CHAT).removeprefix(" ")


def anthropic(server: Server, key: str = "none") -> "Anthropic":
    from anthropic import Anthropic  # not above: it takes two seconds, in every process that collects tests

    return Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=60)


def both(server: Server, api: Any, text: str, /, **asked: Any) -> tuple[Any, Any]:
    """The answer of an API as a whole and as a stream, where the model writes this text."""
    with writing_down(server, text, text):
        whole = api.create(model="demo", **asked)
        with api.stream(model="demo", **asked) as stream:
            ended = getattr(stream, "get_final_message", None) or stream.get_final_response
            return whole, ended()


def test_messages(chatting: Server) -> None:
    asked: Any = {
        "model": "demo",
        "system": "Wczoraj",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "wieczorem w domu"}]}],
        "max_tokens": TOKENS,
    }
    api = anthropic(chatting).messages
    message = api.create(**asked)
    assert [(block.type, getattr(block, "text", "")) for block in message.content] == [("text", SAID)]
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", TOKENS)
    assert api.count_tokens(**{name: asked[name] for name in ("model", "system", "messages")}).input_tokens == (
        message.usage.input_tokens
    )
    with api.stream(**asked) as stream:
        assert "".join(stream.text_stream) == SAID
        final = stream.get_final_message()
    assert (final.stop_reason, final.content[0].type) == ("max_tokens", "text")
    assert final.usage.output_tokens == TOKENS
    stopped = api.create(**asked, stop_sequences=["nothing", SAID[8:12]])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", SAID[8:12])


def test_tools_of_messages(chatting: Server) -> None:
    call = {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Łódź"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "Pada."}]}
    asked: Any = {
        "messages": [
            {"role": "user", "content": "Pogoda?"},
            {"role": "assistant", "content": [{"type": "text", "text": "Sprawdzam."}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "I co?"}]},
        ],
        "tools": [
            {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "max_tokens": 200,
    }
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "pogoda"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    ran = {"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {}}
    asked["messages"][1]["content"] += [search, found, ran]  # by a model that ran elsewhere
    api = anthropic(chatting).messages
    for each in both(chatting, api, f"Sprawdzam. {CALL}", **asked):
        assert each.stop_reason == "tool_use"
        text, use = each.content
        assert text.type == "text" and text.text == "Sprawdzam. "
        assert use.type == "tool_use" and (use.name, use.input) == ("weather", {"city": "Łódź"})
    assert api.count_tokens(model="demo", messages=asked["messages"]).input_tokens > 5


@pytest.mark.usefixtures("thinking")
def test_reasoning_of_messages_is_signed(chatting: Server) -> None:
    """pydantic-ai sends reasoning back as the user's text if it has no signature."""
    asked: Any = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 200}
    asked["stop_sequences"] = ["Hm", "."]  # ends the answer, and not what precedes it
    for message in both(chatting, anthropic(chatting).messages, "<think>Hm.</think>Tak. Nie.", **asked):
        thinking, text = message.content
        assert thinking.type == "thinking" and (thinking.thinking, bool(thinking.signature)) == ("Hm.", True)
        assert text.type == "text" and (text.text, message.stop_sequence) == ("Tak", ".")


def test_models_as_both_clients_list_them(chatting: Server) -> None:
    (named,) = anthropic(chatting).models.list()
    (same,) = client(chatting).models.list()
    assert named.id == named.display_name == same.id and named.type == same.object == "model"
    assert (
        named.created_at.timestamp()
        == same.created
        == anthropic(chatting).models.retrieve(same.id).created_at.timestamp()
    )


def test_v1_may_be_left_out_of_every_address(chatting: Server) -> None:
    said: Any = {"model": "demo", "max_tokens": 3, "messages": [{"role": "user", "content": "a"}]}
    for path in ("/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens"):
        asked = said if path.startswith(("/messages", "/chat")) else {"model": "demo", "prompt": "a", "max_tokens": 3}
        asked = {"input": "a"} if path == "/responses" else asked
        assert exchange(chatting, post(path, asked))[0] == 200
    assert [exchange(chatting, get(path))[0] for path in ("/models", "/models/demo")] == [200, 200]
    status, _, data = exchange(chatting, post("/messages", {**said, "temperature": -5}))
    assert (status, json.loads(data)["type"]) == (400, "error")


def test_responses(chatting: Server) -> None:
    api = client(chatting).responses
    asked: Any = {"model": "demo", "instructions": "Wczoraj", "input": "wieczorem w domu", "max_output_tokens": TOKENS}
    response = api.create(**asked)
    assert response.output_text == SAID
    assert response.status == "incomplete" and response.incomplete_details is not None
    assert response.usage is not None and response.usage.output_tokens == TOKENS
    with api.stream(**asked) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == SAID
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.incomplete"


@pytest.mark.usefixtures("thinking")
def test_reasoning_of_responses_is_counted(chatting: Server) -> None:
    tokenizer = chatting.engine.model.tokenizer
    thought, said = "<think>Hm, niech pomyślę.</think>", "Tak."
    with writing_down(chatting, thought + said, said):
        response, without = (client(chatting).responses.create(model="demo", input="I co?") for _ in range(2))
    assert response.output_text == without.output_text == said
    assert response.usage is not None and without.usage is not None
    expected = len(tokenizer.encode(thought, add_special_tokens=False))
    assert abs(response.usage.output_tokens_details.reasoning_tokens - expected) <= 1
    assert without.usage.output_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize(("end", "reason"), [("abort", "abort"), ("length", "max_output_tokens")])
def test_an_incomplete_response_says_why(end: str, reason: str) -> None:
    request = responses.chat_of({"input": "a"})
    writer = responses.ResponseWriter(request)
    deque(writer.add(Delta(0, "text", end=end)), 0)
    whole = writer.whole([Answer(request, Prompt([]))])
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert whole["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("size", [3, 10**6])
def test_text_between_calls_stays_between_them(size: int) -> None:
    """Also in forms whose calls are certain only once more text follows."""
    splitter = splitter_of("qwen3_coder")
    writer = MessageWriter(chat_of({"messages": [{"role": "user", "content": "a"}], "max_tokens": 9}))
    call = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    text = f"One. {call}\nTwo. {call}{call}\nThree."
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    for piece in [*(splitter.add(each) for each in pieces), splitter.add("", last=True)]:
        deque(writer.add(piece), 0)
    texts = ["One. ", "call", "\nTwo. ", "call", "call", "\nThree."]
    assert [block.kind if block.call else block.text for block in writer.blocks] == texts


def test_tools_of_responses(chatting: Server) -> None:
    asked: Any = {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Pogoda?"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city": "Łódź"}'},
            {"type": "function_call_output", "call_id": "a", "output": "Pada."},
            # As Codex sends them where another model has used such a tool before.
            {"type": "web_search_call", "status": "completed"},
            {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** Begin Patch"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": "Done!"},
        ],
        "tools": [
            {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False},
            {"type": "web_search"},
        ],
        "text": {"verbosity": "low"},
    }
    named = "input.web_search_call, text.verbosity, tools.web_search, verbose"
    raw = client(chatting).responses.with_raw_response.create(
        **asked, max_output_tokens=1, extra_body={"verbose": True}
    )
    assert raw.headers["x-spectool-ignored-fields"] == named
    for each in both(chatting, client(chatting).responses, f"Sprawdzam. {CALL}", **asked):
        message, call = each.output
        assert each.status == "completed" and message.type == "message"
        assert call.type == "function_call" and json.loads(call.arguments) == {"city": "Łódź"}


def test_one_call_at_a_time(chatting: Server) -> None:
    ask = {"max_tokens": 200, "max_output_tokens": 200, "input": "a", "messages": [{"role": "user", "content": "a"}]}
    plain = {"name": "weather", "parameters": SCHEMA}
    for path, fields in (
        ("chat/completions", {"tools": [{"type": "function", "function": plain}], "parallel_tool_calls": False}),
        ("responses", {"tools": [{"type": "function", **plain}], "parallel_tool_calls": False}),
        (
            "messages",
            {
                "tools": [{"name": "weather", "input_schema": SCHEMA}],
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            },
        ),
    ):
        with writing_down(chatting, CALL * 2):
            status, _, data = exchange(chatting, post(f"/v1/{path}", {**ask, **fields}))
        assert (status, data.count("Łódź".encode())) == (200, 1), data


def test_an_error_in_a_stream_of_responses_is_the_one_outside_of_streams() -> None:
    writer = responses.ResponseWriter(responses.chat_of({"input": "a"}))
    for refusal, code, message in (
        (RequestRefused(400, "messages: too deep", param="messages"), "invalid_prompt", "input: too deep"),
        (RequestRefused(503, "the server is stopping"), "server_error", "the server is stopping"),
        (RequestRefused(429, "too many"), "rate_limit_exceeded", "too many"),
    ):
        error = writer.error(refusal)["response"]["error"]
        assert error == {"code": code, "message": message}


@pytest.mark.usefixtures("thinking")
def test_events_of_responses_have_what_their_types_require(chatting: Server) -> None:
    asked = {"input": "a", "tools": [{"type": "function", "name": "weather"}], "stream": True}
    with writing_down(chatting, f"<think>Hm.</think>Sprawdzam. {CALL}"):
        *_, data = exchange(chatting, post("/v1/responses", asked))
    events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    kinds = {
        get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(get_args(ResponseStreamEvent)[0])
    }
    texts: dict[int, str] = {}
    for event in events:
        kinds[event["type"]].model_validate(event)
        if event["type"] == "response.content_part.added":
            texts[event["output_index"]] = event["part"]["text"]
        elif event["type"].endswith("_text.delta"):  # openai's client for JavaScript refuses one without its part
            texts[event["output_index"]] += event["delta"]
    assert list(texts.values()) == ["Hm.", "Sprawdzam. "]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "message", "function_call"]
