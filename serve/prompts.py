"""From a request to the token ids that it wants continued. Runs on threads of its own, because it can take long."""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from pydantic_core import from_json

from spectool.runtime.chat_template import (
    TemplateRefused,
    begins_reasoning,
    encode,
    hidden_in,
    rendered_text,
    variables_of,
)
from spectool.runtime.decoding.answer_text import encode_answer
from spectool.runtime.decoding.streaming import encode_prompt
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.sampling.token_ids import TokenOutOfRange, require_tokens
from spectool.serve.answers import Prompt
from spectool.serve.errors import RequestRefused, wrong_field
from spectool.serve.grammars import grammar_of
from spectool.serve.models import LoadedModel
from spectool.serve.options import ServerOptions
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest, Message, without_effect


def read_prompts(request: GenerationRequest, model: LoadedModel, options: ServerOptions) -> list[Prompt]:
    """The prompts of a request: one of a chat, and as many of a completion as it has."""
    check = partial(_check_length, limit=options.max_prompt_tokens, model=model)
    if isinstance(request, ChatRequest):
        name, prompts = "messages", [_read_chat(request, model, options, check)]
    else:
        assert isinstance(request, CompletionRequest)
        name, prompts = "prompt", _read_texts(request.prompt, model, check)
    try:
        for prompt in prompts:
            require_tokens(name, prompt.tokens, model.vocabulary, model.tokenizer)
            if not prompt.tokens:
                raise wrong_field(name, "expected at least one token, got none")
            check(name, tokens=len(prompt.tokens))
        require_tokens("logit_bias", list(map(int, request.logit_bias)), model.vocabulary, model.tokenizer)
    except TokenOutOfRange as error:
        raise RequestRefused(400, str(error), param=error.name) from error
    if not request.needs_grammar:
        return prompts
    grammar = grammar_of(request, model, thinks=prompts[0].thinks)
    return [prompt._replace(grammar=grammar) for prompt in prompts]


