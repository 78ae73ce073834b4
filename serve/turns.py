"""The text of a conversation by the model's chat template, whatever the template takes and shows."""

import json
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from itertools import groupby
from typing import Any

from pydantic_core import from_json

from spectool.runtime.chat_template import TemplateRefused, has_channels, hidden_in, rendered_text, variables_of
from spectool.serve.errors import wrong_field
from spectool.serve.request_parts import Message
from spectool.serve.requests import ChatRequest

_MOST_EXTRAS = 8  # fields of which each is asked whether the template shows it; others count as not shown
_Messages = list[dict[str, Any]]
_Hidden = set[tuple[int, str]]  # places of messages, and content or tool_calls
_Conversation = tuple[_Messages, dict[str, Any], str]  # messages and variables for the template, and what it makes


def conversation_of(request: ChatRequest, tokenizer: Any, usual: Mapping[str, Any]) -> _Conversation:
    """What the template is given for a request, messages and variables, and the text that it makes of it.

    ``usual`` are the server's variables. The request notes which of its fields the template does not show.

    Raises:
        RequestRefused: The template refuses the messages, or there is no turn in which it shows one of them.
    """
    messages = _in_order([_for_template(message) for message in request.messages])
    tools = request.offered
    variables = {**usual, **_variables(request, tokenizer, usual)}

    def rendered(left_out: Set[str] = frozenset()) -> _Conversation:
        others = [_without(message, "messages", left_out) for message in messages]
        shown = [_without(tool, "tools", left_out) for tool in tools] or None
        return _rendered(request, tokenizer, others, {**variables, "tools": shown})

    inner = {f"messages.{name}" for message in messages for name in message}
    inner |= {f"tools.{name}" for tool in tools for name in tool}
    inner |= {f"tools.function.{name}" for tool in tools for name in tool["function"]}
    extras = inner & request.without_effect  # which nobody knows but perhaps the template
    whole = rendered()
    if extras and rendered(extras)[2] != whole[2]:
        for name in sorted(extras)[:_MOST_EXTRAS]:
            if rendered({name})[2] != whole[2]:
                request.without_effect.discard(name)
    return whole


