"""JSON schemas that llguidance accepts although no answer could be finished, found before a token is written."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from spectool import RuntimeUnsupported

_MOST_OPTIONAL = 500  # properties of an object that may be left out; the parser follows all of them at each place
# Keywords that hold values, and those whose schemas count only where a reference leads to them.
_NO_SCHEMAS = {"enum", "const", "default", "examples", "$defs", "definitions"}


def require_finishable(schema: Any, can_write: Callable[[Mapping[str, Any]], bool]) -> None:
    """Refuse a schema that leads into a dead end, or to no end at all.

    ``can_write`` says whether the parser allows any token after the first brace of an object of a schema.

    Raises:
        RuntimeUnsupported: It does; the message names the keyword.
    """
    nodes = list(_reachable(schema))
    for node in nodes:
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
    endless = {node["$ref"] for node in nodes if isinstance(node.get("$ref"), str)}
    while finite := {ref for ref in endless if _ends(_resolved(ref, schema), endless)}:
        endless -= finite
    if endless:
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


def _reachable(root: Any) -> Iterator[dict[str, Any]]:
    """All schemas in ``root`` that the answer can depend on."""
    waiting, followed = [root], set[str]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        if not isinstance(node, dict):
            continue
        yield node
        for keyword, value in node.items():
            if keyword in ("properties", "patternProperties", "dependentSchemas") and isinstance(value, dict):
                waiting += value.values()
            elif keyword == "$ref" and isinstance(value, str):
                waiting += [] if value in followed else [_resolved(value, root)]
                followed.add(value)
            elif keyword not in _NO_SCHEMAS:
                waiting.append(value)


def _ends(schema: Any, endless: set[str]) -> bool:
    """Whether a schema has a finite value, if references in ``endless`` have none."""
    if not isinstance(schema, dict) or "const" in schema or "enum" in schema:
        return True
    if schema.get("$ref") in endless or not all(_ends(each, endless) for each in schema.get("allOf", [])):
        return False
    if not all(any(_ends(each, endless) for each in schema[name]) for name in ("anyOf", "oneOf") if schema.get(name)):
        return False
    kinds = schema.get("type", ["object", "array"])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    prefix, least = schema.get("prefixItems", []), schema.get("minItems", 0)
    inside = {
        "object": [properties.get(name, others) for name in schema.get("required", [])],
        "array": prefix[:least] if least <= len(prefix) else [*prefix, schema.get("items")],
    }
    return any(all(_ends(each, endless) for each in inside.get(kind, [])) for kind in kinds)


def _resolved(ref: str, root: Any) -> Any:
    """What a reference within the document points to; None for others."""
    if not ref.startswith("#") or (ref[1:] and not ref.startswith("#/")):
        return None
    place = root
    for step in ref[1:].split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, dict) else None
    return place
