"""From a request to the token ids that it wants continued. Runs on threads of its own, because it can take long."""

import math
from typing import Any

from spectool.runtime.chat_template import begins_reasoning, branches, encode, has_channels
from spectool.runtime.decoding.answer_text import encode_answer
from spectool.runtime.decoding.streaming import encode_prompt
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.sampling.token_ids import require_tokens
from spectool.serve.answers import Prompt
from spectool.serve.errors import RequestRefused, wrong_field
from spectool.serve.grammars import grammar_of
from spectool.serve.models import LoadedModel
from spectool.serve.options import ServerOptions
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest
from spectool.serve.turns import conversation_of


def read_prompts(request: GenerationRequest, model: LoadedModel, options: ServerOptions) -> list[Prompt]:
    """The prompts of a request: one of a chat, and as many of a completion as it has."""
    if isinstance(request, ChatRequest):
        name, prompts = "messages", [_read_chat(request, model, options)]
    else:
        assert isinstance(request, CompletionRequest)
        name, prompts = "prompt", _read_texts(request.prompt, model, options)
    for prompt in prompts:
        require_tokens(name, prompt.tokens, model.vocabulary)
        if not prompt.tokens:
            raise wrong_field(name, "expected at least one token, got none")
        _check_length(name, model, options, tokens=len(prompt.tokens))
    require_tokens("logit_bias", list(map(int, request.logit_bias)), model.vocabulary)
    grammar = grammar_of(request, model, prompts[0].reasoning)
    return [prompt._replace(grammar=grammar) for prompt in prompts]


def _read_texts(given: Any, model: LoadedModel, options: ServerOptions) -> list[Prompt]:
    prompts = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    if not isinstance(prompts[0], str):
        return [Prompt(tokens) for tokens in prompts]
    _check_length("prompt", model, options, characters=max(map(len, prompts)))
    return [Prompt(encode_prompt(model.tokenizer, text), own_text=not text) for text in prompts]


def _read_chat(request: ChatRequest, model: LoadedModel, options: ServerOptions) -> Prompt:
    tokenizer = model.tokenizer
    if not tokenizer.has_chat_template:
        problem = f"{model.name} has no chat template, which a conversation needs. To continue a text: /v1/completions"
        raise RequestRefused(400, problem)
    has_calls = tokenizer.has_tool_calling or has_channels(tokenizer)
    if request.offered and not has_calls:
        if request.callable_names is not None:
            problem = f"expected auto or none, because mlx-lm cannot read tool calls of {model.name}"
            raise wrong_field("tool_choice", problem)
        request.tools = []
        request.without_effect.add("tools")
    messages, variables, text = conversation_of(request, tokenizer, options.template_variables)
    _check_length("messages", model, options, characters=len(text))
    prediction = None
    if request.prediction is not None and request.prediction.content:
        _check_length("prediction", model, options, characters=len(request.prediction.content))
        expected = encode_answer(tokenizer, request.prediction.content)
        _check_length("prediction", model, options, tokens=len(expected))
        prediction = PredictionDrafter(expected)
    tokens = encode(tokenizer, text)
    marks = branches(tokenizer, messages, variables, tokens) if model.needs_marks else ()
    own_text = request.messages[-1].role != "assistant"  # whose message an answer continues
    return Prompt(tokens, marks, begins_reasoning(tokenizer, text), own_text=own_text, prediction=prediction)


def _check_length(
    name: str, model: LoadedModel, options: ServerOptions, *, tokens: int = 0, characters: int = 0
) -> None:
    """Refuse what does not fit, in words from which clients know what to do.

    A text of so many ``characters`` that it cannot fit is refused before minutes are spent on tokenizing it.
    """
    limit = options.max_prompt_tokens
    tokens, most = tokens or math.ceil(characters / model.longest_token), limit or model.context
    if most is None or tokens < most + (limit is not None):  # one token has to be left for the answer
        return
    got = f"{characters:,} characters, which are more" if characters else f"{tokens:,}"
    problem = f"expected at most {most:,} tokens{'' if limit else ', including the answer'}, got {got}"
    # Claude Code knows the beginning, LiteLLM 1.81, which Aider uses, the end.
    problem = f"prompt is too long for the context length and exceeds the maximum number of tokens allowed: {problem}"
    problem = f"{problem}. The server's --max-prompt-tokens sets the limit"
    raise wrong_field(name, problem, code="context_length_exceeded")
