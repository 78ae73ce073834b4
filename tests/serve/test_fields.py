"""Every field of the APIs' clients does what it says, is refused, or is named in the header."""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from spectool.serve.errors import RequestRefused, checked, own_name
from spectool.serve.grammars import grammar_of
from spectool.serve.options import ServerOptions
from spectool.serve.prompts import read_prompts
from spectool.serve.protocols import messages, responses
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest
from spectool.serve.server import Server
from spectool.tests.serve.request_types import fields_of, samples

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
USER = {"messages": [{"role": "user", "content": "a"}]}
# What a template of a model that reasons and calls tools shows.
SHOWN = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{{ enable_thinking }}{{ reasoning_effort }}"
    "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content or '' }}|{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}"
    "{% endfor %}"
)
# What errors name, and what brings results of tools into the order of their calls: two tests of their own.
NAMES = {"response_format.json_schema.name", "text.format.name"}
IDS = {"messages.tool_calls.id", "messages.tool_call_id", "input.call_id"}
IDS |= {"messages.content.id", "messages.content.tool_use_id"}


def kinds_of(path: str) -> list[Any]:
    """The types by which clients write requests of an endpoint."""
    if path == "/v1/messages":  # imported here, because each takes seconds in every process that collects tests
        from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as Beta
        from anthropic.types.message_create_params import MessageCreateParamsStreaming as Message

        return [Message, Beta]
    module, name = {
        "/v1/chat/completions": ("chat.completion_create_params", "CompletionCreateParamsStreaming"),
        "/v1/completions": ("completion_create_params", "CompletionCreateParamsStreaming"),
        "/v1/responses": ("responses.response_create_params", "ResponseCreateParamsStreaming"),
    }[path]
    return [getattr(import_module(f"openai.types.{module}"), name)]


class Walk:
    """Asks of each field of a client's types what a server makes of it."""

    def __init__(
        self, server: Server, read: Callable[[Any], GenerationRequest], path: str, least: dict[str, Any]
    ) -> None:
        self.server, self.read, self.path, self.least = server, read, path, least
        self.outcomes = Counter[str]()
        self.silent: list[str] = []
        self._seen = dict[str, Any]()

    def outcome(self, body: dict[str, Any]) -> Any:
        """What becomes of a body: a text where it is refused, or names and what the model is asked for."""
        key = json.dumps(body)
        if key not in self._seen:
            try:
                request = self.read(json.loads(key))
                prompts = read_prompts(
                    request, self.server.engine.model, ServerOptions(model="a", max_prompt_tokens=10**6)
                )
            except RequestRefused as refusal:
                self._seen[key] = str(refusal)
            else:
                shown = {"messages", "tools", "functions", "response_format", "reasoning_effort"}
                shown |= {"enable_thinking", "thinking"}
                settings = request.model_dump(include=type(request).model_fields.keys() - shown)
                asked = [(prompt.tokens, prompt.grammar is None) for prompt in prompts]
                names = {own_name(self.path, name) for name in request.without_effect}
                self._seen[key] = (names, settings, request.form, getattr(request, "callable_names", 0), asked)
        return self._seen[key]

    def ask(self, kind: Any, place: str, put: Callable[[Any], Any], above: frozenset[Any]) -> None:
        """Ask of the field at a place, and of those inside of what it may hold."""
        name = place.rpartition(".")[2]
        for value, inner in samples(kind, name):
            got = self.outcome(put(value))
            types = [
                each.get("type") for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)
            ]
            if isinstance(got, str):
                self.outcomes["refused"] += 1
            elif {place, *(f"{place}.{each}" for each in types)} & got[0]:
                self.outcomes["named"] += 1
            else:
                others = [self.outcome(put(other)) for other in (None, *OTHERS.get(type(value), ()))]
                if not inner and all(other == got for other in others) and place not in NAMES | IDS:
                    self.silent.append(f"{place} = {json.dumps(value)[:80]}")
                self.outcomes["acts"] += 1
                for field, (hint, with_it) in inner.items():
                    step = (field, str(hint))
                    if step not in above:
                        self.ask(hint, f"{place}.{field}", lambda one, f=with_it: put(f(one)), above | {step})


