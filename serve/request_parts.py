"""What stands inside the fields of requests: messages, tools, and what answers have to look like; and what reads it."""

import json
from collections.abc import Iterator, Set
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError, from_json

from spectool.serve.errors import quoted, wrong_field

Text = Annotated[str, Field(min_length=1)]
_JSONSchema = dict[str, Any] | bool
_OBJECT: dict[str, Any] = {"type": "object"}
_MOST_UNREAD = 10_000  # fields that are looked for
CUSTOM: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "What the tool is given"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters of the function that stands for a custom tool of responses, which takes one text."""
# The field with the text of a part, by its type.
_TEXTS = dict.fromkeys(("text", "input_text", "output_text", "reasoning_text", "summary_text"), "text")
_TEXTS |= {"refusal": "refusal", "tool_reference": "tool_name"}
# What stands in the result of a tool for a part that cannot be read, by a word in its type.
_UNREADABLE = {"image": "(an image)", "screenshot": "(an image)", "audio": "(audio)", "document": "(a document)"}
_UNREADABLE |= {"": "(a file)"}


def joined(content: Any, field: str, *, of_tool: bool = False) -> str:
    """The text of a content: a text, or a list of texts and of parts that have one.

    In the result ``of_tool``, a word stands for what is no text, since the client could not do anything about it.
    """
    if isinstance(content, list):
        return "".join(joined(part, field, of_tool=of_tool) for part in content)
    kind, text = "", content
    if isinstance(content, dict):
        kind = str(content.get("type", "text"))
        text = content.get(_TEXTS[kind]) if kind in _TEXTS else None
        source = content.get("source") if kind == "document" else None
        if isinstance(source, dict) and source.get("type") == "text":
            text = f"{content.get('title') or ''}\n{source.get('data')}\n\n"
    if isinstance(text, str):
        return text
    if of_tool and isinstance(content, dict):
        return next(what for word, what in _UNREADABLE.items() if word in kind)
    raise wrong_field(field, f"expected text, because nothing else can be read, got {quoted(content)}")


class Form(NamedTuple):
    """What an answer has to look like: the kind and the value of a `Grammar`, and the field that says so."""

    field: str
    kind: str
    value: Any
    strict: bool = False
    name: str = ""  # as errors begin with it


class Noted(dict[str, Any]):
    """An object of JSON that notes which fields are read by name, so that those without effect can be named.

    Where none is, it is read as a whole. Copies of it note nothing.
    """

    read: Set[str] = frozenset()  # the names, and "" where all that the object may have are known

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, which is noted."""
        self.read |= {name}
        return super().get(name, default)


def noted(value: Any) -> Any:
    """A value in which all objects are `Noted`."""
    if isinstance(value, list):
        return [noted(each) for each in value]
    if isinstance(value, dict) and not isinstance(value, Noted):
        return Noted((name, noted(inner)) for name, inner in value.items())
    return value


def unread(value: Any) -> set[str]:
    """The paths of fields in a value that were not read; the type of an object if only that was."""
    return set(islice(_unread(value, ""), _MOST_UNREAD))


