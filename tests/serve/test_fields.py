"""Every field of the APIs' clients does what it says, is refused, or is named in the header."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Required, Union, get_args, get_origin

import pytest
from pydantic import ValidationError
from typing_extensions import get_type_hints, is_typeddict

from spectool.serve.errors import RequestRefused, checked, own_name
from spectool.serve.grammars import grammar_of
from spectool.serve.options import ServerOptions
from spectool.serve.prompts import read_prompts
from spectool.serve.protocols import messages, responses
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest
from spectool.serve.server import Server
from spectool.serve.turns import conversation_of
from spectool.tests.tiers import nightly

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


# Where any value of the type would be refused, or be the default; by the names of fields, and by their ends.
_VALUES: dict[str, Any] = {
    "schema": SCHEMA, "parameters": SCHEMA, "input_schema": SCHEMA, "arguments": '{"a": "b"}',
    "logit_bias": {"5": 1}, "temperature": 0.5, "top_p": 0.5, "best_of": 2, "n": 2, "stop_sequences": ["a"],
    "max_output_tokens": 5, "presence_penalty": 1.0, "frequency_penalty": 1.0, "image_url": "http://127.0.0.1/a.png",
    "definition": "start: /a/", "url": "http://127.0.0.1/a",
}  # fmt: skip


class Sample(NamedTuple):
    """A value for a field of this type, and the fields inside of it: from a value of theirs to this one with it."""

    value: Any
    inner: dict[str, tuple[Any, Callable[[Any], Any]]]


def samples(kind: Any, name: str = "") -> Iterator[Sample]:
    """A value of each of the types that a field may have."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        # The types' own lists of required fields do not see through their annotations, which are texts.
        marked = get_type_hints(kind, include_extras=True)
        needed = [each for each in hints if get_origin(marked[each]) is Required] or list(hints)[:1]
        value = {each: next(samples(hints[each], each)).value for each in needed}
        yield Sample(
            value, {each: (hint, lambda inner, each=each: {**value, each: inner}) for each, hint in hints.items()}
        )
    elif origin in (Union, UnionType):
        yield from (each for one in arguments if one is not NoneType for each in samples(one, name))
    elif name in _VALUES:
        yield Sample(_VALUES[name], {})
    elif origin is Literal:
        yield Sample(arguments[0], {})
    elif origin is dict or kind is dict or "Mapping" in str(origin):
        yield Sample({"a": "b"}, {})
    elif arguments and kind is not tuple:
        for one in samples(arguments[0], name):
            yield Sample(
                [one.value], {each: (hint, lambda v, put=put: [put(v)]) for each, (hint, put) in one.inner.items()}
            )
    else:
        yield Sample({bool: True, int: 5, float: 5.0, str: "a"}.get(kind, {"a": "b"}), {})


class Walk:
    """Asks of each field of a client's types what a server makes of it."""

    def __init__(self, server: Server, read: Callable[[Any], GenerationRequest], path: str) -> None:
        self.server, self.read, self.path = server, read, path
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
                self._seen[key] = (
                    names,
                    settings,
                    request.asked,
                    request.form,
                    getattr(request, "callable_names", 0),
                    asked,
                )
        return self._seen[key]

    def ask(self, kind: Any, place: str, put: Callable[[Any], Any], above: frozenset[Any]) -> None:
        """Ask of the field at a place, and of those inside of what it may hold."""
        name = place.rpartition(".")[2]
        for value, inner in samples(kind, name):
            got = self.outcome(put(value))
            types = [
                each.get("type") for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)
            ]
            if isinstance(got, str) or {place, *(f"{place}.{each}" for each in types)} & got[0]:
                continue  # refused, or named
            others = [self.outcome(put(other)) for other in (None, *OTHERS.get(type(value), ()))]
            if not inner and all(other == got for other in others) and place not in NAMES | IDS:
                self.silent.append(f"{place} = {json.dumps(value)[:80]}")
            for field, (hint, with_it) in inner.items():
                step = (field, str(hint))
                if step not in above:
                    self.ask(hint, f"{place}.{field}", lambda one, f=with_it: put(f(one)), above | {step})


OTHERS: dict[type, Any] = {str: ("other",), bool: (False,), int: (1,), float: (0.0,), dict: ({},), list: ([],)}