def _read_texts(given: Any, model: LoadedModel, check: Callable[..., None]) -> list[Prompt]:
    prompts = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    if not isinstance(prompts[0], str):
        return [Prompt(tokens) for tokens in prompts]
    check("prompt", characters=sum(map(len, prompts)) // len(prompts))
    return [Prompt(encode_prompt(model.tokenizer, text), empty=not text) for text in prompts]


def _read_chat(request: ChatRequest, model: LoadedModel, options: ServerOptions, check: Callable[..., None]) -> Prompt:
    tokenizer = model.tokenizer
    if not tokenizer.has_chat_template:
        problem = f"{model.name} has no chat template, which a conversation needs. To continue a text: /v1/completions"
        raise RequestRefused(400, problem)
    if request.offered and not tokenizer.has_tool_calling:
        if request.callable_names is not None:
            problem = f"expected auto or none, because mlx-lm cannot read tool calls of {model.name}"
            raise wrong_field("tool_choice", problem)
        request.tools = []
        request.leave_out("tools")
    check("messages", characters=sum(len(message.content) for message in request.messages))
    messages = _in_order([_for_template(message) for message in request.messages])
    tools = request.offered or None
    variables = {**options.template_variables, **_variables(request, tokenizer), "tools": tools}
    extras = _extras(request, messages, tools or ())
    text = _rendered(request, tokenizer, messages, variables)
    for name in extras:
        others = [_without(each, name, "messages") for each in messages]
        variables["tools"] = [_without(tool, name, "tools") for tool in tools or ()] or None
        if _rendered(request, tokenizer, others, variables) != text:
            request.bring_in(name)
    prediction = None
    if request.prediction is not None and request.prediction.content:
        check("prediction", characters=len(request.prediction.content))
        expected = encode_answer(tokenizer, request.prediction.content)
        check("prediction", tokens=len(expected))
        prediction = PredictionDrafter(expected)
    return Prompt(encode(tokenizer, text), begins_reasoning(tokenizer, text), prediction=prediction)


def _variables(request: ChatRequest, tokenizer: Any) -> dict[str, Any]:
    """The variables of the template that a request sets. It notes those that the template does not read."""
    known, thinks = variables_of(tokenizer), request.thinks
    switches = {"enable_thinking", "thinking"} & known
    variables: dict[str, Any] = {} if thinks is None else dict.fromkeys(switches, thinks)
    if request.reasoning_effort is not None and "reasoning_effort" in known:
        variables["reasoning_effort"] = request.reasoning_effort
    elif request.reasoning_effort is not None and (not switches or request.reasoning_effort != "none"):
        request.leave_out("reasoning_effort")
    if not switches:
        given = request.model_fields_set & {"enable_thinking", "thinking"}
        request.leave_out(*given)
    own = request.chat_template_kwargs
    request.leave_out(*(f"chat_template_kwargs.{name}" for name in own if name not in known))
    return variables | own


def _rendered(request: ChatRequest, tokenizer: Any, messages: list[dict[str, Any]], variables: dict[str, Any]) -> str:
    """The text of the messages. What the template leaves out of them is shown in turns of its own, as text."""
    try:
        messages, text = _accepted(tokenizer, messages, variables)
        hidden = hidden_in(tokenizer, messages, variables)
        if beside := _beside_calls(messages, hidden):
            with suppress(TemplateRefused):
                messages, text = _accepted(tokenizer, _apart(messages, {place for place, _ in beside}), variables)
                hidden = hidden_in(tokenizer, messages, variables)
        if hidden - _beside_calls(messages, hidden):
            if any(field == "tool_calls" or messages[place]["role"] == "tool" for place, field in hidden):
                messages = _without_tools(messages)
            users = [
                {**message, "role": "user"} if (place, "content") in hidden and "tool_calls" not in message else message
                for place, message in enumerate(messages)
            ]
            messages, text = _accepted(tokenizer, users, variables)
            hidden = hidden_in(tokenizer, messages, variables)
    except TemplateRefused as error:
        raise wrong_field("messages", f"the model's chat template refuses them ({error.reason})") from error
    if beside := _beside_calls(messages, hidden):
        hidden -= beside
        request.leave_out("messages.content")
    if hidden:
        roles = ", ".join(sorted({str(messages[place]["role"]) for place, _ in hidden}))
        raise wrong_field("messages", f"expected roles that the model's chat template shows, got {roles}")
    return text


def _beside_calls(messages: list[dict[str, Any]], hidden: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """What is hidden of the texts that stand beside calls which are shown."""
    return {
        (place, field)
        for place, field in hidden
        if field == "content" and "tool_calls" in messages[place] and (place, "tool_calls") not in hidden
    }


def _apart(messages: list[dict[str, Any]], places: set[int]) -> list[dict[str, Any]]:
    """Messages with the texts at these places in messages of their own, before the calls beside them."""
    result = []
    for place, message in enumerate(messages):
        if place in places:
            result.append({name: value for name, value in message.items() if name != "tool_calls"})
            message = {"role": message["role"], "content": "", "tool_calls": message["tool_calls"]}
        result.append(message)
    return result


def _accepted(
    tokenizer: Any, messages: list[dict[str, Any]], variables: dict[str, Any]
) -> tuple[list[dict[str, Any]], str]:
    """The messages as the template takes them, and their text."""
    try:
        return messages, rendered_text(tokenizer, messages, variables)
    except TemplateRefused:
        messages = _alternating(messages if tokenizer.has_tool_calling else _without_tools(messages))
        return messages, rendered_text(tokenizer, messages, variables)


def _alternating(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages for templates that want one system message, as the first, and another one after it.

    Later system messages become the user's, and so does one that stands alone.
    """
    result: list[dict[str, Any]] = []
    for message in messages:
        last = result[-1] if result else message
        role = "user" if message["role"] == "system" != last["role"] else message["role"]
        if result and role == last["role"] != "tool" and not last.get("tool_calls"):
            joined = "\n\n".join(filter(None, (last["content"], message["content"])))
            result[-1] = {**last, **message, "role": role, "content": joined}
        else:
            result.append({**message, "role": role})
    return [{**result[0], "role": "user"}] if [message["role"] for message in result] == ["system"] else result


def _without_tools(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages for a template without tools: the calls of another model as text, and their results as the user's."""
    result = []
    for message in messages:
        others = {name: value for name, value in message.items() if name != "tool_calls"}
        content = _with_calls(message["content"], message.get("tool_calls", ()))
        result.append({**others, "role": "user" if message["role"] == "tool" else message["role"], "content": content})
    return result


def _with_calls(text: str, calls: Sequence[dict[str, Any]]) -> str:
    return "\n".join(filter(None, (text, *(json.dumps(call.get("function"), ensure_ascii=False) for call in calls))))


def _in_order(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with the results of tools in the order of their calls, as many templates do not show whose they are."""
    ids: list[Any] = []
    result: list[dict[str, Any]] = []
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        some = list(group)
        if is_result and all(message.get("tool_call_id") in ids for message in some):
            some.sort(key=lambda message: ids.index(message.get("tool_call_id")))
        elif not is_result:
            ids = [call.get("id") for call in some[-1].get("tool_calls", ())]
        result += some
    return result


def _extras(request: ChatRequest, messages: Sequence[Any], tools: Sequence[Any]) -> list[str]:
    """Fields of messages and tools that are known to nobody but perhaps the template, if it shows any of them."""
    inner = {f"messages.{name}" for message in messages for name in message}
    inner |= {f"tools.{name}" for tool in tools for name in tool}
    inner |= {f"tools.function.{name}" for tool in tools for name in tool["function"]}
    return sorted(inner & set(without_effect(request)))


def _without(value: dict[str, Any], path: str, place: str) -> dict[str, Any]:
    """A message or a tool without the field at a path."""
    return {
        name: _without(inner, path, f"{place}.{name}") if name == "function" else inner
        for name, inner in value.items()
        if f"{place}.{name}" != path
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
        given = [{"type": "function", "function": fields.pop("function_call")}]
    calls, others = [], []
    for call in map(_call_for_template, given):
        function = call.get("function")
        (others if isinstance(function, dict) and isinstance(function["arguments"], str) else calls).append(call)
    fields["content"] = _with_calls(fields["content"], others)
    return {**fields, "tool_calls": calls} if calls else fields


def _call_for_template(call: dict[str, Any]) -> dict[str, Any]:
    """A call with an object for arguments; what is none stays a text, as a model has written it."""
    if isinstance(custom := call.get("custom"), dict):
        function = {"name": custom.get("name"), "arguments": {"input": custom.get("input")}}
        return {
            **{name: value for name, value in call.items() if name != "custom"},
            "type": "function",
            "function": function,
        }
    if not isinstance(function := call.get("function"), dict):
        return call
    given = function.get("arguments") or "{}"
    try:
        arguments = (from_json(given) if isinstance(given, str) else given) or {}
    except ValueError:
        arguments = given
    if not isinstance(arguments, dict):
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _check_length(name: str, *, limit: int | None, model: LoadedModel, tokens: int = 0, characters: int = 0) -> None:
    """Refuse what does not fit, in words from which clients know what to do.

    A text of so many ``characters`` that it cannot fit is refused before minutes are spent on tokenizing it.
    """
    tokens, most = tokens or math.ceil(characters / model.longest_token), limit or model.context
    if most is None or tokens < most + (limit is not None):  # one token has to be left for the answer
        return
    got = f"{characters:,} characters, which are more" if characters else f"{tokens:,}"
    problem = f"expected at most {most:,} tokens{'' if limit else ', including the answer'}, got {got}"
    # Claude Code knows the beginning, LiteLLM 1.81, which Aider uses, the end.
    problem = f"prompt is too long for the context length and exceeds the maximum number of tokens allowed: {problem}"
    problem = f"{problem}. The server's --max-prompt-tokens sets the limit"
    raise wrong_field(name, problem, code="context_length_exceeded")
