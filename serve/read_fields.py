"""Which fields of a request anything reads, so that those that have no effect can be named.

Models of pydantic know the fields that they do not have. What is read by hand is read through `Noted`.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel


class Noted(dict[str, Any]):
    """An object of JSON that notes which fields are read by name; where none is, it is read as a whole.

    Copies of it, such as pydantic's and ``{**noted}``, note nothing.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__({name: noted(value) for name, value in fields.items()})
        self.read = set[str]()

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, which is noted."""
        self.read.add(name)
        return super().get(name, default)


def noted(value: Any) -> Any:
    """A value in which all objects are `Noted`."""
    if isinstance(value, list):
        return [noted(each) for each in value]
    return Noted(value) if isinstance(value, dict) and not isinstance(value, Noted) else value


def unread(value: Any, path: str) -> Iterator[str]:
    """The paths of the fields in the value at ``path`` that were not read; the type of an object if only that was."""
    if isinstance(value, list):
        for each in value:
            yield from unread(each, path)
    elif isinstance(value, Noted) and value.read == {"type"} <= value.keys():
        yield f"{path}.{value['type']}"
    elif isinstance(value, Noted):
        for name, inner in value.items():
            if name in value.read or not value.read:
                yield from unread(inner, f"{path}.{name}")
            elif inner is not None and name != "type":
                yield f"{path}.{name}"


def unknown(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields that models do not have, in the one that is given and in those inside of it."""
    if isinstance(value, list):
        for each in value:
            yield from unknown(each, path)
    elif isinstance(value, BaseModel):
        yield from (f"{path}{name}" for name in value.model_extra or ())
        for name in value.model_fields_set - (value.model_extra or {}).keys():
            yield from unknown(getattr(value, name), f"{path}{name}.")
