"""Tables that pydantic checks: an error names the key, what was expected and what came."""

import re
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import ErrorDetails

Value = TypeVar("Value")
Several: TypeAlias = Annotated[tuple[Value, ...], Strict(False), Field(min_length=1)]
"""One or more."""
_LONGEST = 60  # characters of a wrong value in a message
_MOST_NAMED = 8  # problems in a message


class Checked(BaseModel):
    """A table with exactly these keys, whose values need no conversion."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def problems(error: ValidationError) -> str:
    """What is wrong with a table, in a phrase for each key."""
    # A list whose items are wrong also counts as too short.
    wrong = [each for each in error.errors(include_url=False) if each["type"] != "too_short" or not each["input"]]
    more = [f"and {len(wrong) - _MOST_NAMED} more"] * (len(wrong) > _MOST_NAMED)
    return "; ".join([*map(_problem, wrong[:_MOST_NAMED]), *more])


def _problem(error: ErrorDetails) -> str:
    where = f"{_short('.'.join(map(str, error['loc'])))}: " if error["loc"] else ""
    if error["type"] == "json_invalid":
        return f"expected a JSON object, got {_short(error['input'])}"
    if error["type"] == "value_error":
        return f"{where}{error['ctx']['error']}"
    if error["type"] == "missing":
        return f"{where}expected a value, got none"
    if error["type"] == "extra_forbidden":
        return f"{where}expected no such key"
    if error["type"] == "too_short":
        return f"{where}expected at least {error['ctx']['min_length']}, got none"
    expected = re.sub("^(Input should be|String should have) ", "", error["msg"]).replace("tuple", "list")
    return f"{where}expected {expected}, got {_short(error['input'])}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
