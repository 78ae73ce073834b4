"""Every field of the APIs' clients does what it says, is refused, or is named in the header."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as Chat
from openai.types.completion_create_params import CompletionCreateParamsStreaming as Text
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming as Response

from spectool.serve.errors import RequestRefused, checked
from spectool.serve.grammars import grammar_of
from spectool.serve.options import ServerOptions
from spectool.serve.protocols import messages, responses
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest, without_effect
from spectool.serve.server import Server
from spectool.tests.serve.questions import TOOLS

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION = TOOLS[0]["function"]
# What clients of each API may send; every value asks for something else than the default.
ANY: dict[str, Any] = {"metadata": {"a": "b"}, "model": "demo", "stream": True, "temperature": 0.5, "top_p": 0.5}
OPENAI = ANY | {
    "frequency_penalty": 1, "logit_bias": {"5": 1}, "max_tokens": 5, "n": 2, "presence_penalty": 1, "seed": 5,
    "service_tier": "flex", "stop": "a", "store": True, "stream_options": {"include_usage": True}, "user": "me",
    "prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit"}, "prompt_cache_retention": "24h",
    "safety_identifier": "me", "moderation": {"model": "m"}, "parallel_tool_calls": False,
}  # fmt: skip
CHAT: dict[str, Any] = OPENAI | {
    "messages": [{"role": "user", "content": "b"}], "audio": {"format": "mp3", "voice": "ash"}, "function_call": "auto",
    "functions": [FUNCTION], "logprobs": True, "max_completion_tokens": 5, "modalities": ["audio"], "verbosity": "low",
    "prediction": {"type": "content", "content": "a"}, "reasoning_effort": "high", "tools": TOOLS, "top_logprobs": 2,
    "response_format": {"type": "json_object"}, "tool_choice": "required", "web_search_options": {},
}  # fmt: skip
TEXT: dict[str, Any] = OPENAI | {"best_of": 2, "echo": True, "logprobs": 3, "prompt": "b", "suffix": " c"}
RESPONSE: dict[str, Any] = OPENAI | {
    "access_programs": ["a"], "background": True, "background_options": {}, "context_management": [{}],
    "conversation": "c", "image": {"a": 1}, "include": ["message.output_text.logprobs"], "input": "b",
    "instructions": "c", "max_output_tokens": 5, "max_tool_calls": 1, "previous_response_id": "r",
    "prompt": {"id": "p"},
    "reasoning": {"effort": "high"}, "text": {"format": {"type": "json_object"}}, "tool_choice": "required",
    "tools": [{"type": "function", **FUNCTION}], "top_logprobs": 2, "truncation": "auto",
}  # fmt: skip
MESSAGE: dict[str, Any] = ANY | {
    "cache_control": {"type": "ephemeral"}, "container": "c", "diagnostics": {"a": 1}, "inference_geo": "eu",
    "max_tokens": 5, "messages": [{"role": "user", "content": "b"}], "output_config": {"effort": "low"},
    "service_tier": "priority", "speed": "fast", "stop_sequences": ["a"], "system": "c",
    "thinking": {"type": "disabled"},
    "tool_choice": {"type": "any"}, "tools": [{"name": "f", "input_schema": SCHEMA}], "top_k": 5,
    "user_profile_id": "u",
    "workspace_id": "w", "betas": ["b"], "billing_policy": {"a": 1}, "compaction": {"a": 1},
    "context_management": {"edits": []}, "fallback_credit_token": "t", "fallbacks": [{"model": "m"}],
    "mcp_servers": [{"name": "m"}], "thread": {"id": "t"},
}  # fmt: skip
USER = {"messages": [{"role": "user", "content": "a"}]}


def message_params() -> Any:
    from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as Beta
    from anthropic.types.message_create_params import MessageCreateParamsStreaming as Message

    return Message.__annotations__ | Beta.__annotations__


@pytest.mark.parametrize(
    ("fields", "samples", "read", "least"),
    [
        (lambda: Chat.__annotations__, CHAT, lambda body: checked(ChatRequest, body), USER),
        (lambda: Text.__annotations__, TEXT, lambda body: checked(CompletionRequest, body), {"prompt": "a"}),
        (lambda: Response.__annotations__, RESPONSE, responses.chat_of, {"input": "a"}),
        (message_params, MESSAGE, messages.chat_of, USER),
    ],
    ids=["chat", "text", "responses", "messages"],
)
def test_a_field_does_what_it_says_or_is_refused_or_is_named(
    fields: Callable[[], Any], samples: Any, read: Callable[[Any], GenerationRequest], least: Any
) -> None:
    plain = read(least).model_dump(include=set(type(read(least)).model_fields))
    for field in fields():
        assert field in samples, f"{field}: the client has a field of which this test has no value"
        try:
            request = read({**least, field: samples[field]})
        except RequestRefused as refusal:
            assert field in str(refusal).partition(",")[0], refusal
            continue
        named = any(name.partition(".")[0] == field for name in without_effect(request))
        does = request.model_dump(include=set(type(request).model_fields)) != plain
        assert named or does, f"{field} is taken silently"


def named_by(body: dict[str, Any]) -> list[str]:
    return without_effect(responses.chat_of({"input": "a", **body}))


def test_promises_are_not_taken_silently() -> None:
    with pytest.raises(RequestRefused, match=r"background: .*nothing is stored.*, got true"):
        named_by({"background": True})
    assert named_by({"store": True, "include": ["message.output_text.logprobs"]}) == ["include", "store"]
    assert named_by({"background": False}) == []
    assert named_by({"text": {"verbosity": "low"}, "tools": [{"type": "web_search"}]}) == [
        "text.verbosity",
        "tools.web_search",
    ]
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 5}, "output_config": {"effort": "low"}}
    assert without_effect(messages.chat_of({**USER, **thinking})) == ["output_config.effort", "thinking.budget_tokens"]


@pytest.mark.parametrize(
    ("field", "value", "form"),
    [
        ("structured_outputs", {"json": SCHEMA}, ("json_schema", SCHEMA)),
        ("structured_outputs", {"json": '{"type": "string"}'}, ("json_schema", '{"type": "string"}')),
        ("structured_outputs", {"json": {}}, ("json_schema", {})),
        ("structured_outputs", {"json_object": True}, ("json_schema", {"type": "object"})),
        ("structured_outputs", {"regex": "a+"}, ("regex", "a+")),
        ("structured_outputs", {"choice": ["a", "b"]}, ("choice", ["a", "b"])),
        ("structured_outputs", {"grammar": 'root ::= "a"'}, ("grammar", 'root ::= "a"')),
        ("response_format", {"type": "json_object"}, ("json_schema", {"type": "object"})),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": SCHEMA}}, ("json_schema", SCHEMA)),
    ],
)
def test_a_request_has_one_form(field: str, value: Any, form: Any) -> None:
    request = checked(ChatRequest, {**USER, field: value})
    assert request.constrained and request.form == (field, *form, False)
    other = {"structured_outputs": {"regex": "b"}, "response_format": {"type": "json_object"}}
    with pytest.raises(RequestRefused, match=r"expected none, because .* says what an answer looks like"):
        checked(ChatRequest, {**USER, **other, field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guided_json", SCHEMA),
        ("guided_regex", "a"),
        ("guided_choice", ["a"]),
        ("guided_grammar", 'root ::= "a"'),
        ("guided_patch", "a"),
        ("structural_tag", "{}"),
        ("json_schema", SCHEMA),
        ("regex", "a"),
        ("grammar", 'root ::= "a"'),
        ("ebnf", 'root ::= "a"'),
        ("structured_outputs", {"choice": []}),
        ("structured_outputs", {"json": 5}),
        ("response_format", {"type": "grammar", "grammar": "a"}),
        ("structured_outputs", {"structural_tag": "{}"}),
    ],
)
def test_forms_that_are_not_known_are_refused(field: str, value: Any) -> None:
    with pytest.raises(RequestRefused, match=f"^{field}.*, got "):
        checked(ChatRequest, {**USER, field: value})


def test_empty_forms_ask_for_nothing() -> None:
    assert not checked(ChatRequest, {**USER, "grammar": "", "regex": "", "json_schema": None}).constrained
    assert named_by({"guided_decoding_backend": "a"}) == ["guided_decoding_backend"]


def left_out(chatting: Server, schema: Any, strict: bool = False) -> list[str]:
    """What has no effect in an answer of this schema; it has to be enforced but for that."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": strict, "schema": schema}}
    request = checked(ChatRequest, {**USER, "response_format": form})
    assert grammar_of(request, chatting.engine.model, thinks=False)
    return without_effect(request)


