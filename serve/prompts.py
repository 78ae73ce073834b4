"""From a request to the token ids that it wants continued. Runs on threads of its own, because it can take long."""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic_core import from_json

from spectool.runtime.chat_template import TemplateRefused, begins_reasoning, encode, rendered_text
from spectool.runtime.decoding.answer_text import encode_answer
from spectool.runtime.decoding.streaming import encode_prompt
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.sampling.token_ids import TokenOutOfRange, require_tokens
from spectool.serve.answers import Prompt
from spectool.serve.call_forms import is_harmony
from spectool.serve.errors import RequestRefused, quoted, wrong_field
from spectool.serve.grammars import grammar_of
from spectool.serve.models import LoadedModel
from spectool.serve.options import ServerOptions
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest, Message


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
    if not request.constrained:
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
    has_calls = tokenizer.has_tool_calling or is_harmony(tokenizer)
    if request.offered and not has_calls:
        if request.callable_names is not None:
            problem = f"expected auto or none, because mlx-lm cannot read tool calls of {model.name}"
            raise wrong_field("tool_choice", problem)
        request.tools = []
        request.leave_out("tools")
    check("messages", characters=sum(len(message.content) for message in request.messages))
    messages = [_for_template(message) for message in request.messages]
    variables = {**options.template_variables, **request.chat_template_kwargs, "tools": request.offered or None}
    try:
        text = rendered_text(tokenizer, messages, variables)
    except TemplateRefused:
        messages = _alternating(messages if has_calls else _without_tools(messages))
        try:
            text = rendered_text(tokenizer, messages, variables)
        except TemplateRefused as error:
            raise wrong_field("messages", f"the model's chat template refuses them ({error.reason})") from error
    prediction = None
    if request.prediction is not None and request.prediction.content:
        check("prediction", characters=len(request.prediction.content))
        expected = encode_answer(tokenizer, request.prediction.content)
        check("prediction", tokens=len(expected))
        prediction = PredictionDrafter(expected)
    return Prompt(encode(tokenizer, text), begins_reasoning(tokenizer, text), prediction=prediction)


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
        calls = (json.dumps(call.get("function"), ensure_ascii=False) for call in message.get("tool_calls", ()))
        others = {name: value for name, value in message.items() if name != "tool_calls"}
        content = "\n".join(filter(None, (message["content"], *calls)))
        result.append({**others, "role": "user" if message["role"] == "tool" else message["role"], "content": content})
    return result


def _for_template(message: Message) -> dict[str, Any]:
    """A message as chat templates read it: arguments of calls as objects, and fields by the names that they use."""
    fields = message.model_dump(exclude_unset=True)
    fields["role"] = {"developer": "system", "function": "tool"}.get(message.role, message.role)
    fields["content"] = message.content or str(fields.get("refusal", ""))
    if "reasoning" in fields:
        fields.setdefault("reasoning_content", fields["reasoning"])
    calls = fields.pop("tool_calls", [])  # templates take an empty list for calls
    if "function_call" in fields:
        calls = [{"type": "function", "function": fields.pop("function_call")}]
    for call in calls:
        function = call.get("function")
        if isinstance(function, dict):
            given = function.get("arguments") or "{}"
            try:
                function["arguments"] = (from_json(given) if isinstance(given, str) else given) or {}
            except ValueError as error:
                problem = f"expected arguments of calls in JSON, got {quoted(given)} ({error})"
                raise wrong_field("messages", problem) from error
    return {**fields, "tool_calls": calls} if calls else fields


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
