"""Answers of the server that have to look like something: forms, calls of tools, and what cannot be enforced."""

import json
import re
from typing import Any

import numpy as np
import pytest

from spectool import RuntimeUnsupported
from spectool.runtime.grammar import Grammar, literal
from spectool.serve import grammars
from spectool.serve.errors import checked
from spectool.serve.grammars import FORMS, grammar_of
from spectool.serve.requests import ChatRequest
from spectool.serve.server import Server
from spectool.tests.serve.questions import MESSAGES, TOOLS, writing_down
from spectool.tests.serve.servers import client, exchange, post
from spectool.tests.serve.test_call_forms import said

PERSON: Any = {
    "type": "object",
    "properties": {"imię": {"type": "string", "maxLength": 8}, "wiek": {"type": "integer", "maximum": 120}},
    "required": ["imię", "wiek"],
    "additionalProperties": False,
}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "osoba", "schema": PERSON, "strict": True}}
CITY: Any = {"type": "object", "properties": {"city": {"enum": ["Kraków", "Київ"]}}, "required": ["city"]}
CITY["additionalProperties"] = False
TOOL: Any = [{"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("weather", "time")]


def ask(server: Server, **options: Any) -> Any:
    return client(server).chat.completions.create(
        model="demo", messages=MESSAGES, **{"max_tokens": 200, "temperature": 1, "seed": 5, **options}
    )


def posted(server: Server, address: str, body: dict[str, Any]) -> tuple[int, Any]:
    status, _, data = exchange(server, post(address, body))
    return status, json.loads(data)


def named(tool: str) -> Any:
    return {"type": "function", "function": {"name": tool}}


@pytest.mark.nightly
def test_calls_that_are_required_are_made(chatting: Server) -> None:
    for choice in ("required", named("time")):
        answer = ask(chatting, tools=TOOL, tool_choice=choice).choices[0]
        assert not (answer.message.content or "").strip().partition("<tool_call>")[0]
        names = [call.function.name for call in answer.message.tool_calls]
        assert set(names) <= {"weather", "time"} if choice == "required" else names == ["time"]
        for call in answer.message.tool_calls:
            assert json.loads(call.function.arguments)["city"] in ("Kraków", "Київ")
    body = {"max_tokens": 200, "messages": [{"role": "user", "content": "a"}]}
    tools = [{"name": tool["function"]["name"], "input_schema": CITY} for tool in TOOL]
    for kind in ({"type": "any"}, {"type": "tool", "name": "time"}):
        _, message = posted(chatting, "/v1/messages", {**body, "tools": tools, "tool_choice": kind})
        assert message["content"][0]["type"] == "tool_use" and message["content"][0]["name"] in ("weather", "time")
    assert [block["name"] for block in message["content"]] == ["time"]
    tools = [{"type": "function", **tool["function"]} for tool in TOOL]
    choice = {"type": "function", "name": "time"}
    _, response = posted(chatting, "/v1/responses", {"input": "a", "tools": tools, "tool_choice": choice})
    assert [item["name"] for item in response["output"]] == ["time"] and response["tool_choice"] == choice


@pytest.mark.nightly
def test_forms_of_every_address(chatting: Server) -> None:
    forms: list[tuple[dict[str, Any], str]] = [
        ({"response_format": FORM}, r'\{\s*"imię"\s*:\s*".*"\s*,\s*"wiek"\s*:\s*-?\d+\s*\}'),
        ({"response_format": {"type": "json_object"}}, r"\{.*"),
        ({"structured_outputs": {"choice": ["tak", "nie"]}}, "tak|nie"),
        ({"structured_outputs": {"regex": "[0-9]{3}-[a-z]{2}"}}, "[0-9]{3}-[a-z]{2}"),
        ({"structured_outputs": {"grammar": 'root ::= ("ab" | "c") "d"'}}, "(ab|c)d"),
    ]
    for form, pattern in forms:
        asked = {"max_tokens": 200, "temperature": 1, "seed": 5, **form}
        _, chat = posted(chatting, "/v1/chat/completions", {"messages": MESSAGES, **asked})
        _, plain = posted(chatting, "/v1/completions", {"prompt": "Most w", **asked})
        chunks = ask(chatting, stream=True, extra_body=form)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        for text in (chat["choices"][0]["message"]["content"], plain["choices"][0]["text"], streamed):
            assert re.fullmatch(pattern, text, re.DOTALL), (form, text)
        assert streamed == chat["choices"][0]["message"]["content"]
    text = {"format": {"type": "json_schema", "name": "osoba", "schema": PERSON}}
    _, response = posted(chatting, "/v1/responses", {"input": "a", "text": text, "temperature": 1, "seed": 3})
    assert json.loads(response["output"][0]["content"][0]["text"]).keys() == {"imię", "wiek"}


@pytest.mark.parametrize(
    ("fields", "named", "reason"),
    [
        ({"response_format": {**FORM, "json_schema": {"schema": {"type": "strin"}}}}, "response_format", "strin"),
        (
            {"response_format": {**FORM, "json_schema": {"strict": True, "schema": {"uniqueItems": True}}}},
            "response_format",
            "uniqueItems",
        ),
        ({"response_format": FORM, "structured_outputs": {"regex": "a"}}, "structured_outputs", "response_format"),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs", "unclosed group"),
        ({"structured_outputs": {"grammar": "start: word"}}, "structured_outputs", "word"),
        ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs", "grammar"),
        ({"structured_outputs": {"grammar": 'start: "a" start'}}, "structured_outputs", "too dear"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice", "no"),
        *(
            (
                {"tools": [{"type": "function", "function": {"name": "spis", "parameters": {"type": kind}}}]}
                | {"tool_choice": "required"},
                "tools",
                reason,
            )
            for kind, reason in (("strin", "strin"), ("array", "spis"), (["string", "null"], "spis"))
        ),
    ],
)
def test_what_cannot_be_enforced_is_refused(chatting: Server, fields: Any, named: str, reason: str) -> None:
    status, answer = posted(chatting, "/v1/chat/completions", {"messages": MESSAGES, **fields})
    assert status == 400 and answer["error"]["param"] == named
    message = answer["error"]["message"]
    assert message.startswith(named) and reason in message and "rules" not in message  # a word of ours


@pytest.mark.nightly
def test_what_is_too_large_neither_hangs_nor_stops_the_server(chatting: Server) -> None:
    from openai import BadRequestError

    deep: Any = {"type": "string"}
    for _ in range(80):
        deep = {"anyOf": [deep, {"type": "integer"}]}
    for schema in (
        deep,
        {"properties": {str(i): {"type": "string"} for i in range(20_000)}},
        {"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {}}} for j in range(8)]} for i in range(8)]},
        {"type": "integer", "multipleOf": 10**9 + 7},
    ):
        with pytest.raises(BadRequestError, match="response_format"):
            ask(chatting, response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    assert ask(chatting, max_tokens=3).choices[0].finish_reason == "length"


@pytest.mark.parametrize("kind", list(FORMS))
def test_calls_that_are_enforced_are_read(kind: str) -> None:
    arguments, marker = (
        [{"city": "Kraków"}, {"city": "Київ"}],
        "<tool_call>" if kind == "json_tools" else "[TOOL_CALLS]",
    )
    begin, before, after, between, end = FORMS[kind]
    calls = [before.replace("{}", "weather") + json.dumps(each) + after for each in arguments]
    text, found = said(kind.removesuffix("[ARGS]"), marker + begin + between.join(calls) + end, tools=TOOL)
    assert (text.strip(), found) == ("", [("weather", each) for each in arguments])


def test_an_answer_may_be_a_call_where_tools_are_offered(chatting: Server) -> None:
    tokenizer = chatting.engine.model.tokenizer
    call = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    with writing_down(chatting, call):
        answer = ask(chatting, tools=TOOLS, response_format=FORM)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert literal(tokenizer, "</s>a") == '<[2]> "a"' and isinstance(Grammar(tokenizer, "regex", "a").kind, str)


def enforced(server: Server, tool: dict[str, Any], text: str) -> bool:
    """Whether an answer that has to call ``tool`` may be ``text``, to its end."""
    model, function = server.engine.model, {"type": "function", "function": tool}
    request = ChatRequest(messages=MESSAGES, tools=[function], tool_choice=named(tool["name"]))  # type: ignore[list-item]
    return follows(server, grammar_of(request, model, reasoning=False), text)


def follows(server: Server, grammar: Grammar | None, text: str) -> bool:
    """Whether an answer of this grammar may be ``text``, to its end."""
    assert grammar is not None
    model = server.engine.model
    constraint = grammar.constraint(model.vocabulary)
    try:
        constraint.commit(grammar.vocabulary.trie.greedy_tokenize(text))
    except RuntimeUnsupported:
        return False
    return bool(np.array(constraint.masks())[0][list(model.ends)].any())


def call_of(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n</tool_call>'


def strict_and_not(schema: Any = CITY) -> ChatRequest:
    functions = [{"name": "weather", "strict": True, "parameters": schema}, {"name": "a/b", "parameters": CITY}]
    tools = [{"type": "function", "function": function} for function in functions]
    return checked(ChatRequest, {"messages": [{"role": "user", "content": "a"}], "tools": tools})


@pytest.mark.parametrize("kind", list(FORMS))
def test_a_call_of_a_strict_tool_fits_its_schema_where_the_model_decides_to_make_one(
    chatting: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = chatting.engine.model.tokenizer
    if kind != "json_tools":
        monkeypatch.setattr(tokenizer, "_tool_call_start", "[TOOL_CALLS]")
        monkeypatch.setattr(tokenizer, "_tool_call_end", "")
        monkeypatch.setattr(grammars, "form_of_calls", lambda _: kind)
    (begin, before, after, between, end), request = FORMS[kind], strict_and_not()
    grammar = grammar_of(request, chatting.engine.model, reasoning=False)
    fits, wrong = '{"city": "Kraków"}', '{"city": "Kraków", "foo": true}'

    def called(name: str, *arguments: str) -> str:
        calls = between.join(before.replace("{}", name) + each + after for each in arguments)
        return tokenizer.tool_call_start + begin + calls + end

    def bare(name: str, arguments: str) -> str:
        return f'{{"name": "{name}", "arguments": {arguments}}}'

    for text, follow in {
        "": True,
        "Nie wiem. <tool i [TOOL": True,
        called("weather", fits, fits): True,
        f"Sprawdzam. {called('weather', fits)}": True,
        called("a/b", wrong): True,
        called("weather", wrong): False,
        called("weather", fits, wrong): False,
        f"Sprawdzam. {called('weather', wrong)}": False,
        f"Sprawdzam. {called('weather', fits)}{called('weather', wrong)}": False,
        called("other", fits): False,
        bare("weather", fits): True,
        f"```json\n{bare('weather', fits)}\n{bare('a/b', wrong)}\n```": True,
        bare("weather", wrong): False,
        f"{bare('a/b', wrong)}\n{bare('weather', wrong)}": False,
        f"```json\n{bare('weather', wrong)}": False,
        f"To jest {bare('weather', wrong)}": True,  # no call, because text precedes it
        bare("other", wrong): True,  # nor is this one
    }.items():
        assert follows(chatting, grammar, text) == follow, text
    assert sorted(request.without_effect) == []


def test_an_answer_of_a_schema_may_be_a_strict_call_instead(chatting: Server) -> None:
    request = strict_and_not()
    form = {"response_format": FORM, "messages": MESSAGES, "tools": [tool.model_dump() for tool in request.tools]}
    grammar = grammar_of(checked(ChatRequest, form), chatting.engine.model, reasoning=False)
    for text, follow in {
        '{"imię": "Ala", "wiek": 3}': True,
        call_of("weather", '{"city": "Kraków"}') * 2: True,
        call_of("weather", '{"city": 5}'): False,
        f"Nie wiem. {call_of('weather', '{}')}": False,
        "Nie wiem.": False,
    }.items():
        assert follows(chatting, grammar, text) == follow, text


def test_a_strict_tool_that_cannot_be_enforced_is_named(chatting: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    request = strict_and_not({"type": "object", "propertyNames": {"pattern": "a"}})
    assert grammar_of(request, chatting.engine.model, reasoning=False) is None
    assert sorted(request.without_effect) == ["tools.function.strict"]
    monkeypatch.setattr(grammars, "form_of_calls", lambda _: "glm47")
    request = strict_and_not()
    assert grammar_of(request, chatting.engine.model, reasoning=False) is None
    assert sorted(request.without_effect) == ["tools.function.strict"]
    monkeypatch.setattr(chatting.engine.model.tokenizer, "_tool_call_start", None)  # as GPT-OSS, which has channels
    request = checked(ChatRequest, {"messages": MESSAGES, "tools": TOOL, "response_format": FORM})
    assert grammar_of(request, chatting.engine.model, reasoning=False) is not None
    assert sorted(request.without_effect) == ["tools"]


@pytest.mark.nightly
def test_a_model_that_breaks_a_strict_schema_is_kept_to_it(chatting: Server) -> None:
    tools = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": CITY}}]
    wrong = '{"city": 5, "foo": true}'
    for text in (call_of("weather", wrong), f'{{"name": "weather", "arguments": {wrong}}}'):
        for asked in (tools, json.loads(json.dumps(tools).replace("true", "false"))):
            with writing_down(chatting, text, constrained=True):
                (call,) = ask(chatting, tools=asked, temperature=0).choices[0].message.tool_calls
            city = json.loads(call.function.arguments)["city"]
            assert city in (("Kraków", "Київ") if asked is tools else (5,))
    with writing_down(chatting, "Nie wiem.", constrained=True):
        assert ask(chatting, tools=tools).choices[0].message.content == "Nie wiem."


def test_enforced_calls_are_calls_that_are_read(chatting: Server) -> None:
    union = {"anyOf": [{"type": "object"}, {"type": "null"}]}
    for schema in ({"type": ["object", "null"]}, {"type": "object"}, {}, union):
        tool = {"name": "f", "parameters": schema}
        for arguments, fits in (("{}", True), ('{"a": 1}', True), ("null", False), ("[]", False)):
            assert enforced(chatting, tool, call_of("f", arguments)) == fits, (schema, arguments)
    assert enforced(chatting, {"name": "f"}, call_of("f", "{}"))
    assert not enforced(chatting, {"name": "f"}, call_of("f", '{"miasto": "Łódź"}'))
    name = 'a"b\\c{}ą'
    text = call_of(name, "{}")
    assert enforced(chatting, {"name": name}, text)
    assert said("json_tools", text, tools=[{"function": {"name": name}}]) == ("", [(name, {})])


def test_a_schema_that_cannot_be_followed_at_a_later_place_is_an_error_there(chatting: Server) -> None:
    from openai import APIError

    many = {"properties": {f"p{i}": {} for i in range(700)}}
    schema = {"type": "array", "items": {"type": "object", **many}, "minItems": 1}
    body = {"prompt": "Most w", "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    status, answer = posted(chatting, "/v1/completions", body)
    assert (status, answer["error"]["param"]) == (400, "response_format")
    assert "cannot continue after" in answer["error"]["message"] and "too dear" in answer["error"]["message"]
    with pytest.raises(APIError, match="cannot continue after"):
        list(ask(chatting, response_format=body["response_format"], stream=True))