def _variables(request: ChatRequest, tokenizer: Any, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the template that a request sets; it notes those that the template does not read."""
    known, effort, thinks = variables_of(tokenizer), request.reasoning_effort, request.thinks
    switches = {"enable_thinking", "thinking"} & known
    variables: dict[str, Any] = {} if thinks is None else dict.fromkeys(switches, thinks)
    if effort is not None and thinks is None:  # how much to reason says less clearly whether to do so
        variables = {name: effort != "none" for name in switches if effort == "none" or name not in usual}
    if effort is not None and "reasoning_effort" in known:
        variables["reasoning_effort"] = effort
    elif effort is not None and (effort != "none" or not switches):
        request.without_effect.add("reasoning_effort")
    if not switches:
        request.without_effect.update(request.model_fields_set & {"enable_thinking", "thinking"})
    request.without_effect.update(
        f"chat_template_kwargs.{name}" for name in request.chat_template_kwargs.keys() - known
    )
    return variables | request.chat_template_kwargs


def _rendered(request: ChatRequest, tokenizer: Any, messages: _Messages, variables: dict[str, Any]) -> _Conversation:
    """The messages as a text. What the template leaves out of them is shown in turns of its own, as text."""
    try:
        messages, text, hidden = _accepted(tokenizer, messages, variables)
        if beside := _beside_calls(messages, hidden):
            with suppress(TemplateRefused):
                apart = _apart(messages, {place for place, _ in beside})
                messages, text, hidden = _accepted(tokenizer, apart, variables)
        if hidden - _beside_calls(messages, hidden):
            if any(field == "tool_calls" or messages[place]["role"] == "tool" for place, field in hidden):
                messages = _without_tools(messages)
            users = {place for place, field in hidden if field == "content" and "tool_calls" not in messages[place]}
            messages = [{**each, "role": "user"} if at in users else each for at, each in enumerate(messages)]
            messages, text, hidden = _accepted(tokenizer, messages, variables)
    except TemplateRefused as error:
        raise wrong_field("messages", f"the model's chat template refuses them ({error.reason})") from error
    if beside := _beside_calls(messages, hidden):
        hidden -= beside
        request.without_effect.add("messages.content")
    if hidden:
        roles = ", ".join(sorted({str(messages[place]["role"]) for place, _ in hidden}))
        raise wrong_field("messages", f"expected roles that the model's chat template shows, got {roles}")
    return messages, variables, text


def _beside_calls(messages: _Messages, hidden: _Hidden) -> _Hidden:
    """What is hidden of the texts that stand beside calls which are shown."""
    with_calls = {place for place, message in enumerate(messages) if "tool_calls" in message}
    return {each for each in hidden if each[0] in with_calls and (each[0], "tool_calls") not in hidden}


def _apart(messages: _Messages, places: set[int]) -> _Messages:
    """Messages with the texts at these places in messages of their own, before the calls beside them."""
    result = []
    for place, message in enumerate(messages):
        if place in places:
            result.append({name: value for name, value in message.items() if name != "tool_calls"})
            message = {"role": message["role"], "content": "", "tool_calls": message["tool_calls"]}
        result.append(message)
    return result


def _accepted(tokenizer: Any, messages: _Messages, variables: dict[str, Any]) -> tuple[_Messages, str, _Hidden]:
    """The messages as the template takes them, their text, and what it leaves out."""
    try:
        text = rendered_text(tokenizer, messages, variables)
    except TemplateRefused:
        has_calls = tokenizer.has_tool_calling or has_channels(tokenizer)
        messages = _alternating(messages if has_calls else _without_tools(messages))
        text = rendered_text(tokenizer, messages, variables)
    return messages, text, hidden_in(tokenizer, messages, variables)


def _alternating(messages: Sequence[dict[str, Any]]) -> _Messages:
    """Messages for templates that want one system message, as the first, and another one after it.

    Later system messages become the user's, and so does one that stands alone.
    """
    result: _Messages = []
    texts: list[list[str]] = []  # of each of them
    for message in messages:
        last = result[-1] if result else message
        role = "user" if message["role"] == "system" != last["role"] else message["role"]
        if not result or role != last["role"] or role == "tool" or last.get("tool_calls"):
            result.append({})
            texts.append([])
        result[-1] |= {**message, "role": role}
        texts[-1].append(message["content"])
    for message, own in zip(result, texts, strict=True):
        message["content"] = "\n\n".join(filter(None, own))
    return [{**result[0], "role": "user"}] if [message["role"] for message in result] == ["system"] else result


def _without_tools(messages: Sequence[dict[str, Any]]) -> _Messages:
    """Messages for a template without tools: the calls of another model as text, and their results as the user's."""
    result = []
    for message in messages:
        others = {name: value for name, value in message.items() if name != "tool_calls"}
        content = _with_calls(message["content"], message.get("tool_calls", ()))
        result.append({**others, "role": "user" if message["role"] == "tool" else message["role"], "content": content})
    return result


def _with_calls(text: str, calls: Sequence[dict[str, Any]]) -> str:
    return "\n".join(filter(None, (text, *(json.dumps(call.get("function"), ensure_ascii=False) for call in calls))))


def _in_order(messages: _Messages) -> _Messages:
    """Messages with the results of tools in the order of their calls, as many templates do not show whose they are."""
    places: dict[str, int] = {}  # of calls, by their ids
    result: _Messages = []
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        some = list(group)
        if not is_result:
            calls = some[-1].get("tool_calls", ())
            places = {str(call.get("id")): place for place, call in enumerate(calls)}
            places = places if len(places) == len(calls) else {}
        elif all(str(message.get("tool_call_id")) in places for message in some):
            some.sort(key=lambda message: places[str(message.get("tool_call_id"))])
        result += some
    return result


def _without(value: dict[str, Any], place: str, left_out: Set[str]) -> dict[str, Any]:
    """A message or a tool without the fields at some paths."""
    return {
        name: _without(inner, f"{place}.function", left_out) if name == "function" else inner
        for name, inner in value.items()
        if f"{place}.{name}" not in left_out
    }


def _for_template(message: Message) -> dict[str, Any]:
    """A message as chat templates read it: arguments of calls as objects, and fields by the names that they use."""
    fields = message.model_dump(exclude_unset=True)
    fields["role"] = {"developer": "system", "function": "tool"}.get(message.role, message.role)
    fields["content"] = "\n".join(filter(None, (message.content, str(fields.pop("refusal", None) or ""))))
    if "reasoning" in fields:
        fields.setdefault("reasoning_content", fields["reasoning"])
    given = fields.pop("tool_calls", [])  # templates take an empty list for calls
    if "function_call" in fields:
        given += [{"type": "function", "function": fields.pop("function_call")}]
    calls, broken = _Messages(), _Messages()
    for call in map(_call_for_template, given):
        function = call.get("function")
        (broken if isinstance(function, dict) and isinstance(function["arguments"], str) else calls).append(call)
    fields["content"] = _with_calls(fields["content"], broken)
    return {**fields, "tool_calls": calls} if calls else fields


def _call_for_template(call: dict[str, Any]) -> dict[str, Any]:
    """A call with an object for arguments; what is none stays a text, as a model has written it."""
    if isinstance(custom := call.get("custom"), dict):
        return {**call, "type": "function", "function": {**custom, "arguments": {"input": custom.get("input")}}}
    if not isinstance(function := call.get("function"), dict):
        return call
    given = function.get("arguments") or {}
    arguments: Any = given
    with suppress(ValueError):
        arguments = (from_json(given) if isinstance(given, str) else given) or {}
    if not isinstance(arguments, dict):
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}
