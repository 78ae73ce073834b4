"""What an answer has to look like, by a request: its form, the calls of tools that it asks for, or both.

A call is constrained in the form that mlx-lm's parser of the model reads, and its arguments by the tool's schema. Where
the model decides whether to call, only a strict tool's calls are: an answer is free up to the beginning of a call.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

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


_AS_JSON = '{"name": "{}", "arguments": '
# How models write calls, by mlx-lm's parsers: after the marker, before and after the arguments of each one, where {} is
# the name, between two, and at the end. Those whose arguments are not JSON are missing.
FORMS = {
    "json_tools": ("\n", _AS_JSON, "}", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"),
    "mistral": ("[", _AS_JSON, "}", ", ", "]"),
    "mistral[ARGS]": ("", "{}[ARGS]", "", "[TOOL_CALLS]", ""),
}
_GAP = r"[ \t\n]{0,40}"  # white space around calls
_ANYTHING = "/(?s:.*)/"
_Rule = dict[str, Any]


def grammar_of(request: GenerationRequest, model: LoadedModel, reasoning: bool | None) -> Grammar | None:
    """The grammar of the answers to a request; ``reasoning`` is that of `Grammar`.

    There is none where tools are strict, and calls of this model are of a form that is not enforced; the request notes
    this. Takes up to seconds where the tokenizer was not used for this before.
    """
    chat, tokenizer = request if isinstance(request, ChatRequest) else None, model.tokenizer
    try:
        if chat is not None and chat.callable_names is not None:
            return Grammar(tokenizer, "rules", _calls(chat, model, []), reasoning=reasoning)
        text = _text(request.form, request) if request.form else []
        if chat is not None and chat.tool_choice == "auto" and any(tool.function.strict for tool in chat.tools):
            with suppress(RuntimeUnsupported, RequestRefused):
                return Grammar(tokenizer, "rules", _calls(chat, model, text), reasoning=reasoning)
            chat.without_effect.add("tools.function.strict")
        if text and request.offered and tokenizer.has_tool_calling:  # calls in any form between the markers
            begin, end = literal(tokenizer, tokenizer.tool_call_start), tokenizer.tool_call_end
            called = free_up_to(tokenizer, end, "called") if end else f"called: {_ANYTHING}"
            text = [{"lark_grammar": f'start: @text | ({begin} called "\\n"?)+\n{called}'}, *_named("text", text)]
        elif text and request.offered:  # in channels
            request.without_effect.add("tools")
        return Grammar(tokenizer, "rules", text, reasoning=reasoning) if text else None
    except RuntimeUnsupported as error:
        raise wrong_grammar(request, error) from error


def wrong_grammar(request: GenerationRequest, error: RuntimeUnsupported) -> RequestRefused:
    """The refusal of a request because of the grammar of its answers, which may show only while one is written."""
    form = request.form if request.callable_names is None and request.form else Form("tools", "rules", None)
    return wrong_field(form.field, form.name + str(error).removeprefix("rules: ").removeprefix("grammar: "))


def _text(form: Form, request: GenerationRequest) -> list[_Rule]:
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


def _arguments(function: dict[str, Any], request: GenerationRequest) -> list[_Rule]:
    """The rules of a call's arguments, which are an object whatever the schema of the tool says in addition."""
    schema = function.get("parameters")
    if schema is None:
        schema = {"additionalProperties": False}
    if isinstance(schema, dict):
        kinds = schema.get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            problem = f"expected parameters of the type object, because arguments have names, got {quoted(kinds)}"
            raise wrong_field("tools", f"{function['name']}: {problem}")
        schema = {**schema, "type": "object"}
    return _text(Form("tools", "json_schema", schema, function.get("strict") is True), request)


def _named(name: str, rules: Sequence[_Rule]) -> list[_Rule]:
    """Rules to which others refer by this name."""
    return [{**rule, "name": name} if rule is rules[0] else rule for rule in rules]


