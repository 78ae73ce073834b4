"""What a request may say: each field as a type that is checked before anything works on it.

A field that is null counts as not given. Fields that are not declared here have no effect; they are named in a header
of the answer.
"""

import inspect
import re
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from spectool.runtime.settings import LEAST_DIVISOR, LONGEST_DRAFT, MOST_RECENT, PENALTIES, SAMPLER
from spectool.serve.errors import quoted, wrong_field
from spectool.serve.options import DEFAULT_MODEL

MAX_TEXTS = 16  # answers to one request
_LARGEST = 2**63 - 1
# What older versions of vLLM, llama.cpp and SGLang call fields that say what an answer has to look like.
_OTHER_FORMS = re.compile("guided_(?!decoding_).*|json_schema|regex|grammar|ebnf|structural_tag")


def _between(least: float, most: float, default: float | None = None) -> Any:
    return Field(default, ge=least, le=most)


def _minus_one(meaning: int | None) -> BeforeValidator:
    """Read -1 as llama.cpp and vLLM do: as many as there is room for, all tokens, any seed."""
    return BeforeValidator(lambda value: meaning if type(value) is int and value == -1 else value)


def _not_tiny(value: float) -> float:
    if 0 < value < LEAST_DIVISOR:
        raise PydanticCustomError("tiny", f"Input should be 0, or at least {LEAST_DIVISOR:f}")
    return value


def _for_template(variables: dict[str, Any]) -> dict[str, Any]:
    """Check that nothing is named that a chat template's caller decides about."""
    from transformers import PreTrainedTokenizerBase

    if inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys() & variables.keys():
        raise PydanticCustomError("variables", "Input should have variables of the chat template alone")
    return variables


_Text = Annotated[str, Field(min_length=1)]
_TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
_Bias = Annotated[float, Field(ge=-1e30, le=1e30)]
_Strings = Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
_Ids = Annotated[list[Annotated[int, Field(ge=0, le=_LARGEST)]], Field(min_length=1)]
_JSONSchema = dict[str, Any] | bool
_OBJECT: dict[str, Any] = {"type": "object"}
_Limit = Annotated[int | None, Field(ge=1, le=_LARGEST), _minus_one(_LARGEST)]
_UpTo20 = Annotated[int, Field(ge=0, le=20)]


class Form(NamedTuple):
    """What an answer has to look like: the kind and the value of a `Grammar`, and the field that says so."""

    field: str
    kind: str
    value: Any
    strict: bool = False


def _refused(reason: str, *allowed: Any) -> BeforeValidator:
    """Refuse all values but those that are ``allowed``."""

    def check(value: Any) -> Any:
        if value in allowed:
            return value
        raise PydanticCustomError("refused", "Input should be left out, because {reason}", {"reason": reason})

    return BeforeValidator(check)


def joined(content: Any, field: str) -> str:
    """The text of a content: a text, or a list of texts and of parts that have one."""
    if isinstance(content, list):
        return "".join(joined(part, field) for part in content)
    text = content
    if isinstance(content, dict):
        kind, source = str(content.get("type", "text")), content.get("source")
        others = {"refusal": "refusal", "tool_reference": "tool_name"}
        text = content.get("text" if kind in ("text", "input_text", "output_text") else others.get(kind, ""))
        if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
            text = f"{content.get('title') or ''}\n{source.get('data')}\n\n"
    if not isinstance(text, str):
        raise wrong_field(field, f"expected text, because nothing else can be read, got {quoted(content)}")
    return text


class _Given(BaseModel):
    """An object in which null means the default, and a number in quotes is no number."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class Message(_Given):
    """A message of a conversation; fields of the chat template's own are passed on to it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str, BeforeValidator(lambda content: joined(content, "messages"))] = ""
    tool_calls: list[dict[str, Any]] = []


class _Function(_Given):
    name: _Text


class Tool(_Given):
    """A function that the model may call; the schema of its arguments is passed on to the chat template."""

    type: Literal["function"]
    function: _Function
    in_namespace: tuple[str, str] | None = Field(None, exclude=True)  # of responses, and its name there


