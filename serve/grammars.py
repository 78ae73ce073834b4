"""What an answer has to look like, by a request: its form, the calls of tools that it asks for, or both.

A call is constrained in the form that mlx-lm's parser of the model reads, and its arguments by the tool's schema. Where
the model decides whether to call, only a strict tool's calls are: an answer is free up to the beginning of a call.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from llguidance import LLMatcher

from spectool import RuntimeUnsupported
from spectool.runtime.grammar import Grammar, free_up_to, literal, rules_of
from spectool.runtime.mlx_lm_compat import form_of_calls
from spectool.serve.errors import RequestRefused, quoted, wrong_field
from spectool.serve.models import LoadedModel
from spectool.serve.request_parts import Form
from spectool.serve.requests import ChatRequest, GenerationRequest

# The parser's warnings about what of a schema has no effect.
_ANNOTATION = re.compile(r'Unknown format: (.*)|Unimplemented keys: \["(uniqueItems)"\]', re.DOTALL)


class _CallForm(NamedTuple):
    """How a model writes calls: what stands around the arguments of each one, where {} is the name, and between two."""

    begin: str
    before: str
    after: str
    between: str
    end: str


_AS_JSON = '{"name": "{}", "arguments": '
# By mlx-lm's parsers. Those whose arguments are not JSON are missing.
FORMS = {
    "json_tools": _CallForm("<tool_call>\n", _AS_JSON, "}", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"),
    "mistral": _CallForm("[TOOL_CALLS][", _AS_JSON, "}", ", ", "]"),
    "mistral[ARGS]": _CallForm("[TOOL_CALLS]", "{}[ARGS]", "", "[TOOL_CALLS]", ""),
}
_GAP = r"[ \t\n]{0,40}"  # white space around calls
_ANYTHING = "/(?s:.*)/"
_STRICT = "tools.function.strict"
_Rules = list[dict[str, Any]]


def grammar_of(request: GenerationRequest, model: LoadedModel, *, thinks: bool) -> Grammar | None:
    """The grammar of the answers to a request; ``thinks`` says that reasoning comes first.

    There is none where tools are strict, and calls of this model are of a form that is not enforced; the request notes
    this. Takes up to seconds where the tokenizer was not used for this before.
    """
    chat = request if isinstance(request, ChatRequest) else None
    try:
        rules = _text(request.form, request) if request.form and request.callable_names is None else []
        if chat is not None and chat.callable_names is not None:
            rules = _required_calls(chat, model)
        elif chat is not None and (strict := _strict_calls(chat, model, rules)):
            rules = strict
        elif rules and request.offered and model.tokenizer.has_tool_calling:
            rules = _or_calls(model.tokenizer, rules)
        elif rules and request.offered:  # in channels
            request.without_effect.add("tools")
        if not rules:
            return None
        return Grammar(model.tokenizer, "rules", rules, reasoning=None if chat is None else thinks)
    except RuntimeUnsupported as error:
        raise wrong_grammar(request, error) from error


def wrong_grammar(request: GenerationRequest, error: RuntimeUnsupported) -> RequestRefused:
    """The refusal of a request because of the grammar of its answers, which may show only while one is written."""
    has_calls = isinstance(request, ChatRequest) and request.callable_names is not None
    field = "tools" if has_calls or request.form is None else request.form.field
    name = request.response_format.name if field == "response_format" and request.response_format else ""
    return wrong_field(field, name + str(error).removeprefix("rules: ").removeprefix("grammar: "))


def _text(form: Form, request: GenerationRequest) -> _Rules:
    """The rules of a text. Annotations in a schema that cannot be enforced are left out, and the request notes which.

    A format is an annotation by JSON Schema's definition. ``uniqueItems`` is none, so a strict schema that has it is
    refused.
    """
    rules = rules_of(form.kind, form.value)
    schema: Any = rules[0].get("json_schema")
    if not isinstance(schema, dict) or not isinstance(options := schema.get("x-guidance"), dict):
        return rules
    lenient = [{"json_schema": {**schema, "x-guidance": {**options, "lenient": True}}}]
    failed, warnings = LLMatcher.validate_grammar_with_warnings(json.dumps({"grammars": lenient}), None)
    found = [_ANNOTATION.fullmatch(warning) for warning in warnings]
    names = [each[2] or f"format.{each[1]}" for each in found if each]
    if failed or not all(found) or (form.strict and "uniqueItems" in names):
        return rules
    request.without_effect.update(f"{form.field}.{name}" for name in names)
    return lenient


def _arguments(function: dict[str, Any], request: GenerationRequest) -> _Rules:
    """The rules of a call's arguments, which are an object whatever the schema of the tool says in addition."""
    given = function.get("parameters")
    schema = {"additionalProperties": False} if given is None else given
    if isinstance(schema, dict):
        kinds = schema.get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            problem = f"expected parameters of the type object, because arguments have names, got {quoted(kinds)}"
            raise wrong_field("tools", f"{function['name']}: {problem}")
        schema = {**schema, "type": "object"}
    return _text(Form("tools", "json_schema", schema, function.get("strict") is True), request)


def _form_of(tokenizer: Any) -> str:
    """The form in which a model writes calls, by its parser's name."""
    kind = form_of_calls(tokenizer)
    return "mistral[ARGS]" if kind == "mistral" and "[ARGS]" in tokenizer.get_vocab() else kind


