"""Requests in the forms in which clients send them, and what the model gets to read of them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIError, BadRequestError

from spectool.serve import prompts
from spectool.serve.answers import Answer
from spectool.serve.protocols import messages, responses
from spectool.serve.server import Server
from spectool.tests.serve.questions import TOOLS, chatting_model
from spectool.tests.serve.servers import client, exchange, post, serving, without_drafter
from spectool.tests.serve.test_adapters import anthropic, both

pytestmark = pytest.mark.nightly
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "a"}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
SHOWN = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for m in messages %}[{{ m.role }}]"
    "{{ 'no calls' if m.tool_calls is defined and not m.tool_calls else '' }}"
    "{{ m.reasoning_content or '' }}|{{ m.content }}{% for call in m.tool_calls or [] %}"
    "{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}{% endfor %}"
)
# As Qwen 3.5 and Mistral have it.
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first or not loop.first and m.role == "
    "messages[loop.index0 - 1].role %}{{ raise_exception('roles') }}{% endif %}{% endfor %}"
) + SHOWN

# As Gemma has it.
PREFIXED = (
    "{% set first = messages[0].content if messages[0].role == 'system' else '' %}{% for m in messages %}"
    "{% if m.role != 'system' %}[{{ m.role }}]{{ first if loop.index0 < 2 }}|{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = chatting_model(tmp_path_factory.mktemp("chatting"))
    with serving(without_drafter, model=model, served_names=("demo",), max_prompt_tokens=5000) as running:
        yield running


def read_by_model(server: Server, path: str, body: dict[str, Any], template: str = SHOWN, named: str = "") -> str:
    """The text that a request is for a model with a template; the answer may have to name fields without effect."""
    texts: list[str] = []
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    with pytest.MonkeyPatch.context() as patched:
        encode = prompts.encode
        patched.setattr(prompts, "encode", lambda tokenizer, text: texts.append(text) or encode(tokenizer, text))
        patched.setattr(server.engine.model.tokenizer._tokenizer, "chat_template", template)
        status, headers, data = exchange(server, post(path, {limit: 1, **body}))
    assert status == 200, data
    assert named in ("", headers.get("x-spectool-ignored-fields"))
    return texts[0]


def called(arguments: str | None = "{}") -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def said(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


USED = {"type": "tool_use", "id": "c", "name": "weather", "input": {}}
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=abcde;"}
REFUSAL = {"type": "refusal", "refusal": "no"}
UMOWA = {"type": "text", "media_type": "text/plain", "data": "Umowa"}
DOCUMENT = {"type": "document", "source": UMOWA, "title": "A.txt"}
FOUR = [called(), called(None), called("null"), called("")]
LOG = {"type": "function_call", "namespace": "mcp__git", "name": "log", "arguments": "{}"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": ""}
RESULT = {
    "type": "tool_result",
    "tool_use_id": "c",
    "content": [{"type": "tool_reference", "tool_name": "x"}, DOCUMENT],
}


@pytest.mark.parametrize(
    ("path", "turns", "text"),
    [
        (CHAT, [{"role": "user", "content": ["a", {"type": "input_text", "text": "b"}]}], "[user]|ab"),
        (CHAT, [USER, said("")], "[user]|a"),
        (CHAT, [USER, said([REFUSAL])], "[user]|a[assistant]|no"),
        (CHAT, [USER, said("b", reasoning="hm")], "[user]|a[assistant]hm|b"),
        (
            CHAT,
            [USER, said("b", tool_calls=[]), USER, said(tool_calls=FOUR), {"role": "tool", "content": "r"}],
            f"[user]|a[assistant]|b[user]|a[assistant]|{'weather({})' * 4}[tool]|r",
        ),
        (RESPONSES, [{"type": None, **USER}, said(), USER], "[user]|a[assistant]|[user]|a"),
        (RESPONSES, [USER, said([REFUSAL])], "[user]|a[assistant]|no"),
        (
            RESPONSES,
            [USER, LOG, {"type": "function_call_output", "output": "r"}],
            "[user]|a[assistant]|mcp__git__log({})[tool]|r",
        ),
        (
            MESSAGES,
            [{"role": "user", "content": [DOCUMENT, {"type": "text", "text": "a"}]}],
            "[user]|A.txt\nUmowa\n\na",
        ),
        (MESSAGES, [USER, said([THOUGHT, {**THOUGHT, "thinking": None}]), USER], "[user]|a[assistant]hm|[user]|a"),
        (
            MESSAGES,
            [USER, said([THOUGHT, USED]), {"role": "user", "content": [RESULT]}],
            "[user]|a[assistant]hm|weather({})[tool]|xA.txt\nUmowa\n\n",
        ),
    ],
)
def test_what_earlier_answers_and_tools_left_is_read(server: Server, path: str, turns: list[Any], text: str) -> None:
    assert read_by_model(server, path, {"input" if path == RESPONSES else "messages": turns}) == text


def test_what_a_client_bills_is_no_part_of_the_system_prompt(server: Server) -> None:
    whole = BILLING["text"] + "\nS"
    for system, text in (
        ([BILLING], ""),
        ([BILLING, {"type": "text", "text": "S"}], "[system]|S"),
        (whole, "[system]|S"),
    ):
        assert read_by_model(server, MESSAGES, {"system": system, "messages": [USER]}) == f"{text}[user]|a"


def test_a_template_that_takes_one_system_message_gets_one(server: Server) -> None:
    """Codex sends instructions and messages of the developer's, Claude Code system messages later on."""
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "D"}]}
    codex = {"instructions": "I", "input": [developer, USER]}
    assert read_by_model(server, RESPONSES, codex, STRICT) == "[system]|I\n\nD[user]|a"
    assert read_by_model(server, RESPONSES, codex) == "[system]|I[system]|D[user]|a"
    turns = [USER, USER, {"role": "assistant", "content": "b"}, {"role": "system", "content": "S"}, USER]
    body = {"system": "I", "messages": turns}
    assert read_by_model(server, MESSAGES, body, STRICT) == "[system]|I[user]|a\n\na[assistant]|b[user]|S\n\na"
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    calls = [USER, {"role": "assistant", "tool_calls": [called()]}, result, result]
    written = '[user]|a[assistant]|{"name": "weather", "arguments": {}}[user]|r\n\nr'  # results cannot be joined
    assert read_by_model(server, CHAT, {"messages": calls}, STRICT) == written