@pytest.mark.parametrize(
    ("path", "read", "least", "types"),
    [
        ("/v1/chat/completions", partial(checked, ChatRequest), USER, "openai.types.chat.completion"),
        ("/v1/completions", partial(checked, CompletionRequest), {"prompt": "a"}, "openai.types.completion"),
        ("/v1/responses", responses.chat_of, {"input": "a"}, "openai.types.responses.response"),
        *nightly(("/v1/messages", messages.chat_of, USER, "anthropic.types.message")),
        *nightly(("/v1/messages", messages.chat_of, USER, "anthropic.types.beta.message")),
    ],
)
def test_a_field_at_any_depth_does_what_it_says_or_is_refused_or_is_named(
    chatting: Server,
    path: str,
    read: Callable[[Any], GenerationRequest],
    least: Any,
    types: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The types are those by which clients write requests; they are imported here, because each takes seconds."""
    monkeypatch.setattr(chatting.engine.model.tokenizer._tokenizer, "chat_template", SHOWN)
    walk = Walk(chatting, read, path)
    written = f"{types.rpartition('.')[2].title()}CreateParamsStreaming"
    for name, hint in get_type_hints(getattr(import_module(f"{types}_create_params"), written)).items():
        walk.ask(hint, name, lambda value, name=name: {**least, name: value}, frozenset())
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
    assert named_by({"background": False, "store": False, "guided_decoding_backend": ""}) == ["guided_decoding_backend"]
    inner = {"type": "namespace", "name": "a", "tools": [{"type": "web_search"}, {"type": "namespace", "tools": []}]}
    asked = {"text": {"verbosity": "low"}, "tools": [{"type": "web_search"}, inner]}
    assert named_by(asked) == ["text.verbosity", "tools.name", "tools.tools.web_search", "tools.web_search"]
    shown = {"logprobs": True, "top_logprobs": 2}
    assert named_by(shown) == sorted(shown)
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 5}, "output_config": {"effort": "low"}}
    choice = {"tool_choice": {"type": "auto", "name": "f"}}
    request = messages.chat_of({**USER, **thinking, **shown, **choice})
    assert request.without_effect == {"thinking.budget_tokens", "tool_choice.name", *shown}
    assert request.shown_logprobs is None


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
        ("response_format", {"type": "json_schema", "name": "a", "schema": SCHEMA}, ("json_schema", SCHEMA)),
        ("response_format", {"type": "json_object", "schema": SCHEMA}, ("json_schema", SCHEMA)),
    ],
)
def test_a_request_has_one_form(field: str, value: Any, form: Any) -> None:
    request = checked(ChatRequest, {**USER, field: value})
    assert request.constrained and request.form and request.form[:4] == (field, *form, False)
    other = {"structured_outputs": {"regex": "b"}, "response_format": {"type": "json_object"}}
    with pytest.raises(RequestRefused, match=r"expected none, because .* says what an answer looks like"):
        checked(ChatRequest, {**USER, **other, field: value})
    assert not checked(ChatRequest, {**USER, "grammar": "", "regex": "", "json_schema": None}).constrained
    if field == "response_format":
        assert messages.chat_of({**USER, "output_format": value}).form == request.form


def test_a_request_is_read_up_to_its_first_fault() -> None:
    """Errors take a kilobyte each, and a request of the usual size can have millions."""
    wrong: list[tuple[str, Any]] = [(field, [5] * 10) for field in ("messages", "tools", "modalities")]
    wrong += [
        ("prompt", ["a", *[5] * 10]),
        ("prompt", [[5], *[[-1]] * 20]),
        ("structured_outputs", {"choice": [5] * 10}),
    ]
    wrong += [("messages", [{"role": "user", "tool_calls": [5] * 10}]), ("logit_bias", dict.fromkeys(range(1 << 17)))]
    for field, value in wrong:
        kind = CompletionRequest if field == "prompt" else ChatRequest
        with pytest.raises((ValidationError, RequestRefused)) as found:
            kind.model_validate({**USER, field: value})
        assert isinstance(found.value, RequestRefused) or found.value.error_count() < 6, field  # one for each type


@pytest.mark.nightly
def test_no_conversation_takes_time_that_grows_with_its_square(chatting: Server) -> None:
    many, tokenizer = 20_000, chatting.engine.model.tokenizer._tokenizer
    calls = [{"id": f"c{at}", "function": {"name": "f"}} for at in range(many)]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in calls]
    raising = "{% if messages | length > 1 %}{{ raise_exception('roles') }}{% endif %}" + SHOWN
    long = {"k" * (1 << 20): dict.fromkeys(map(str, range(many)))}
    began = time.process_time()
    for template, body in (
        (SHOWN, {"messages": [{"role": "assistant", "tool_calls": calls}, *results]}),
        (raising, {"messages": [{"role": "user", "content": "a" * 100}] * many}),
        (SHOWN, {"messages": [{**USER["messages"][0], **{f"a{at}": 1 for at in range(many)}}]}),
        (SHOWN, {**USER, "chat_template_kwargs": {"long": long}}),
    ):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tokenizer, "chat_template", template)
            conversation_of(checked(ChatRequest, body), chatting.engine.model.tokenizer, {})
    assert time.process_time() - began < 30


def left_out(chatting: Server, schema: Any, strict: bool = False) -> list[str]:
    """What has no effect in an answer of this schema; it has to be enforced but for that."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": strict, "schema": schema}}
    request = checked(ChatRequest, {**USER, "response_format": form})
    assert grammar_of(request, chatting.engine.model, reasoning=False)
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
    assert grammar_of(request, chatting.engine.model, reasoning=False)
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