def _calls(functions: Sequence[dict[str, Any]], several: bool, model: LoadedModel) -> str:
    """The rules of one call, or of several, after their marker, with arguments by the number of the tool."""
    tokenizer, kind = model.tokenizer, _form_of(model.tokenizer)
    form = FORMS[kind]
    begin = literal(tokenizer, form.begin.removeprefix(tokenizer.tool_call_start))
    between, end, after = (literal(tokenizer, part) for part in (form.between, form.end, form.after))
    lines = [
        f"calls: {begin} call {f'({between} call)*' if several else ''} {end}",
        "call: " + " | ".join(f"call{i}" for i in range(len(functions))),
    ]
    for i, name in enumerate(function["name"] for function in functions):
        if "[ARGS]" in kind and not re.fullmatch(r"[^\s\[\]{}]+", name):
            raise wrong_field(
                "tools", f"expected names without spaces and brackets for {model.name}, got {quoted(name)}"
            )
        written = name if "[ARGS]" in kind else json.dumps(name, ensure_ascii=False)[1:-1]
        lines.append(f"call{i}: {literal(tokenizer, form.before.replace('{}', written))} @tool{i} {after}")
    return "\n".join(lines)


def _required_calls(chat: ChatRequest, model: LoadedModel) -> _Rules:
    """The rules of one call or, where one of several tools has to be called, of one or more."""
    known, names = {tool["function"]["name"]: tool["function"] for tool in chat.offered}, chat.callable_names
    if not names or not set(names) <= known.keys():
        raise wrong_field("tool_choice", f"expected the name of one of the tools, got {names or 'no tools'}")
    if _form_of(model.tokenizer) not in FORMS:
        raise wrong_field("tool_choice", f"cannot be enforced for {model.name}; use auto or none")
    functions = [known[name] for name in names]
    calls = _calls(functions, chat.tool_choice == "required" and chat.parallel_tool_calls, model)
    arguments = [{**_arguments(function, chat)[0], "name": f"tool{i}"} for i, function in enumerate(functions)]
    marker = literal(model.tokenizer, model.tokenizer.tool_call_start)
    return [{"lark_grammar": f"start: {marker} calls\n{calls}"}, *arguments]


def _strict_calls(chat: ChatRequest, model: LoadedModel, text: _Rules) -> _Rules:
    """The rules of an answer whose calls fit the schemas of strict tools, and that is free before and after them.

    ``text`` has the rules of an answer without calls; none where it is free. Models also write calls as bare JSON, but
    only at the beginning of an answer. None if no tool's schema can be enforced.
    """
    tokenizer, functions = model.tokenizer, [tool["function"] for tool in chat.offered]
    if not chat.has_strict_tools or _form_of(tokenizer) not in FORMS:
        chat.without_effect.update([_STRICT] * chat.has_strict_tools)
        return []
    schemas = [_enforceable(function, chat, tokenizer) for function in functions]
    if not any(schemas):
        return []
    anything = rules_of("json_schema", {"type": "object"})
    tools = [{**(schema or anything)[0], "name": f"tool{i}"} for i, schema in enumerate(schemas)]
    calls, marker = _calls(functions, chat.parallel_tool_calls, model), literal(tokenizer, tokenizer.tool_call_start)
    if text:
        start = f"start: @text | ({marker} calls gap)+\ngap: /{_GAP}/\n{calls}"
        return [{"lark_grammar": start}, {**text[0], "name": "text"}, *text[1:], *tools]
    names = [json.dumps(function["name"], ensure_ascii=False) for function in functions]
    # With the fence, because the parser follows the longest terminal, and the text is another that begins like this.
    fence = f"{_GAP}(```(json)?{_GAP})?"
    bare = [rf'{fence}\{{{_GAP}"name"{_GAP}:{_GAP}{re.escape(name)}'.replace("/", r"\/") for name in names]
    no_bare = f"& ~/({'|'.join(bare)})(?s:.*)/"
    no_call = "" if marker.startswith("<") else f"& ~/(?s:.*{re.escape(tokenizer.tool_call_start)}.*)/"
    lines = [
        "start: FIRST | first calls (next calls)* REST | bare",
        f"FIRST: {_ANYTHING} {no_bare} {no_call}",
        f"REST: {_ANYTHING} {no_call}",
        free_up_to(tokenizer, tokenizer.tool_call_start, "first", f"{_ANYTHING} {no_bare}"),
        free_up_to(tokenizer, tokenizer.tool_call_start, "next"),
        "bare: (" + " | ".join(f"BARE{i} rest{i}" for i in range(len(tools))) + ")+ CLOSED",
        f"CLOSED: /{_GAP}(```)?{_GAP}/",
        f"gap: /{_GAP}/",
        calls,
    ]
    for i, each in enumerate(bare):
        lines.append(f"BARE{i}: /{each}/")
        lines.append(f'rest{i}: gap "," gap ("\\"arguments\\"" | "\\"parameters\\"") gap ":" gap @tool{i} gap "}}"')
    return [{"lark_grammar": "\n".join(lines)}, *tools]


def _enforceable(function: dict[str, Any], chat: ChatRequest, tokenizer: Any) -> _Rules:
    """The rules of a strict tool's arguments; none where it is not strict, or this cannot be enforced."""
    if not function.get("strict"):
        return []
    try:
        rules = _arguments(function, chat)
        Grammar(tokenizer, "rules", rules)
        return rules
    except (RuntimeUnsupported, RequestRefused):
        chat.without_effect.add(_STRICT)
        return []


def _or_calls(tokenizer: Any, text: _Rules) -> _Rules:
    """The rules of an answer, or of calls in any form between the markers of the model."""
    begin, end = literal(tokenizer, tokenizer.tool_call_start), tokenizer.tool_call_end
    called = free_up_to(tokenizer, end, "called") if end else f"called: {_ANYTHING}"
    start = f'start: @text | ({begin} called "\\n"?)+\n{called}'
    return [{"lark_grammar": start}, {**text[0], "name": "text"}, *text[1:]]