class _Prediction(_Given):
    type: Literal["content"]
    content: Annotated[str, BeforeValidator(lambda content: joined(content, "prediction"))]


class _StreamOptions(_Given):
    include_usage: bool = False


class _Schema(_Given):
    content: _JSONSchema = Field(alias="schema")
    strict: bool = False


class _Format(_Given):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None

    @model_validator(mode="before")
    @classmethod
    def _schema_inside(cls, data: Any) -> Any:
        """The responses API and llama.cpp's server put the schema next to the type."""
        flat = isinstance(data, dict) and data.get("schema") is not None and data.get("json_schema") is None
        return {**data, "json_schema": {"strict": data.get("strict"), "schema": data["schema"]}} if flat else data

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise PydanticCustomError("schema", "Input should have a schema")
        return self


class _StructuredOutputs(_Given):
    """vLLM's field of this name, with one of these forms."""

    model_config = ConfigDict(extra="forbid")

    json_schema: _JSONSchema | str | None = Field(None, alias="json")
    json_object: Literal[True] | None = None
    regex: _Text | None = None
    choice: Annotated[list[str], Field(min_length=1)] | None = None
    grammar: _Text | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError("one", "Input should have one of json, json_object, regex, choice and grammar")
        return self


def _flat(choice: Any) -> Any:
    """A choice of tools as in responses: next to its type is what chats have in a field of that name."""
    inner = choice.get(str(choice.get("type"))) if isinstance(choice, dict) else None
    return {**inner, "type": choice["type"]} if isinstance(inner, dict) else choice


class _NamedTool(_Given):
    type: Literal["function", "custom", "tool"]
    name: _Text


_Choice = Annotated[Literal["auto", "none", "required"] | _NamedTool, BeforeValidator(_flat)]


