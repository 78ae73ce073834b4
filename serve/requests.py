"""What a request to the server may say: its body, checked before anything works on it.

mlx-lm's server checks some fields and passes others on unseen. Among these are names of models and adapters to load,
image addresses to fetch and a chat template to execute. Here every field that it reads has a rule, and what the server
was not started for is refused. So are fields of OpenAI's that ask for what nobody here does.
"""

import inspect
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, Strict, StrictBool, TypeAdapter, ValidationError

from spectool import SpectoolError

DEFAULT_MODEL = "default_model"  # mlx-lm's name for the model that the server was started with
MAX_DRAFT_TOKENS = 64  # that a request may ask for
AUTOMATIC = MAX_DRAFT_TOKENS + 1  # draft tokens: as many as pay; mlx-lm's server takes no None
_KINDS = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}


class RequestRefused(SpectoolError):
    """A request gets an error for an answer.

    Attributes:
        status: HTTP status.
        body: The answer, in OpenAI's form.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        """Refuse with ``status``, because of the field ``param``."""
        super().__init__(message)
        self.status = status
        kind = _KINDS.get(status, "server_error" if status >= 500 else _KINDS[400])
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def wrong_field(name: str, problem: str, *, status: int = 400, code: str | None = None) -> RequestRefused:
    """Return the refusal of a request because of its field ``name``."""
    return RequestRefused(status, f"{name}: {problem}", param=name, code=code)


class _Part(BaseModel):
    type: Literal["text"]
    text: str


class _Message(BaseModel):
    role: str
    content: str | list[_Part] | None = None


class _TextFormat(BaseModel):
    type: Literal["text"]


_Rule = tuple[str, Any]  # what a field must be: in words, and as a type that pydantic checks


def _number(low: float | None = None, high: float | None = None) -> _Rule:
    return (f"a number{_range(low, high)}", Annotated[FiniteFloat, Strict(), Field(ge=low, le=high)])


def _whole(low: int = 0, high: int | None = None) -> _Rule:
    return (f"a whole number{_range(low, high)}", Annotated[int, Strict(), Field(ge=low, le=high)])


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f" of at least {low}"
    return f" from {low} to {high}"


def _of_template_alone(variables: dict[str, Any]) -> dict[str, Any]:
    """Check that nothing is named that a chat template's caller decides about."""
    from transformers import PreTrainedTokenizerBase

    if inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys() & variables.keys():
        raise ValueError
    return variables


_FLAG = ("true or false", StrictBool)
_ONE_ANSWER = ("1: there is one answer to a request", Literal[1])
_NOT_HERE = ("no such field: it is decided when the server is started", None)
_TEXT = Annotated[str, Field(min_length=1)]
RULES: dict[str, _Rule] = {
    "model": ("the name of a model", str),
    "messages": (
        "a list of messages with a role and a content of text alone",
        Annotated[list[_Message], Field(min_length=1)],
    ),
    "prompt": ("a text", str),
    "stream": _FLAG,
    "stream_options": ("an object", dict[str, Any]),
    "n": _ONE_ANSWER,
    "max_tokens": _whole(1),
    "max_completion_tokens": _whole(1),
    "temperature": _number(0),
    "top_p": _number(0, 1),
    "top_k": _whole(),
    "min_p": _number(0, 1),
    "repetition_penalty": _number(0, 1e6),
    "repetition_context_size": _whole(0, 2**31 - 1),
    "presence_penalty": _number(-100, 100),
    "presence_context_size": _whole(0, 2**31 - 1),
    "frequency_penalty": _number(-100, 100),
    "frequency_context_size": _whole(0, 2**31 - 1),
    "xtc_probability": _number(0, 1),
    "xtc_threshold": _number(0, 0.5),
    "logit_bias": (
        "an object from token ids to numbers",
        dict[
            Annotated[str, Field(pattern=r"^[0-9]{1,19}$")],
            Annotated[FiniteFloat, Strict(), Field(ge=-1e30, le=1e30)],
        ],
    ),
    "logprobs": _FLAG,
    "top_logprobs": _whole(0, 11),
    "seed": _whole(0, 2**64 - 1),
    "stop": (
        "a text, or a list of at most 16, none of them empty",
        _TEXT | Annotated[list[_TEXT], Field(max_length=16)],
    ),
    "num_draft_tokens": _whole(0, MAX_DRAFT_TOKENS),
    "tools": ("a list of objects", list[dict[str, Any]]),
    "role_mapping": ("an object from roles to texts", dict[str, str]),
    "chat_template_kwargs": (
        "an object with variables of the chat template alone",
        Annotated[dict[str, Any], AfterValidator(_of_template_alone)],
    ),
    "tool_choice": ("auto or none: the model decides whether to call", Literal["auto", "none"]),
    "response_format": ('an object with the type "text": no other form is kept to', _TextFormat),
    "echo": ("false: an answer does not repeat its prompt", Literal[False]),
    "suffix": ("nothing: what stands behind the answer is not looked at", Literal[""]),
    "best_of": _ONE_ANSWER,
    "chat_template": _NOT_HERE,
    "adapters": _NOT_HERE,
    "draft_model": _NOT_HERE,
}
"""The fields that mlx-lm's server reads, and those of OpenAI's that ask for what nobody here does."""
_CHECKS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, (_, kind) in RULES.items()}


