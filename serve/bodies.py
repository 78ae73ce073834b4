"""Bodies of requests: read, checked against what a request may say, and refused in words that name the field."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from spectool import SpectoolError

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
# Replacements for pydantic's messages that name classes or patterns.
_PLAIN_WORDS = {
    **dict.fromkeys(("model_type", "dict_type"), "Input should be an object"),
    "string_pattern_mismatch": "The name should be a token id",
}
Kind = TypeVar("Kind", bound=BaseModel)


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
        kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def wrong_field(name: str, problem: str, *, status: int = 400, code: str | None = None) -> RequestRefused:
    """The refusal of a request because of its field ``name``."""
    return RequestRefused(status, f"{name}: {problem}", param=name, code=code)


def parse_json(raw: bytes) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        RequestRefused: It is something else, has numbers or characters that JSON in UTF-8 cannot have, or is deeper
            than 200 levels.
    """
    try:
        body = from_json(raw, allow_inf_nan=False)
        json.dumps(body, allow_nan=False)  # fails where a number is too large
    except ValueError as error:
        raise RequestRefused(400, f"body: expected JSON in UTF-8, got something else ({error})") from error
    if not isinstance(body, dict):
        raise RequestRefused(400, f"body: expected a JSON object, got {quoted(body)}")
    return body


def checked(kind: type[Kind], body: dict[str, Any]) -> Kind:
    """The fields of a body as a request of this kind.

    Raises:
        RequestRefused: A field is not what it must be; the message names it, what was expected, and what came.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        # Of the kinds of values that a field may have, the one that was meant is the one that goes wrong last.
        errors = error.errors(include_url=False)
        deepest = max(errors, key=lambda each: (each["type"] in ("too_long", "too_short"), len(each["loc"])))
        path, got = _place(body, deepest["loc"], missing=deepest["type"] == "missing")
        name = str(deepest["loc"][0]) if deepest["loc"] else "body"
        problem = _PLAIN_WORDS.get(deepest["type"], deepest["msg"].replace(" after validation", ""))
        raise RequestRefused(400, f"{path}: {problem}, got {got}", param=name) from error


def quoted(value: Any) -> str:
    """A value as JSON, short enough for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"


def joined(content: Any, field: str) -> str:
    """The text of a content: a text, or a list of texts and of parts that have one.

    Raises:
        RequestRefused: A part is something else, such as an image.
    """
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


def _place(body: dict[str, Any], steps: Sequence[int | str], *, missing: bool) -> tuple[str, str]:
    """The path to a place in a body, and what is there."""
    value: Any = body
    path = ""
    for step in steps:
        if isinstance(value, list) and isinstance(step, int):
            value, path = value[step], f"{path}[{step}]"
        elif isinstance(value, dict) and step in value:
            value, path = value[step], f"{path}.{step}"
        elif missing and isinstance(value, dict) and step == steps[-1]:
            return f"{path}.{step}".removeprefix("."), "nothing"
        # otherwise it names one of several kinds of values
    return path.removeprefix("."), quoted(value)