def test_a_template_without_tools_gets_the_calls_of_another_model_as_text(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation goes on with Gemma, whose template wants user and assistant in turn."""
    monkeypatch.setattr(type(server.engine.model.tokenizer), "has_tool_calling", False)
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    calls = [USER, {"role": "assistant", "content": "b", "tool_calls": [called(), called()]}, result, result, USER]
    call = '{"name": "weather", "arguments": {}}'
    text = f"[user]|a[assistant]|b\n{call}\n{call}[user]|r\n\nr\n\na"
    assert read_by_model(server, CHAT, {"messages": calls, "tools": TOOLS}, STRICT) == text


# As Phi-3-mini has it, and as Llama 2 and Vicuna do.
NO_RESULTS = "{% for m in messages if m.role in ('user', 'assistant') %}[{{ m.role }}]|{{ m.content }}{% endfor %}"
ONE_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]|{{ m.content }}{% endif %}{% endfor %}"
)
AS_JSON = SHOWN.replace("|{{ m.content }}", "|{{ m.content | tojson }}")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (NO_RESULTS, '[user]|S\n\na[assistant]|b\n{"name": "weather", "arguments": {}}[user]|it\'s\nr\n\nT'),
        (ONE_SYSTEM, 'S[user]|a[assistant]|b\n{"name": "weather", "arguments": {}}[user]|it\'s\nr\n\nT'),
        (AS_JSON, '[system]|"S"[user]|"a"[assistant]|"b"weather({})[tool]|"it\'s\\nr"[system]|"T"'),
    ],
)
def test_what_a_template_leaves_out_is_shown_as_text(server: Server, template: str, text: str) -> None:
    turns = [
        {"role": "system", "content": "S"},
        USER,
        {"role": "assistant", "content": "b", "tool_calls": [called()]},
        {"role": "tool", "tool_call_id": "c", "content": "it's\nr"},
        {"role": "system", "content": "T"},
    ]
    assert read_by_model(server, CHAT, {"messages": turns}, template) == text
    assert "r" in read_by_model(server, CHAT, {"messages": turns[1:4]}, template).rpartition("[")[2]


def test_what_is_left_out_beside_calls_is_named(server: Server) -> None:
    """As Llama 3 has it."""
    turns = [USER, {"role": "assistant", "content": "b", "tool_calls": [called()]}, {"role": "tool", "content": "r"}]
    template = STRICT.replace("|{{ m.content }}", "|{{ m.content if not m.tool_calls else '' }}")
    read = read_by_model(server, CHAT, {"messages": turns}, template, "messages.content")
    assert read == "[user]|a[assistant]|weather({})[tool]|r"


def test_what_no_turn_shows_is_refused(server: Server) -> None:
    deaf = "{% for m in messages if m.role == 'assistant' %}{{ m.content }}{% endfor %}"
    with pytest.raises(AssertionError, match=r"messages: expected roles that the model.* shows, got user"):
        read_by_model(server, CHAT, {"messages": [USER]}, deaf)


def encoded(kind: str, media_type: str) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": "AAAA"}}


PAGES = {**encoded("document", "application/pdf"), "title": "A.pdf"}
SEEN = [encoded("image", "image/png"), PAGES]
SHOT = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x"}}
FILES = [{"type": "input_image", "image_url": "x"}, {"type": "input_file"}]


@pytest.mark.parametrize(
    ("path", "message", "text", "named"),
    [
        (
            MESSAGES,
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": SEEN}]},
            "(an image)(a document)",
            "messages.content.content.image, messages.content.content.source.base64, messages.content.content.title",
        ),
        (CHAT, {"role": "tool", "content": ["a", SHOT]}, "a(an image)", "messages.content.image_url"),
        (
            RESPONSES,
            {"type": "function_call_output", "output": FILES},
            "(an image)(a file)",
            "input.output.input_file, input.output.input_image",
        ),
    ],
)
def test_a_word_stands_for_what_is_no_text_in_the_result_of_a_tool(
    server: Server, path: str, message: Any, text: str, named: str
) -> None:
    """A client could only begin anew if it were refused."""
    body = {"input" if path == RESPONSES else "messages": [USER, message]}
    assert read_by_model(server, path, body, named=named) == f"[user]|a[tool]|{text}"


@pytest.mark.parametrize("arguments", ['{"a": "\\ud83d"}', "[" * 500, '{"city": "Łó', "[1]", "5", [1]])
def test_arguments_that_no_call_can_have_stay_text(server: Server, arguments: Any) -> None:
    """An answer that was cut, or another server, has left them in the conversation, so it would be refused for ever."""
    calls = [called(), called(arguments)]
    turns = [USER, {"role": "assistant", "tool_calls": calls}, {"role": "tool", "content": "r"}, USER]
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    kept = json.dumps({"name": "weather", "arguments": written}, ensure_ascii=False)
    text = read_by_model(server, CHAT, {"messages": turns})
    assert text == f"[user]|a[assistant]|{kept}weather({{}})[tool]|r[user]|a"


def test_own_items_of_responses_are_known_by_their_ids(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the AI SDK sends, which takes everything to be stored. Others send reasoning whole."""
    tokenizer = server.engine.model.tokenizer
    monkeypatch.setattr(tokenizer, "_think_start", "<think>")
    monkeypatch.setattr(tokenizer, "_think_end", "</think>")
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Łódź"}}</tool_call>'
    tools: Any = [{"type": "function", "name": "weather"}]
    asked: Any = {"input": [USER], "tools": tools, "max_output_tokens": 200}
    for response in both(server, client(server).responses, f"<think>Hm.</think>Tak. {call}", **asked):
        reasoning, message, made = response.output
        assert (reasoning.type, message.type, made.type) == ("reasoning", "message", "function_call")
        result = {"type": "function_call_output", "call_id": made.call_id, "output": "r"}
        shown = '[user]|a[assistant]Hm.|Tak. weather({"city": "Łódź"})[tool]|r'
        for items in (
            [{"type": "item_reference", "id": item.id} for item in response.output],
            [item.model_dump() for item in response.output],
            [{"type": "item_reference", "id": reasoning.id}, message.model_dump(), made.model_dump()],
        ):
            assert read_by_model(server, RESPONSES, {"input": [USER, *items, result]}) == shown
    summary = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    read = read_by_model(server, RESPONSES, {"input": [USER, summary, {"role": "assistant", "content": "b"}, USER]})
    assert read == "[user]|a[assistant]Hm.|b[user]|a"


def test_items_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("_kept", {}), ("_MOST_KEPT", 3), ("_MOST_BYTES", 200)):
        monkeypatch.setattr(responses, name, limit)
    responses.keep({"id": str(number)} for number in range(4))
    assert list(responses._kept) == ["1", "2", "3"]
    responses.keep([{"id": "4", "text": "a" * 150}])
    assert list(responses._kept) == ["2", "3", "4"]
    responses.keep([{"id": "5", "text": "a" * 250}])
    assert not responses._kept


