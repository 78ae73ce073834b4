"""The text of a conversation by the model's chat template, whatever the template takes and shows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from spectool.runtime.chat_template import TemplateRefused, hidden_in, rendered_text, variables_of
from spectool.serve.errors import wrong_field
from spectool.serve.request_parts import Message
from spectool.serve.requests import ChatRequest

_Messages = list[dict[str, Any]]
_Conversation = tuple[_Messages, dict[str, Any], str]  # messages and variables for the template, and what it makes


def conversation_of(request: ChatRequest, tokenizer: Any, usual: Mapping[str, Any]) -> _Conversation:
    """What the template is given for a request, messages and variables, and the text that it makes of it.

    What it leaves out is shown in turns that it has, as text. ``usual`` are the server's variables; the request notes
    which of its own the template does not read.

    Raises:
        RequestRefused: The template refuses the messages, or there is no turn in which it shows one of them.
    """
    variables = {**usual, **_variables(request, tokenizer, usual), "tools": request.offered or None}
    problem = ""
    for messages in _forms(_in_order([_for_template(message) for message in request.messages])):
        try:
            text = rendered_text(tokenizer, messages, variables)
        except TemplateRefused as error:
            problem = f"the model's chat template refuses them ({error.reason})"
            continue
        hidden = hidden_in(tokenizer, messages, variables)
        beside = {(at, field) for at, field in hidden if field == "content" and "tool_calls" in messages[at]}
        if hidden == beside:  # Llama 3's template does not show text next to calls
            request.without_effect.update(["messages.content"] * bool(beside))
            return messages, variables, text
        roles = ", ".join(sorted({str(messages[at]["role"]) for at, _ in hidden - beside}))
        problem = f"expected roles that the model's chat template shows, got {roles}"
    raise wrong_field("messages", problem)


def _variables(request: ChatRequest, tokenizer: Any, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the template that a request sets; it notes those that the template does not read."""
    known, effort, thinks = variables_of(tokenizer), request.reasoning_effort, request.thinks
    switches = {"enable_thinking", "thinking"} & known
    variables: dict[str, Any] = {} if thinks is None else dict.fromkeys(switches, thinks)
    if effort is not None and thinks is None:  # how much to reason says less clearly whether to do so
        variables = {name: effort != "none" for name in switches if effort == "none" or name not in usual}
    if effort is not None and "reasoning_effort" in known:
        variables["reasoning_effort"] = effort
    ignored = set() if switches else {"enable_thinking", "thinking", "reasoning_effort"} - known
    unknown = request.chat_template_kwargs.keys() - known
    request.without_effect.update(
        ignored & request.model_fields_set, (f"chat_template_kwargs.{name}" for name in unknown)
    )
    return variables | request.chat_template_kwargs


def _forms(messages: _Messages) -> Iterator[_Messages]:
    """A conversation as it is, and as more and more templates take and show it."""
    yield messages
    yield _alternating(messages)
    messages = _without_tools(messages)
    yield _alternating(messages)
    yield _alternating([{**each, "role": "user"} if each["role"] == "system" else each for each in messages])


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
        role = "user" if message["role"] == "tool" else message["role"]
        result.append(_with_calls({**message, "role": role}, message.get("tool_calls", ())))
        result[-1].pop("tool_calls", None)
    return result


def _with_calls(message: dict[str, Any], calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A message with calls in its text."""
    written = (json.dumps(call["function"], ensure_ascii=False) for call in calls)
    return {**message, "content": "\n".join(filter(None, (message["content"], *written)))}


def _in_order(messages: _Messages) -> _Messages:
    """Messages with the results of tools in the order of their calls, as many templates do not show whose they are."""
    places: dict[str, int] = {}  # of calls, by their ids
    result: _Messages = []
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        some = list(group)
        if is_result:
            some.sort(key=lambda message: places.get(str(message.get("tool_call_id")), len(places)))
        else:
            places = {str(call.get("id")): place for place, call in enumerate(some[-1].get("tool_calls", ()))}
        result += some
    return result


def _for_template(message: Message) -> dict[str, Any]:
    """A message as chat templates read it; a call without an object for arguments is text."""
    fields = message.model_dump(exclude_unset=True)
    fields["role"] = "system" if message.role == "developer" else message.role
    fields["content"] = message.content
    if "reasoning" in fields:
        fields.setdefault("reasoning_content", fields["reasoning"])
    calls, broken = _Messages(), _Messages()
    for call in fields.pop("tool_calls", ()):  # templates take an empty list for calls
        (broken if isinstance(call["function"].setdefault("arguments", {}), str) else calls).append(call)
    fields = _with_calls(fields, broken)
    return {**fields, "tool_calls": calls} if calls else fields