def _calls(chat: ChatRequest, model: LoadedModel, text: list[_Rule]) -> list[_Rule]:
    """The rules of the calls that are required or, where the model decides, of an answer whose calls fit strict tools.

    ``text`` has the rules of an answer without calls; where there are none, it is free before and after calls.
    """
    tokenizer, kind = model.tokenizer, form_of_calls(model.tokenizer)
    if kind == "mistral" and "[ARGS]" in tokenizer.get_vocab():
        kind = "mistral[ARGS]"
    offered = {tool["function"]["name"]: tool["function"] for tool in chat.offered}
    names = list(offered) if chat.callable_names is None else chat.callable_names
    if not names or not set(names) <= offered.keys():
        raise wrong_field("tool_choice", f"expected the name of one of the tools, got {names or 'no tools'}")
    if kind not in FORMS:
        raise wrong_field("tool_choice", f"cannot be enforced for {model.name}; use auto or none")
    begin, before, *others = FORMS[kind]
    marker, begin, after, between, end = (
        literal(tokenizer, part) for part in (tokenizer.tool_call_start, begin, *others)
    )
    if chat.callable_names is not None:
        lines = [f"start: {marker} calls"]
    elif text:
        lines = [f"start: @text | ({marker} calls gap)+", f"gap: /{_GAP}/"]
    else:
        lines = _free_around_calls(tokenizer, marker, names)
    several = f"({between} call)*" if chat.parallel_tool_calls and isinstance(chat.tool_choice, str) else ""
    lines += [f"calls: {begin} call {several} {end}", "call: " + " | ".join(f"call{i}" for i in range(len(names)))]
    tools = list[_Rule]()
    for i, name in enumerate(names):
        written = name if "[ARGS]" in kind else json.dumps(name, ensure_ascii=False)[1:-1]
        lines.append(f"call{i}: {literal(tokenizer, before.replace('{}', written))} @tool{i} {after}")
        follows = chat.callable_names is not None or offered[name].get("strict")
        schema = _arguments(offered[name], chat) if follows else rules_of("json_schema", {"type": "object"})
        tools += _named(f"tool{i}", schema)
    return [{"lark_grammar": "\n".join(lines)}, *_named("text", text), *tools]


def _free_around_calls(tokenizer: Any, marker: str, names: Sequence[str]) -> list[str]:
    """What begins the grammar of an answer that is free before and after ``calls``, which stand after a ``marker``.

    Models also write calls as bare JSON, but only at the beginning of an answer.
    """
    # With the fence, because the parser follows the longest terminal, and the text is another that begins like this.
    quotes = [re.escape(json.dumps(name, ensure_ascii=False)).replace("/", r"\/") for name in names]
    bare = [rf'{_GAP}(```(json)?{_GAP})?\{{{_GAP}"name"{_GAP}:{_GAP}{name}' for name in quotes]
    no_bare = f"& ~/({'|'.join(bare)})(?s:.*)/"
    no_call = "" if marker.startswith("<") else f"& ~/(?s:.*{re.escape(tokenizer.tool_call_start)}.*)/"
    arguments = rf'{_GAP},{_GAP}"(arguments|parameters)"{_GAP}:{_GAP}'
    return [
        "start: FIRST | first calls (next calls)* REST | bare",
        f"FIRST: {_ANYTHING} {no_bare} {no_call}",
        f"REST: {_ANYTHING} {no_call}",
        free_up_to(tokenizer, tokenizer.tool_call_start, "first", f"{_ANYTHING} {no_bare}"),
        free_up_to(tokenizer, tokenizer.tool_call_start, "next"),
        "bare: (" + " | ".join(f"BARE{i} @tool{i} CLOSED" for i in range(len(names))) + ")+ END",
        *(f"BARE{i}: /{each}{arguments}/" for i, each in enumerate(bare)),
        rf"CLOSED: /{_GAP}\}}/",
        f"END: /{_GAP}(```)?{_GAP}/",
    ]