OTHERS: dict[type, Any] = {str: ("other",), bool: (False,), int: (1,), float: (0.0,), dict: ({},), list: ([],)}


@pytest.mark.parametrize(
    ("path", "read", "least"),
    [
        ("/v1/chat/completions", partial(checked, ChatRequest), USER),
        ("/v1/completions", partial(checked, CompletionRequest), {"prompt": "a"}),
        ("/v1/responses", responses.chat_of, {"input": "a"}),
        pytest.param("/v1/messages", messages.chat_of, USER, marks=pytest.mark.nightly),
    ],
)
def test_a_field_at_any_depth_does_what_it_says_or_is_refused_or_is_named(
    chatting: Server, path: str, read: Callable[[Any], GenerationRequest], least: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chatting.engine.model.tokenizer._tokenizer, "chat_template", SHOWN)
    walk = Walk(chatting, read, path, least)
    for kind in kinds_of(path):
        for name, hint in fields_of(kind).items():
            walk.ask(hint, name, lambda value, name=name: {**least, name: value}, frozenset())
    print(walk.outcomes)
    assert not walk.silent, "\n".join(walk.silent)


def read_by(chatting: Server, request: GenerationRequest) -> str:
    """What the model gets to read of a request."""
    model = chatting.engine.model
    (prompt,) = read_prompts(request, model, ServerOptions(model="a"))
    return str(model.tokenizer.decode(prompt.tokens))


