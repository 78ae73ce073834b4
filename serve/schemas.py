"""Schemas of answers, without the keywords that JSON Schema lets a program ignore and the grammar cannot enforce."""

from typing import Any

from pydantic_core import from_json

ENFORCED_FORMATS = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri", "uuid")
)
_VALUES = ("const", "default", "enum", "examples", "required", "x-guidance")  # keywords without schemas inside
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # schemas by name


def enforceable(schema: Any, *, strict: bool = False) -> tuple[Any, set[str]]:
    """A schema without unknown formats and ``uniqueItems``, and what was left out, such as ``format.path``.

    A format is an annotation by JSON Schema's definition. ``uniqueItems`` is none, so a ``strict`` schema keeps it, and
    is then refused by the grammar. Schemas may be objects or JSON.

    >>> enforceable({"type": "array", "items": {"type": "string", "format": "path"}, "uniqueItems": False})
    ({'type': 'array', 'items': {'type': 'string'}}, {'format.path'})
    """
    left_out: set[str] = set()

    def cleaned(value: Any, by_name: bool = False) -> Any:
        if isinstance(value, list):
            return [cleaned(each) for each in value]
        if not isinstance(value, dict):
            return value
        kept = {}
        for name, inner in value.items():
            if by_name:
                kept[name] = cleaned(inner)
            elif name == "format" and isinstance(inner, str) and inner not in ENFORCED_FORMATS:
                left_out.add(f"format.{inner}")
            elif name == "uniqueItems" and isinstance(inner, bool) and not (strict and inner):
                left_out.update([name] * inner)
            else:
                kept[name] = inner if name in _VALUES else cleaned(inner, name in _NAMED)
        return kept

    try:
        return cleaned(from_json(schema) if isinstance(schema, str) else schema), left_out
    except ValueError:  # the grammar says what is wrong
        return schema, set()
