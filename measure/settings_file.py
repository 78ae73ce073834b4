"""Settings in a TOML file, checked by a pydantic type: an error names file, key, what was expected and what came."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from spectool import SpectoolError

Settings = TypeVar("Settings")
Several: TypeAlias = Annotated[tuple[Settings, ...], Strict(False), Field(min_length=1)]
"""One or more, a list in the file."""
_LONGEST = 60  # characters of a wrong value in a message


class Table(BaseModel):
    """A table of settings: these keys and no others, values of these types and none that would have to be converted."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _expect_known(cls, given: Any) -> Any:
        strange = [key for key in given if key not in cls.model_fields] if isinstance(given, dict) else []
        if strange:
            raise ValueError(f"expected the keys {', '.join(cls.model_fields)}, got {', '.join(strange)}")
        return given


def read_settings(path: Path, kind: type[Settings], what: str, hint: str) -> Settings:
    """Read a file of settings.

    Args:
        path: The file.
        kind: What its tables must be: a `Table`, or any other type that pydantic checks.
        what: What the file is, for messages: ``a grid``.
        hint: What to do about an error, a sentence.

    Raises:
        SpectoolError: It cannot be read, or something in it is not what it should be; names every such key.
    """
    return check_settings(read_toml(path, what, hint), kind, hint, f"{path}: ")


def read_toml(path: Path, what: str, hint: str) -> dict[str, Any]:
    """Read a file without checking its keys; arguments as of `read_settings`.

    Raises:
        SpectoolError: It is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpectoolError(f"{path}: expected {what} in TOML, got {error}. {hint}") from error


def check_settings(values: Any, kind: type[Settings], hint: str, where: str = "") -> Settings:
    """Check settings, which are tables as TOML has them; an error begins with ``where`` they come from.

    Raises:
        SpectoolError: Something in them is not what it should be; names every such key.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        # A list of wrong items counts as too short besides.
        wrong = [each for each in error.errors() if each["type"] != "too_short" or not each["input"]]
        raise SpectoolError(f"{where}{'; '.join(map(_said, wrong))}. {hint}") from error


def _said(error: ErrorDetails) -> str:
    """Say what is wrong with one key."""
    where = f"{'.'.join(map(str, error['loc']))}: " if error["loc"] else ""
    got = str(error["input"]) if isinstance(error["input"], str) else repr(error["input"])
    if error["type"] == "value_error":
        return f"{where}{error['ctx']['error']}"
    if error["type"] == "missing":
        return f"{where}expected a value, got none"
    if error["type"] == "too_short":
        return f"{where}expected at least {error['ctx']['min_length']}, got none"
    expected = re.sub("^(Input should be|String should have) ", "", error["msg"]).replace("tuple", "list")
    return f"{where}expected {expected}, got {got if len(got) <= _LONGEST else got[: _LONGEST - 1] + '…'}"
