"""What an answer has to look like, by a request: its form, the calls of tools that it asks for, or both.

A call is constrained in the form that mlx-lm's parser of the model reads, and its arguments by the tool's schema.
"""

import json
import re
from typing import Any, NamedTuple

from spectool import RuntimeUnsupported
from spectool.runtime.grammar import Grammar, free_up_to, literal, rules_of
from spectool.serve.errors import RequestRefused, quoted, wrong_field
from spectool.serve.models import LoadedModel
from spectool.serve.requests import ChatRequest, GenerationRequest
from spectool.serve.schemas import enforceable


class _Form(NamedTuple):
    """How a model writes calls: what stands around the arguments of each one, where {} is the name, and between two."""

    begin: str
    before: str
    after: str
    between: str
    end: str


_AS_JSON = '{"name": "{}", "arguments": '
# By mlx-lm's parsers. Those whose arguments are not JSON are missing.
FORMS = {
    "json_tools": _Form("<tool_call>\n", _AS_JSON, "}", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"),
    "mistral": _Form("[TOOL_CALLS][", _AS_JSON, "}", ", ", "]"),
    "mistral[ARGS]": _Form("", "[TOOL_CALLS]{}[ARGS]", "", "", ""),
}


def grammar_of(request: GenerationRequest, model: LoadedModel, *, thinks: bool) -> Grammar:
    """The grammar of the answers to a request; ``thinks`` says that reasoning comes first.

    Takes up to seconds where the tokenizer was not used for this before.

    Raises:
        RequestRefused: There is something wrong with it; the message names the field and the reason.
    """
    chat = request if isinstance(request, ChatRequest) else None
    reasoning = None if chat is None else thinks
    calls = None if chat is None else chat.callable_names
    try:
        if chat is not None and calls is not None:
            rules = _calls(chat, model, calls)
        else:
            rules = rules_of(*request.form)
            if chat is not None and chat.offered:
                rules = _or_calls(model.tokenizer, rules)
        return Grammar(model.tokenizer, "rules", rules, reasoning=reasoning)
    except RuntimeUnsupported as error:
        name = "" if chat is None or calls is None else _refused_tool(chat, model, calls)
        raise wrong_grammar(request, error, name) from error


def wrong_grammar(request: GenerationRequest, error: RuntimeUnsupported, tool: str = "") -> RequestRefused:
    """The refusal of a request because of the grammar of its answers, or of the arguments of one ``tool``.

    This may show only while an answer is written.
    """
    has_calls = isinstance(request, ChatRequest) and request.callable_names is not None
    reason = str(error).removeprefix("rules: ").removeprefix("grammar: ")
    return wrong_field("tools" if has_calls else request.form_field, f"{tool}: {reason}" if tool else reason)


def _refused_tool(chat: ChatRequest, model: LoadedModel, names: list[str]) -> str:
    """The name of the tool whose schema is refused; empty if each can be enforced by itself."""
    for tool in chat.offered:
        if (name := tool["function"]["name"]) in names:
            try:
                Grammar(model.tokenizer, "rules", _arguments(tool["function"]))
            except RuntimeUnsupported:
                return str(name)
    return ""


def _arguments(function: dict[str, Any]) -> list[dict[str, Any]]:
    """The rules of a call's arguments, which are an object whatever the schema of the tool says in addition."""
    schema = function.get("parameters")
    if schema is None:
        return rules_of("json_schema", {"type": "object", "additionalProperties": False})
    schema, _ = enforceable(schema, strict=bool(function.get("strict")))
    if not isinstance(schema, dict):
        return rules_of("json_schema", schema)
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        problem = f"expected parameters of the type object, because arguments have names, got {quoted(kinds)}"
        raise wrong_field("tools", f"{function['name']}: {problem}")
    return rules_of("json_schema", {**schema, "type": "object"})


def _calls(chat: ChatRequest, model: LoadedModel, names: list[str]) -> list[dict[str, Any]]:
    """The rules of one call of a tool with one of these names or, if there are several, of one or more."""
    tools = {tool["function"]["name"]: tool["function"] for tool in chat.offered}
    if not names or not set(names) <= tools.keys():
        raise wrong_field("tool_choice", f"expected the name of one of the tools, got {names or 'no tools'}")
    tokenizer = model.tokenizer
    kind = tokenizer.tool_parser.__module__.rpartition(".")[2]
    if kind == "mistral" and "[ARGS]" in tokenizer.get_vocab():
        kind = "mistral[ARGS]"
    if kind not in FORMS:
        problem = f"expected auto or none, because calls of {model.name} ({kind}) are of a form that is not enforced"
        raise wrong_field("tool_choice", problem)
    form = FORMS[kind]
    begin, between, end, after = (literal(tokenizer, part) for part in (form.begin, form.between, form.end, form.after))
    more = f"({between} call)*" if isinstance(chat.tool_choice, str) and chat.parallel_tool_calls else ""
    lines = [f"start: {begin} call {more} {end}", "call: " + " | ".join(f"call{i}" for i in range(len(names)))]
    rules = []
    for i, name in enumerate(names):
        if "[ARGS]" in kind and not re.fullmatch(r"[\w-]+", name):
            raise wrong_field(
                "tools", f"expected names of letters, digits, _ and - for {model.name}, got {quoted(name)}"
            )
        written = name if "[ARGS]" in kind else json.dumps(name, ensure_ascii=False)[1:-1]
        lines.append(f"call{i}: {literal(tokenizer, form.before.replace('{}', written))} @tool{i} {after}")
        (rule,) = _arguments(tools[name])
        rules.append({**rule, "name": f"tool{i}"})
    return [{"lark_grammar": "\n".join(lines)}, *rules]


def _or_calls(tokenizer: Any, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of an answer, or of calls in any form between the markers of the model."""
    begin, end = literal(tokenizer, tokenizer.tool_call_start), tokenizer.tool_call_end
    call = free_up_to(tokenizer, end, "called") if end else "called: /(?s:.*)/"
    start = f'start: @text | ({begin} called "\\n"?)+\n{call}'
    return [{"lark_grammar": start}, {**rules[0], "name": "text"}, *rules[1:]]