class GenerationRequest(_Given):
    """What every request may say about how its answers are written."""

    model: str = DEFAULT_MODEL
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    n: int = _between(1, MAX_TEXTS, 1)
    max_tokens: _Limit = None
    max_completion_tokens: _Limit = None
    temperature: Annotated[float, Field(ge=0, le=2), AfterValidator(_not_tiny)] | None = None
    top_p: float | None = None
    top_k: Annotated[int | None, Field(ge=0, le=_LARGEST), _minus_one(0)] = None
    min_p: float | None = None
    repetition_penalty: Annotated[float, AfterValidator(_not_tiny)] = _between(
        0, PENALTIES["repetition_penalty"].most, 0.0
    )
    repetition_context_size: int = _between(0, MOST_RECENT, 20)
    presence_penalty: float = _between(-2, 2, 0.0)
    presence_context_size: int = _between(0, MOST_RECENT, 0)  # tokens of the answer; 0 for all
    frequency_penalty: float = _between(-2, 2, 0.0)
    frequency_context_size: int = _between(0, MOST_RECENT, 0)
    xtc_probability: float = SAMPLER["xtc_probability"].default
    xtc_threshold: float = SAMPLER["xtc_threshold"].default
    logit_bias: dict[_TokenId, _Bias] = {}
    seed: Annotated[int | None, Field(ge=0, le=_LARGEST), _minus_one(None)] = None
    stop: _Text | Annotated[list[_Text], Field(max_length=64)] = []
    num_draft_tokens: int | None = _between(0, LONGEST_DRAFT)
    response_format: _Format | None = None
    structured_outputs: _StructuredOutputs | None = None
    chat_template: Annotated[None, _refused("it is set with --chat-template when the server starts")] = None
    adapters: Annotated[None, _refused("an adapter is loaded with --adapter-path when the server starts")] = None
    draft_model: Annotated[None, _refused("it is loaded with --draft-model when the server starts")] = None
    background: Annotated[bool, _refused("nothing is stored that could be fetched later", False)] = False
    _without_effect: set[str] = PrivateAttr(default_factory=set)

    @property
    def limit(self) -> int | None:
        """Tokens that an answer may have; None where the request does not say."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value != "" and _OTHER_FORMS.fullmatch(name):
                problem = f"expected none, but response_format or structured_outputs, got {quoted(value)}"
                raise wrong_field(name, problem)
        if self.structured_outputs and self.response_format and self.response_format.type != "text":
            problem = "expected none, because response_format says what an answer looks like, got both"
            raise wrong_field("structured_outputs", problem)
        return self

    @property
    def form(self) -> Form | None:
        """What the text of an answer has to look like; None for any text."""
        if (own := self.structured_outputs) is not None:
            (kind,) = own.model_fields_set
            value = getattr(own, kind)
            return Form("structured_outputs", *(("json_schema", _OBJECT) if kind == "json_object" else (kind, value)))
        if self.response_format is None or self.response_format.type == "text":
            return None
        schema = self.response_format.json_schema or _Schema(schema=_OBJECT)
        return Form("response_format", "json_schema", schema.content, schema.strict)

    @property
    def constrained(self) -> bool:
        """Whether not every text is an answer."""
        return self.form is not None

    @property
    def shown_logprobs(self) -> int | None:
        """How many of the most probable tokens to show at each place; None for no probabilities at all."""
        return None

    def leave_out(self, *names: str) -> None:
        """Note what has no effect: fields, or keywords of a schema in one."""
        self._without_effect.update(names)


class ChatRequest(GenerationRequest):
    """A request to ``/v1/chat/completions``; those to ``/v1/responses`` and ``/v1/messages`` are made into one."""

    messages: list[Message] = Field(min_length=1)
    tools: list[Tool] = []
    tool_choice: _Choice = "auto"
    functions: Annotated[None, _refused("tools and tool_choice say the same")] = None
    modalities: list[Literal["text"]] = []
    parallel_tool_calls: bool = True
    prediction: _Prediction | None = None
    logprobs: bool = False
    top_logprobs: int | None = _between(0, 20)
    chat_template_kwargs: Annotated[dict[str, Any], AfterValidator(_for_template)] = {}

    @model_validator(mode="after")
    def _normalize(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            self.leave_out("top_logprobs")
        last = self.messages[-1]
        # A last message of the assistant's is continued, but one that is empty only stands for the answer.
        if last == Message(role="assistant") and len(self.messages) > 1:
            self.messages.pop()
        return self

    @property
    def offered(self) -> list[dict[str, Any]]:
        """The tools that the model gets to see."""
        return [tool.model_dump(exclude_unset=True) for tool in self.tools] if self.tool_choice != "none" else []

    @property
    def callable_names(self) -> list[str] | None:
        """The functions of which one has to be called; None where the model decides whether to call."""
        if isinstance(self.tool_choice, _NamedTool):
            return [self.tool_choice.name]
        return [tool.function.name for tool in self.tools] if self.tool_choice == "required" else None

    @property
    def constrained(self) -> bool:
        """Whether not every text is an answer."""
        return super().constrained or self.callable_names is not None

    @property
    def shown_logprobs(self) -> int | None:
        """How many of the most probable tokens to show."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(GenerationRequest):
    """A request to ``/v1/completions``."""

    prompt: str | _Ids | _Strings | Annotated[list[_Ids], Field(min_length=1, max_length=MAX_TEXTS)]
    logprobs: bool | _UpTo20 = False
    echo: Annotated[bool, _refused("the prompt is not repeated", False)] = False
    suffix: Annotated[str, _refused("a text is only continued at its end", "")] = ""
    best_of: Annotated[int, _refused("there are as many answers as n says", 1)] = 1

    @property
    def shown_logprobs(self) -> int | None:
        """How many of the most probable tokens to show."""
        return None if self.logprobs is False else int(self.logprobs)


def without_effect(request: GenerationRequest) -> list[str]:
    """The fields of a request, and what of schemas, that nothing here takes into account."""
    return sorted(request._without_effect | (request.model_extra or {}).keys())
