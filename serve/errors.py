"""Errors that clients get to see, in words that name the field, and in the form of their protocol.

Whatever is wrong with a request is raised as `RequestRefused`, wherever it shows.
"""

import json
import logging
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from spectool import SpectoolError
from spectool.runtime.sampling.samplers import WrongSetting
from spectool.runtime.sampling.token_ids import TokenOutOfRange

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
"""The addresses of the protocols that are translated into a chat: Anthropic's, and OpenAI's newer one."""
_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
# Replacements for pydantic's messages that name classes or patterns.
_PLAIN_WORDS = {
    **dict.fromkeys(("model_type", "dict_type"), "Input should be an object"),
    "string_pattern_mismatch": "The name should be a token id",
}
OWN_NAMES = {
    RESPONSES: {
        "messages": "input",
        "max_completion_tokens": "max_output_tokens",
        "response_format": "text.format",
        "reasoning_effort": "reasoning.effort",
    },
    MESSAGES: {
        "stop": "stop_sequences",
        "response_format": "output_config.format",
        "reasoning_effort": "output_config.effort",
    },
}
"""What these protocols call fields of the chat, or places inside of their own."""
Kind = TypeVar("Kind", bound=BaseModel)


class RequestRefused(SpectoolError):
    """A request gets an error for an answer, with a ``status``, because of the field ``param``."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


def wrong_field(name: str, problem: str, *, status: int = 400, code: str | None = None) -> RequestRefused:
    """The refusal of a request because of its field ``name``."""
    return RequestRefused(status, f"{name}: {problem}", param=name, code=code)


def checked(kind: type[Kind], body: dict[str, Any]) -> Kind:
    """The fields of a body as a request of this kind.

    Raises:
        RequestRefused: A field is not what it must be; the message names it, what was expected, and what came.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        # Of the kinds of values that a field may have, the one that was meant goes wrong last, and not by its type.
        errors = error.errors(include_url=False)
        sizes = "too_long", "too_short"
        deepest = max(errors, key=lambda each: (each["type"] in sizes, len(each["loc"]), each["type"][-5:] != "_type"))
        value, path, steps = body, "", deepest["loc"]
        for step in steps:  # some name one of several kinds of values instead
            if isinstance(value, list) and isinstance(step, int):
                value, path = value[step], f"{path}[{step}]"
            elif isinstance(value, dict) and step in value:
                value, path = value[step], f"{path}.{step}"
        missing = deepest["type"] == "missing"
        path = (f"{path}.{steps[-1]}" if missing and value is not None else path).removeprefix(".")
        problem = _PLAIN_WORDS.get(deepest["type"], deepest["msg"].replace(" after validation", ""))
        got = "nothing" if missing else quoted(value)
        raise RequestRefused(400, f"{path}: {problem}, got {got}", param=str(steps[0])) from error


def refusal_of(error: Exception) -> RequestRefused:
    """The error that a client gets to see; what is nobody's mistake but ours is logged."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, WrongSetting | TokenOutOfRange):
        return RequestRefused(400, str(error), param=error.name)
    logging.error("a request failed", exc_info=error)
    return RequestRefused(500, f"the request failed: {error}")


def error_document(path: str, refusal: RequestRefused) -> dict[str, Any]:
    """An error as the protocol of an address has it, with its own name of the field."""
    message, param, status, protocol = str(refusal), refusal.param, refusal.status, _protocol(path)
    if param is not None and protocol:
        place, _, problem = message.partition(": ")
        message, param = f"{own_name(path, place)}: {problem}", own_name(path, param)
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    if protocol != MESSAGES:
        return {"error": {"message": message, "type": kind, "param": param, "code": refusal.code}}
    kind = "api_error" if kind == "server_error" else kind
    return {"type": "error", "error": {"type": kind, "message": message}}


def own_name(path: str, name: str) -> str:
    """What the protocol of an address calls a field of a chat, or one inside of it."""
    if protocol := _protocol(path):
        # Which of a chat's messages and tools it is says nothing to its client.
        name = re.sub(r"^(messages|tools)(\[\d+\])?(\.function\b)?", r"\1", name)
        for field, own in OWN_NAMES[protocol].items():
            name = re.sub(rf"^{field}\b", own, name)
    return name


def _protocol(path: str) -> str:
    """Which of the protocols that are translated an address is of, if any; clients may leave out its /v1."""
    address = "/v1" + path.removeprefix("/v1")
    return next((each for each in OWN_NAMES if address.startswith(each)), "")


def quoted(value: Any) -> str:
    """A value as JSON, short enough for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"
