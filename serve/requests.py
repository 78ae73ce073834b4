"""What a request may say: each field as a type that is checked before anything works on it.

A field that is null counts as not given. Fields that nothing reads, at whatever depth, have no effect; they are named
in a header of the answer (`Noted`).
"""

import re
from inspect import signature
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator
from transformers import PreTrainedTokenizerBase

from spectool.runtime.sampling.samplers import number
from spectool.runtime.settings import LONGEST_DRAFT, SETTINGS
from spectool.serve import request_parts as parts
from spectool.serve.errors import quoted, wrong_field
from spectool.serve.options import DEFAULT_MODEL

MAX_TEXTS = 16  # answers to one request
_LARGEST = 2**63 - 1
_MOST_BIASES = 1 << 16
_CALLERS_OWN = signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys()  # no variables of a template
# What -1 stands for, as in llama.cpp and vLLM: as many as there is room for, any seed, all tokens.
_MINUS_ONE = {"max_tokens": _LARGEST, "max_completion_tokens": _LARGEST, "seed": None, "top_k": 0}
# What older versions of vLLM, llama.cpp and SGLang call fields that say what an answer has to look like.
_OTHER_FORMS = re.compile("guided_(?!decoding_).*|json_schema|regex|grammar|ebnf|structural_tag")
# Fields that are refused, each with the value that changes nothing and the reason.
_REFUSED: dict[str, tuple[Any, str]] = {
    "chat_template": (None, "it is set with --chat-template when the server starts"),
    "adapters": (None, "an adapter is loaded with --adapter-path when the server starts"),
    "draft_model": (None, "it is loaded with --draft-model when the server starts"),
    "background": (False, "nothing is stored that could be fetched later"),
    "previous_response_id": (None, "nothing is stored; send the whole conversation"),
    "conversation": (None, "nothing is stored; send the whole conversation"),
    "functions": (None, "tools and tool_choice say the same"),
    "echo": (False, "the prompt is not repeated"),
    "suffix": ("", "a text is only continued at its end"),
    "best_of": (1, "there are as many answers as n says"),
}


_TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
_Bias = Annotated[float, Field(ge=-1e30, le=1e30)]
_Strings = Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]
_Ids = Annotated[list[Annotated[int, Field(ge=0, le=_LARGEST)]], Field(min_length=1, fail_fast=True)]
_Limit = Annotated[int | None, Field(ge=1, le=_LARGEST)]


_SAMPLING = {setting.field or name: (name, setting) for name, setting in SETTINGS.items()}