def test_tools_in_a_namespace_are_called_there(server: Server) -> None:
    """Codex has the tools of MCP servers in namespaces."""
    inner = [
        {"type": "function", "name": "_log", "description": "Tells it.", "parameters": {"type": "object"}},
        {"type": "custom", "name": "patch"},
    ]
    asked: Any = {"input": "a", "max_output_tokens": 200}
    asked["tools"] = [{"type": "namespace", "name": "mcp__git__", "description": "Git.", "tools": inner}]
    shown = read_by_model(server, RESPONSES, asked)
    assert '"name": "mcp__git__log"' in shown and "in_namespace" not in shown
    names = {"mcp__git__log": {}, "mcp__git__patch": {"input": "*** Łata"}}
    calls = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in names.items()]
    written = "".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)
    for response in both(server, client(server).responses, written, **asked):
        found = [(call.type, call.name, call.namespace) for call in response.output]
        assert found == [("function_call", "_log", "mcp__git__"), ("custom_tool_call", "patch", "mcp__git__")]


def test_fields_of_a_chat_have_their_effect_in_the_other_protocols() -> None:
    """Nothing that a client sends is dropped without a word."""
    form = {"type": "json_object", "schema": SCHEMA}
    for request in (
        responses.chat_of({"input": "a", "response_format": form, "max_completion_tokens": 3}),
        messages.chat_of({"messages": [USER], "response_format": form, "stop": ["b"], "max_tokens": 3}),
    ):
        assert request.form and (request.form.value, request.limit) == (SCHEMA, 3)
    assert request.stop == ["b"]