def test_annotations_of_a_schema_are_left_out_and_named(chatting: Server) -> None:
    schema = {
        "properties": {
            "format": {"type": "string", "format": "path", "default": {"format": "x"}},
            "at": {"type": "array", "uniqueItems": True, "items": {"anyOf": [{"format": "date"}, {"format": "url"}]}},
        },
        "$defs": {"uniqueItems": {"const": {"uniqueItems": True}}},
    }
    named = [f"response_format.{name}" for name in ("format.path", "format.url", "uniqueItems")]
    assert left_out(chatting, schema) == named
    assert left_out(chatting, {"const": {"format": "path"}}) == []
    assert left_out(chatting, {"type": "string", "format": "path"}, strict=True) == ["response_format.format.path"]
    for refused, strict in ((schema, True), ({**schema, "not": {}}, False), ({**schema, "oneOf": [{}, {}]}, False)):
        with pytest.raises(RequestRefused, match=r"^response_format: "):
            left_out(chatting, refused, strict)
    function = {"name": "f", "parameters": {"properties": {"a": {"format": "path"}}}}
    asked = {**USER, "tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    request = checked(ChatRequest, asked)
    assert grammar_of(request, chatting.engine.model, thinks=False)
    assert without_effect(request) == ["tools.format.path"]


def test_a_format_is_enforced_or_named(chatting: Server) -> None:
    enforced = {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
    others = {"idn-email", "idn-hostname", "iri", "iri-reference", "uri-reference", "uri-template", "regex", "password"}
    for kind in enforced | others:
        named = left_out(chatting, {"type": "string", "format": kind})
        assert named == ([] if kind in enforced else [f"response_format.format.{kind}"])


def test_the_folder_s_name_is_the_model_s_and_its_path_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smol").mkdir()
    monkeypatch.chdir(tmp_path / "smol")
    for path in ("../smol", ".", str(tmp_path / "smol") + "/"):
        options = ServerOptions(model=path)
        assert options.names == ("smol",)
        assert [options.name_of(name) for name in ("smol", path, "default_model", "other")] == [*["smol"] * 3, None]
    assert ServerOptions(model="owner/name").names == ("owner/name",)
    served = ServerOptions(model="../smol", served_names=("demo",))
    assert (served.name_of("demo"), served.name_of("../smol"), served.name_of("smol")) == ("demo", None, None)