def parse_length(header: str | None, transfer_encoding: str | None, limit: int) -> int:
    """Return the bytes of a body, from the headers that announce it.

    Raises:
        RequestRefused: They are missing, malformed, or announce more than ``limit``.
    """
    if transfer_encoding is not None:
        raise RequestRefused(411, f"Transfer-Encoding: expected a body with Content-Length, got {transfer_encoding!r}")
    if header is None:
        raise RequestRefused(411, "Content-Length: expected the size of the body, got none")
    if not (header.isascii() and header.isdecimal()):
        raise RequestRefused(400, f"Content-Length: expected a number of bytes, got {header!r}")
    # Longer numbers than this are not worth converting.
    if len(header) > 18 or int(header) > limit:
        raise RequestRefused(
            413, f"body: expected at most {limit:,} bytes, got {header}. The server's --max-body sets it"
        )
    return int(header)


def parse_body(raw: bytes, models: Sequence[str], needs: str) -> dict[str, Any]:
    """Return the fields of a request that the server may serve.

    Args:
        raw: The body.
        models: Names that a request may use; the first one is meant where it names none.
        needs: The field that must be there, ``messages`` or ``prompt``.

    Returns:
        The fields that are not null, with ``model`` filled in and contents as texts.

    Raises:
        RequestRefused: It is not JSON, or a field breaks its rule.
    """
    try:
        body = json.loads(raw, parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()  # fails where half of a surrogate pair stands alone
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"body: expected JSON in UTF-8, got something else ({error})") from error
    if not isinstance(body, dict):
        raise RequestRefused(400, f"body: expected a JSON object, got {_short(body)}")
    body = {name: value for name, value in body.items() if value is not None}
    for name, value in body.items():
        if name in RULES:
            try:
                _CHECKS[name].validate_python(value)
            except ValidationError as error:
                raise wrong_field(name, f"expected {RULES[name][0]}, got {_short(value)}") from error
    if needs not in body:
        raise wrong_field(needs, f"expected {RULES[needs][0]}, got nothing")
    if body.get("model", DEFAULT_MODEL) == DEFAULT_MODEL:
        body["model"] = models[0]
    require_model(body["model"], models)
    if body.get("tool_choice") == "none":
        body.pop("tools", None)  # a model that is not told of them calls none
    if needs == "messages":
        # mlx-lm does the same, but only where the model has a chat template.
        body["messages"] = [{**message, "content": _text(message.get("content"))} for message in body["messages"]]
    if "stream_options" in body:
        body["stream_options"] = {"include_usage": bool(body["stream_options"].get("include_usage"))}
    for name in ("xtc_probability", "xtc_threshold"):
        if name in body:
            body[name] = float(body[name])  # mlx-lm takes no whole numbers here
    return body


def require_model(name: str, models: Sequence[str]) -> None:
    """Check that a request may name this model.

    Raises:
        RequestRefused: The server was not started with it.
    """
    if name not in models:
        served = f"{' or '.join(models)}, which this server has, or {DEFAULT_MODEL} for {models[0]}"
        problem = f"expected {served}, got {_short(name)}"
        raise wrong_field("model", problem, status=404, code="model_not_found")


def _text(content: str | list[dict[str, str]] | None) -> str:
    """Return the content of a message as one text."""
    return "".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"