def test_a_stream_of_responses_says_that_the_conversation_is_too_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex shortens a conversation then, but not after an error with the status 400."""
    monkeypatch.setattr(server.engine.model, "longest_token", 1e-4)
    asked: Any = {"model": "demo", "input": "Wczoraj"}
    with client(server).responses.stream(**asked) as stream:  # which requires that response.created comes first
        *_, event = stream
    assert event.type == "response.failed" and event.response.error
    assert event.response.error.code == "context_length_exceeded"
    with pytest.raises(BadRequestError, match="prompt is too long"):
        client(server).responses.create(**asked)
    with pytest.raises(BadRequestError, match="prompt is too long"):
        client(server).chat.completions.create(model="demo", messages=[USER], stream=True)  # type: ignore[list-item]


def test_what_cannot_fit_is_refused_before_it_is_tokenized_and_counted_all_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.engine.model.tokenizer._tokenizer, "chat_template", SHOWN)
    long = "a " * 100_000
    tool = {"name": "weather", "description": long}
    counted = anthropic(server).messages.count_tokens
    assert counted(model="demo", messages=[USER], tools=[{**tool, "input_schema": {}}]).input_tokens > 100_000  # type: ignore[list-item,typeddict-item]
    for name in ("encode", "encode_prompt"):
        monkeypatch.setattr(prompts, name, None)
    call = said(tool_calls=[called(json.dumps({"city": long}))])
    for body in (
        {"messages": [USER], "tools": [{"type": "function", "function": tool}]},
        {"messages": [USER, call, {"role": "tool", "tool_call_id": "c", "content": "b"}]},
        {"prompt": [long, *["a"] * 15]},
    ):
        status, _, data = exchange(server, post(CHAT if "messages" in body else "/v1/completions", body))
        assert (status, b"prompt is too long" in data) == (400, True), data


def test_an_error_in_the_middle_of_a_stream_is_the_client_s_exception(server: Server) -> None:
    add = Answer.add

    def fail(answer: Answer, token: int, logprobs: Any) -> Any:
        if len(answer.tokens) > 2:
            raise ValueError("no such luck")
        return add(answer, token, logprobs)

    asked: Any = {"model": "demo", "messages": [USER], "max_tokens": 20, "stream": True}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Answer, "add", fail)
        for api, error in ((client(server).chat.completions, APIError), (anthropic(server).messages, Exception)):
            with pytest.raises(error, match="no such luck"):
                list(api.create(**asked))  # type: ignore[call-overload]
        *_, last = client(server).responses.create(model="demo", input="a", stream=True)
    assert last.type == "response.failed" and last.response.error and "no such luck" in last.response.error.message


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_alone_reaches_models_that_put_it_before_a_question(server: Server, role: str) -> None:
    alone, both = [{"role": role, "content": "b"}], [{"role": role, "content": "b"}, USER]
    assert read_by_model(server, CHAT, {"messages": alone}, PREFIXED) == "[user]|b"
    assert read_by_model(server, CHAT, {"messages": [*alone, *alone]}, PREFIXED) == "[user]|b\n\nb"
    assert read_by_model(server, CHAT, {"messages": both}, PREFIXED) == "[user]b|a"
    assert read_by_model(server, CHAT, {"messages": alone}) == "[system]|b"
