"""JSON schemas that llguidance accepts although no answer could be finished, found before a token is written."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from spectool import RuntimeUnsupported

_MOST_OPTIONAL = 500  # properties of an object that may be left out; the parser follows all of them at each place
_VALUES = {"enum", "const", "default", "examples"}  # keywords that hold values, not schemas


def require_finishable(schema: Any, can_write: Callable[[Mapping[str, Any]], bool]) -> None:
    """Refuse a schema that leads into a dead end, or to no end at all.

    ``can_write`` says whether the parser has a text for a schema of one object: after the first brace, some
    token is allowed.

    Raises:
        RuntimeUnsupported: It does; the message names the keyword.
    """
    refs: set[str] = set()
    for node in _reachable(schema, schema, refs):
        names, required, patterns, is_open = _object_of(node, schema)
        if (optional := len(names - required)) > _MOST_OPTIONAL:
            raise RuntimeUnsupported(
                f"json_schema: expected at most {_MOST_OPTIONAL:,} properties of an object that may be left out, got"
                f" {optional:,}. List more of them in required"
            )
        listed = {
            "type": "object",
            "properties": dict.fromkeys(sorted(names | required), False),
            "patternProperties": patterns,
            "additionalProperties": is_open,
            "minProperties": 1,
        }
        if any(patterns.values()) and (names or required) and not can_write(listed):
            raise RuntimeUnsupported(
                f"json_schema: patternProperties {', '.join(map(repr, patterns))} can match no name that properties and"
                " required do not list, and additionalProperties allows no others. Leave patternProperties out"
            )
    if endless := refs - _finite(schema, refs):
        raise RuntimeUnsupported(
            f"json_schema: $ref {min(endless)!r} has no end, because each value of it contains another one. Let a"
            " property be left out, or allow null"
        )


def _object_of(schema: dict[str, Any], root: Any) -> tuple[set[str], set[str], dict[str, bool], bool]:
    """What a schema says of an object's names, with all that has to hold as well by ``allOf`` and ``$ref``.

    Returns the names of its properties, those required, whether a name that matches a pattern is allowed, and whether
    any other is.
    """
    parts: list[dict[str, Any]] = []
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and not any(part is each for each in parts):
            parts.append(part)
            waiting += part["allOf"] if isinstance(part.get("allOf"), list) else []
            waiting += [_resolved(part["$ref"], root)] if isinstance(part.get("$ref"), str) else []
    names, patterns = (
        [each if isinstance(each := part.get(keyword), dict) else {} for part in parts]
        for keyword in ("properties", "patternProperties")
    )
    required = [name for part in parts if isinstance(part.get("required"), list) for name in part["required"]]
    others = [part.get("additionalProperties") is not False for part in parts]
    allowed = {
        pattern: all(own.get(pattern, other) is not False for own, other in zip(patterns, others, strict=True))
        for own in patterns
        for pattern in own
    }
    return set().union(*names), {name for name in required if isinstance(name, str)}, allowed, all(others)


def _reachable(schema: Any, root: Any, refs: set[str]) -> Iterator[dict[str, Any]]:
    """All schemas in ``schema`` that the answer can depend on; ``refs`` gets the references that were followed."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        if not isinstance(node, dict):
            continue
        yield node
        for keyword, value in node.items():
            if keyword in ("properties", "patternProperties", "dependentSchemas") and isinstance(value, dict):
                waiting.extend(value.values())
            elif keyword == "$ref" and isinstance(value, str) and value not in refs:
                if (target := _resolved(value, root)) is not None:
                    refs.add(value)
                    waiting.append(target)
            elif keyword not in _VALUES | {"$defs", "definitions"}:
                waiting.append(value)


def _finite(root: Any, refs: set[str]) -> set[str]:
    """The references that have a value without an end of references: least fixed point."""
    good: set[str] = set()
    while new := {ref for ref in refs - good if _ends(_resolved(ref, root), refs - good)}:
        good |= new
    return good


def _ends(schema: Any, endless: set[str]) -> bool:
    """Whether a schema has a finite value, if references in ``endless`` have none."""
    if not isinstance(schema, dict) or "const" in schema or "enum" in schema:
        return True
    if schema.get("$ref") in endless:
        return False
    if not all(_ends(each, endless) for each in schema.get("allOf", [])):
        return False
    if not all(any(_ends(each, endless) for each in schema[name]) for name in ("anyOf", "oneOf") if schema.get(name)):
        return False
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if any(kind not in ("object", "array") for kind in kinds):
        return True
    properties, prefix = schema.get("properties", {}), schema.get("prefixItems", [])
    as_object = all(_ends(properties.get(name, schema.get("additionalProperties")), endless)
                    for name in schema.get("required", []))  # fmt: skip
    least = schema.get("minItems", 0)
    items = [*prefix[:least], *([schema.get("items")] if least > len(prefix) else [])]
    as_array = all(_ends(each, endless) for each in items)
    return any(as_object if kind == "object" else as_array for kind in kinds or ["object", "array"])


def _resolved(ref: str, root: Any) -> Any:
    """What a reference within the document points to; None for others."""
    if not ref.startswith("#") or (ref[1:] and not ref.startswith("#/")):
        return None
    place = root
    for step in ref[1:].split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, dict) else None
    return place
