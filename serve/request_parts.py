"""What stands inside the fields of requests: messages, tools, and what answers have to look like."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from spectool.serve.contents import joined
from spectool.serve.read_fields import Noted

Text = Annotated[str, Field(min_length=1)]
_JSONSchema = dict[str, Any] | bool
_OBJECT: dict[str, Any] = {"type": "object"}
CUSTOM: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "What the tool is given"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters of the function that stands for a custom tool of responses, which takes one text."""


class Form(NamedTuple):
    """What an answer has to look like: the kind and the value of a `Grammar`, and the field that says so."""

    field: str
    kind: str
    value: Any
    strict: bool = False


class Given(BaseModel):
    """An object in which null means the default, and a number in quotes is no number."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if isinstance(data, Noted):
            data.note(field.alias or name for name, field in cls.model_fields.items())
        return {name: value for name, value in data.items() if value is not None}


class _Called(Given):
    """What a call says: a function's arguments, or a custom tool's input."""

    name: Any = None
    arguments: Any = None
    input: Any = None


class _ToolCall(Given):
    id: Any = None
    type: Literal["function", "custom"] = "function"
    function: _Called | None = None
    custom: _Called | None = None


def _text_of(content: Any, info: ValidationInfo) -> str:
    return joined(content, "messages", of_tool=info.data.get("role") in ("tool", "function"))


class Message(Given):
    """A message of a conversation; fields of the chat template's own are passed on to it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str, BeforeValidator(_text_of)] = ""
    refusal: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_call_id: Any = None
    tool_calls: list[_ToolCall] = []
    function_call: _Called | None = None


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
        return {"type": data.get("type"), "json_schema": inner}

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise PydanticCustomError("schema", "Input should have a schema")
        return self

    @property
    def name(self) -> str:
        """The name of the schema as errors have it; empty without one."""
        return f"{self.json_schema.name}: " if self.json_schema and self.json_schema.name else ""

    @property
    def form(self) -> Form | None:
        """The same in the form of a `Grammar`; None for any text."""
        if self.type == "text":
            return None
        schema = self.json_schema or _Schema(schema=_OBJECT)
        return Form("response_format", "json_schema", schema.content, schema.strict)


class StructuredOutputs(Given):
    """vLLM's field of this name, with one of these forms."""

    model_config = ConfigDict(extra="forbid")

    json_schema: _JSONSchema | str | None = Field(None, alias="json")
    json_object: Literal[True] | None = None
    regex: Text | None = None
    choice: Annotated[list[str], Field(min_length=1)] | None = None
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