def test_results_of_tools_come_in_the_order_of_their_calls(chatting: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose they are is not shown by every template."""
    monkeypatch.setattr(chatting.engine.model.tokenizer._tokenizer, "chat_template", SHOWN)
    ids, results = ("x", "y"), (("y", "later"), ("x", "first"))
    calls = [{"id": each, "type": "function", "function": {"name": each, "arguments": "{}"}} for each in ids]
    chat = [*USER["messages"], {"role": "assistant", "tool_calls": calls}]
    chat += [{"role": "tool", "tool_call_id": each, "content": text} for each, text in results]
    items: list[Any] = [*USER["messages"]]
    items += [{"type": "function_call", "call_id": each, "name": each, "arguments": "{}"} for each in ids]
    items += [{"type": "function_call_output", "call_id": each, "output": text} for each, text in results]
    uses = [{"type": "tool_use", "id": each, "name": each, "input": {}} for each in ids]
    blocks = [{"type": "tool_result", "tool_use_id": each, "content": text} for each, text in results]
    own = [*USER["messages"], {"role": "assistant", "content": uses}, {"role": "user", "content": blocks}]
    for request in (
        checked(ChatRequest, {"messages": chat}),
        responses.chat_of({"input": items}),
        messages.chat_of({"messages": own}),
    ):
        assert "|later" in read_by(chatting, request).partition("|first")[2]
        for message in request.messages:  # a result of another call leaves the others where they are
            message.tool_call_id = "z" if getattr(message, "tool_call_id", None) == "x" else "y"  # type: ignore[attr-defined]
        assert "|first" in read_by(chatting, request).partition("|later")[2]


def test_the_name_of_a_schema_is_in_errors(chatting: Server) -> None:
    schema = {"name": "osoba", "schema": {"type": "strin"}}
    for request in (
        checked(ChatRequest, {**USER, "response_format": {"type": "json_schema", "json_schema": schema}}),
        responses.chat_of({"input": "a", "text": {"format": {"type": "json_schema", **schema}}}),
    ):
        with pytest.raises(RequestRefused, match=r"^response_format: osoba: .*strin"):
            read_by(chatting, request)


@pytest.mark.parametrize(
    ("path", "fields", "shown", "named"),
    [
        ("/v1/chat/completions", {"reasoning_effort": "high"}, "True high", set()),
        ("/v1/chat/completions", {"reasoning_effort": "none"}, "False none", set()),
        ("/v1/chat/completions", {"enable_thinking": False}, "False ", set()),
        ("/v1/chat/completions", {"thinking": {"type": "disabled"}}, "False ", set()),
        ("/v1/chat/completions", {"thinking": {"type": "enabled"}}, "True ", set()),
        ("/v1/chat/completions", {"chat_template_kwargs": {"reasoning_effort": "low"}}, " low", set()),
        ("/v1/responses", {"reasoning": {"effort": "low", "summary": "auto"}}, "True low", {"reasoning.summary"}),
        ("/v1/messages", {"thinking": {"type": "disabled"}}, "False ", set()),
        ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 5}}, "True ", {"thinking.budget_tokens"}),
        ("/v1/messages", {"output_config": {"effort": "low"}}, "True low", set()),
    ],
)
def test_how_much_to_reason_reaches_templates_that_know_it(
    chatting: Server, path: str, fields: Any, shown: str, named: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = {"/v1/responses": responses.chat_of, "/v1/messages": messages.chat_of}.get(
        path, partial(checked, ChatRequest)
    )
    least: dict[str, Any] = {"input": "a"} if path == "/v1/responses" else USER
    for known in ("{{ thinking }} {{ reasoning_effort }}", "{{ enable_thinking }} {{ reasoning_effort }}", ""):
        template = known + "{% for m in messages %}|{{ m.content }}{% endfor %}"
        monkeypatch.setattr(chatting.engine.model.tokenizer._tokenizer, "chat_template", template)
        request = read({**least, **fields})
        text = read_by(chatting, request)
        names = {own_name(path, name) for name in request.without_effect}
        if known:  # mlx-lm sets enable_thinking for every model
            assert text.removeprefix("False" if shown.startswith(" ") else "") == f"{shown}|a" and names == named
        else:
            assert text == "|a" and {name.partition(".")[0] for name in names} == fields.keys()


def named_by(body: dict[str, Any]) -> list[str]:
    return sorted(responses.chat_of({"input": "a", **body}).without_effect)


def test_promises_are_not_taken_silently() -> None:
    with pytest.raises(RequestRefused, match=r"background: .*nothing is stored.*, got true"):
        named_by({"background": True})
    assert named_by({"store": True, "include": ["message.output_text.logprobs"]}) == ["include", "store"]
    assert named_by({"background": False, "store": False}) == []
    assert named_by({"text": {"verbosity": "low"}, "tools": [{"type": "web_search"}]}) == [
        "text.verbosity",
        "tools.web_search",
    ]
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 5}, "output_config": {"effort": "low"}}
    assert sorted(messages.chat_of({**USER, **thinking}).without_effect) == ["thinking.budget_tokens"]


@pytest.mark.parametrize(
    ("field", "value", "form"),
    [
        ("structured_outputs", {"json": SCHEMA}, ("json_schema", SCHEMA)),
        ("structured_outputs", {"json": '{"type": "string"}'}, ("json_schema", '{"type": "string"}')),
        ("structured_outputs", {"json_object": True}, ("json_schema", {"type": "object"})),
        ("structured_outputs", {"regex": "a+"}, ("regex", "a+")),
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


def test_empty_forms_ask_for_nothing() -> None:
    assert not checked(ChatRequest, {**USER, "grammar": "", "regex": "", "json_schema": None}).constrained
    assert named_by({"guided_decoding_backend": "a"}) == ["guided_decoding_backend"]


def left_out(chatting: Server, schema: Any, strict: bool = False) -> list[str]:
    """What has no effect in an answer of this schema; it has to be enforced but for that."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": strict, "schema": schema}}
    request = checked(ChatRequest, {**USER, "response_format": form})
    assert grammar_of(request, chatting.engine.model, thinks=False)
    return sorted(request.without_effect)


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
    assert sorted(request.without_effect) == ["tools.format.path"]


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
