"""TOML files checked by pydantic types: an error names file, key, what was expected and what came."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from spectool import SpectoolError

Checked = TypeVar("Checked")
Several: TypeAlias = Annotated[tuple[Checked, ...], Strict(False), Field(min_length=1)]
"""One or more, a list in the file."""
_LONGEST = 60  # characters of a wrong value in a message


class TomlTable(BaseModel):
    """A table of a file: exactly these keys, with values of these types that need no conversion."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _expect_known(cls, given: Any) -> Any:
        strange = [key for key in given if key not in cls.model_fields] if isinstance(given, dict) else []
        if strange:
            raise ValueError(f"expected the keys {', '.join(cls.model_fields)}, got {', '.join(strange)}")
        return given


def read_toml(path: Path, what: str, hint: str) -> dict[str, Any]:
    """The keys of a file, not checked; errors say ``what`` the file is and end with a ``hint``, a sentence."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpectoolError(f"{path}: expected {what} in TOML, got {error}. {hint}") from error


def check_keys(keys: Any, kind: type[Checked], hint: str, where: str = "") -> Checked:
    """What ``kind``, a type that pydantic checks, makes of tables as TOML has them.

    Raises:
        SpectoolError: Keys are wrong; the message, which begins with ``where``, names all of them.
    """
    try:
        return TypeAdapter(kind).validate_python(keys)
    except ValidationError as error:
        # A list whose items are wrong also counts as too short.
        wrong = [each for each in error.errors() if each["type"] != "too_short" or not each["input"]]
        raise SpectoolError(f"{where}{'; '.join(map(_problem, wrong))}. {hint}") from error


def _problem(error: ErrorDetails) -> str:
    """What is wrong with one key."""
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