class GenerationRequest(parts.Given):
    """What every request may say about how its answers are written."""

    model: str = DEFAULT_MODEL
    stream: bool = False
    stream_options: parts.StreamOptions = parts.StreamOptions()
    n: int = Field(1, ge=1, le=MAX_TEXTS)
    max_tokens: _Limit = None
    max_completion_tokens: _Limit = None
    logit_bias: dict[_TokenId, _Bias] = {}
    seed: int | None = Field(None, ge=0, le=_LARGEST)
    stop: parts.Text | Annotated[list[parts.Text], Field(max_length=64)] = []
    num_draft_tokens: int | None = Field(None, ge=0, le=LONGEST_DRAFT)
    response_format: parts.Format | None = None
    structured_outputs: parts.StructuredOutputs | None = None
    logprobs: bool | Annotated[int, Field(ge=0, le=20)] = False
    store: bool = False
    _without_effect: set[str] = PrivateAttr(default_factory=set)

    @model_validator(mode="wrap")
    @classmethod
    def _supported(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        data = parts.noted(data)
        for name, (harmless, reason) in _REFUSED.items():
            if (value := data.pop(name, None)) not in (None, harmless):
                raise wrong_field(name, f"expected nothing, because {reason}, got {quoted(value)}")
        data |= {name: meaning for name, meaning in _MINUS_ONE.items() if name in data and data[name] == -1}
        for field, (_, setting) in _SAMPLING.items():
            if (value := data.get(field)) is not None:
                if not isinstance(value, int | float):
                    raise wrong_field(field, f"expected a number, got {quoted(value)}")
                data[field] = number(field, value, setting)
        biases = data.get("logit_bias")
        if isinstance(biases, dict) and len(biases) > _MOST_BIASES:  # which could be as many errors
            raise wrong_field("logit_bias", f"expected at most {_MOST_BIASES:,} tokens, got {len(biases):,}")
        request = handler(data)
        for name, value in (request.model_extra or {}).items():
            if value != "" and _OTHER_FORMS.fullmatch(name):
                problem = f"not supported; use response_format or structured_outputs, got {quoted(value)}"
                raise wrong_field(name, problem)
        if request.structured_outputs and request.response_format and request.response_format.type != "text":
            problem = "expected none, because response_format says what an answer looks like, got both"
            raise wrong_field("structured_outputs", problem)
        request.without_effect.update(parts.unread(data), ["store"] * request.store)  # nothing is
        return request

    @property
    def asked(self) -> dict[str, Any]:
        """The settings of sampling that the request gives, by their names."""
        extra = self.model_extra or {}
        return {name: extra[field] for field, (name, _) in _SAMPLING.items() if field in extra}

    @property
    def limit(self) -> int | None:
        """Tokens that an answer may have; None where the request does not say."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def form(self) -> parts.Form | None:
        """What the text of an answer has to look like; None for any text."""
        own = self.structured_outputs or self.response_format
        return None if own is None else own.form

    @property
    def offered(self) -> list[dict[str, Any]]:
        """The tools that the model gets to see."""
        return []

    @property
    def callable_names(self) -> list[str] | None:
        """The functions of which one has to be called; None where the model decides whether to call."""
        return None

    @property
    def shown_logprobs(self) -> int | None:
        """How many of the most probable tokens to show at each place; None for no probabilities at all."""
        return None if self.logprobs is False else int(self.logprobs)

    @property
    def constrained(self) -> bool:
        """Whether not every text is an answer."""
        return self.form is not None or self.callable_names is not None

    @property
    def without_effect(self) -> set[str]:
        """What nothing takes into account, as far as that is known: fields, and keywords of schemas in them."""
        return self._without_effect


class ChatRequest(GenerationRequest):
    """A request to ``/v1/chat/completions``; those to ``/v1/responses`` and ``/v1/messages`` are made into one."""

    messages: list[parts.Message] = Field(min_length=1, fail_fast=True)
    tools: Annotated[list[parts.Tool], Field(fail_fast=True)] = []
    tool_choice: parts.ToolChoice = "auto"
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] = []
    parallel_tool_calls: bool = True
    prediction: parts.Prediction | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    thinking: bool | parts.Thinking | None = None
    chat_template_kwargs: dict[str, Any] = {}

    @model_validator(mode="after")
    def _normalize(self) -> Self:
        if wrong := sorted(_CALLERS_OWN & self.chat_template_kwargs.keys()):
            raise wrong_field("chat_template_kwargs", f"expected variables of the chat template, got {quoted(wrong)}")
        if self.top_logprobs and not self.logprobs:
            self.without_effect.add("top_logprobs")
        last = self.messages[-1]
        # A last message of the assistant's is continued, but one that is empty only stands for the answer.
        if last == parts.Message(role="assistant") and len(self.messages) > 1:
            self.messages.pop()
        return self

    @property
    def offered(self) -> list[dict[str, Any]]:
        """The tools that the model gets to see."""
        return [tool.model_dump(exclude_unset=True) for tool in self.tools] if self.tool_choice != "none" else []

    @property
    def callable_names(self) -> list[str] | None:
        """The functions of which one has to be called; None where the model decides whether to call."""
        if isinstance(self.tool_choice, parts.NamedTool):
            return [self.tool_choice.name]
        return [tool.function.name for tool in self.tools] if self.tool_choice == "required" else None

    @property
    def thinks(self) -> bool | None:
        """Whether the model should reason; None where the request does not say."""
        asked = self.thinking.type != "disabled" if isinstance(self.thinking, parts.Thinking) else self.thinking
        return asked if self.enable_thinking is None else self.enable_thinking

    @property
    def shown_logprobs(self) -> int | None:
        """How many of the most probable tokens to show."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(GenerationRequest):
    """A request to ``/v1/completions``."""

    prompt: str | _Ids | _Strings | Annotated[list[_Ids], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]
