"""Which fields of a request anything reads, so that those that have no effect can be named."""

from collections.abc import Iterable, Iterator
from typing import Any


class Noted(dict[str, Any]):
    """An object of JSON that notes which fields are read by name; where none is, it is read as a whole.

    Copies of it note nothing.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__({name: noted(value) for name, value in fields.items()})
        self.read = set[str]()

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, which is noted."""
        self.read.add(name)
        return super().get(name, default)

    def note(self, names: Iterable[str]) -> None:
        """Note that fields are read, and that the object is of a known type."""
        self.read |= {"", *names}


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
            place = f"{path}.{name}".removeprefix(".")
            if name in value.read or not value.read:
                yield from unread(inner, place)
            elif inner is not None and place != f"{path}.type":
                yield place
