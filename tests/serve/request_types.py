"""Values of the types by which clients write requests, for each field at every depth."""

from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Required, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
# Where any value of the type would be refused, or be the default; by the names of fields, and by their ends.
_VALUES: dict[str, Any] = {
    "schema": SCHEMA, "parameters": SCHEMA, "input_schema": SCHEMA, "arguments": '{"a": "b"}',
    "logit_bias": {"5": 1}, "temperature": 0.5, "top_p": 0.5, "best_of": 2, "n": 2, "stop_sequences": ["a"],
    "max_output_tokens": 5, "presence_penalty": 1.0, "frequency_penalty": 1.0, "image_url": "http://127.0.0.1/a.png",
    "definition": "start: /a/", "url": "http://127.0.0.1/a",
}  # fmt: skip


class Sample(NamedTuple):
    """A value for a field of this type, and the fields inside of it: from a value of theirs to this one with it."""

    value: Any
    inner: dict[str, tuple[Any, Callable[[Any], Any]]]


def samples(kind: Any, name: str = "") -> Iterator[Sample]:
    """A value of each of the types that a field may have."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        hints = fields_of(kind)
        # The types' own lists of required fields do not see through their annotations, which are texts.
        marked = get_type_hints(kind, include_extras=True)
        needed = [each for each in hints if get_origin(marked[each]) is Required] or list(hints)[:1]
        value = {each: next(samples(hints[each], each)).value for each in needed}
        yield Sample(
            value, {each: (hint, lambda inner, each=each: {**value, each: inner}) for each, hint in hints.items()}
        )
    elif origin in (Union, UnionType):
        yield from (each for one in arguments if one is not NoneType for each in samples(one, name))
    elif name in _VALUES:
        yield Sample(_VALUES[name], {})
    elif origin is Literal:
        yield Sample(arguments[0], {})
    elif origin is dict or kind is dict or "Mapping" in str(origin):
        yield Sample({"a": "b"}, {})
    elif arguments and kind is not tuple:
        for one in samples(arguments[0], name):
            yield Sample(
                [one.value], {each: (hint, lambda v, put=put: [put(v)]) for each, (hint, put) in one.inner.items()}
            )
    else:
        yield Sample({bool: True, int: 5, float: 5.0, str: "a"}.get(kind, {"a": "b"}), {})


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a TypedDict with their types."""
    return get_type_hints(kind)