def _unread(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _unread(each, path)
    elif isinstance(value, Noted) and value.read == {"type"} <= value.keys():
        yield f"{path}.{value['type']}"
    elif isinstance(value, Noted) and value.read:
        for name, inner in value.items():
            place = f"{path}.{name}".removeprefix(".")
            if name in value.read:
                yield from _unread(inner, place)
            elif inner is not None and place != f"{path}.type":
                yield place


class Given(BaseModel):
    """An object in which null means the default, and a number in quotes is no number."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if isinstance(data, Noted):
            data.read |= {"", *(field.alias or name for name, field in cls.model_fields.items())}
        return {name: value for name, value in data.items() if value is not None}


def _arguments(given: Any) -> Any:
    """The object that the arguments of a call are; what is none stays a text, as a model has written it."""
    with suppress(ValueError):
        read = (from_json(given) if given else None) if isinstance(given, str) else given
        if isinstance(read or {}, dict):
            return read or {}
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


class _Called(Given):
    name: Any = None
    arguments: Annotated[dict[str, Any] | str, BeforeValidator(_arguments)] = {}


class _ToolCall(Given):
    id: Any = None
    type: Literal["function"] = "function"
    function: _Called


def _text_of(content: Any, info: ValidationInfo) -> str:
    return joined(content, "messages", of_tool=info.data.get("role") == "tool")


class Message(Given):
    """A message of a conversation; fields of the chat template's own are passed on to it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(_text_of)] = ""
    reasoning: Any = None
    reasoning_content: Any = None
    tool_call_id: Any = None
    tool_calls: Annotated[list[_ToolCall], Field(fail_fast=True)] = []


class _Function(Given):
    name: Text
    description: Any = None
    parameters: Any = None
    strict: bool = False  # whether calls have to fit the schema


class Tool(Given):
    """A function that the model may call; the schema of its arguments is passed on to the chat template."""

    type: Literal["function"]
    function: _Function
    in_namespace: tuple[str, str] | None = Field(None, exclude=True)  # of responses, and its name there

    @model_validator(mode="before")
    @classmethod
    def _function_inside(cls, data: Any) -> Any:
        """The responses API and Anthropic's put what the function is next to the type."""
        if not isinstance(data, dict) or data.get("type") not in ("function", "custom", None) or "function" in data:
            return data
        schema = "input_schema" if "input_schema" in data else "parameters"
        function = {name: data.get(name) for name in ("name", "description")}
        function |= {"parameters": data.get(schema), "strict": data.get("strict") or None}
        return {"type": "function", "function": function, "in_namespace": data.get("in_namespace")}


class Prediction(Given):
    """A text that the answer will probably repeat."""

    type: Literal["content"]
    content: Annotated[str, BeforeValidator(lambda content: joined(content, "prediction"))]


class StreamOptions(Given):
    """What a stream has in addition."""

    include_usage: bool = False


class _Schema(Given):
    name: str = ""  # in errors
    content: _JSONSchema = Field(alias="schema")
    strict: bool = False


class Format(Given):
    """What an answer has to look like, in the form of OpenAI's APIs."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None

    @model_validator(mode="before")
    @classmethod
    def _schema_inside(cls, data: Any) -> Any:
        """The responses API and llama.cpp's server put the schema next to the type."""
        if not isinstance(data, dict):
            return data
        inner = data.get("json_schema")
        if inner is None and data.get("schema") is not None:
            inner = {name: data.get(name) for name in ("name", "strict", "schema")}
        if inner is None and data.get("type") == "json_schema":
            raise PydanticCustomError("schema", "Input should have a schema")
        return {"type": data.get("type"), "json_schema": inner}

    @property
    def form(self) -> Form | None:
        """The same in the form of a `Grammar`; None for any text."""
        if self.type == "text":
            return None
        schema = self.json_schema or _Schema(schema=_OBJECT)
        name = f"{schema.name}: " if schema.name else ""
        return Form("response_format", "json_schema", schema.content, schema.strict, name)


class StructuredOutputs(Given):
    """vLLM's field of this name, with one of these forms."""

    model_config = ConfigDict(extra="forbid")

    json_schema: _JSONSchema | str | None = Field(None, alias="json")
    json_object: Literal[True] | None = None
    regex: Text | None = None
    choice: Annotated[list[str], Field(min_length=1, fail_fast=True)] | None = None
    grammar: Text | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError("one", "Input should have one of json, json_object, regex, choice and grammar")
        return self

    @property
    def form(self) -> Form:
        """The same in the form of a `Grammar`."""
        (kind,) = self.model_fields_set
        asked = ("json_schema", _OBJECT) if kind == "json_object" else (kind, getattr(self, kind))
        return Form("structured_outputs", *asked)


def _flat(choice: Any) -> Any:
    """A choice of tools as in responses: next to its type is what chats have in a field of that name."""
    if not isinstance(choice, dict):
        return choice
    inner = choice.get(str(choice.get("type")))
    return {"type": choice.get("type"), "name": (inner if isinstance(inner, dict) else choice).get("name")}


class NamedTool(Given):
    """The tool that has to be called."""

    type: Literal["function", "custom", "tool"]
    name: Text


class Thinking(Given):
    """Whether to reason, in Anthropic's form."""

    type: str


ToolChoice = Annotated[Literal["auto", "none", "required"] | NamedTool, BeforeValidator(_flat)]
