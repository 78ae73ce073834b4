"""Values as models write them, in JSON or without quotes, read by the types that a JSON schema allows."""

import json
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


JSON = json.JSONDecoder(strict=False, object_pairs_hook=_unique, parse_constant=int)  # NaN is none
"""Reads JSON with line ends in strings, which models write."""
CONSTANTS = {"True": "true", "False": "false", "None": "null"}
"""Python's constants in JSON."""
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_KINDS[type(None)] = "null"


def typed(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that is written like this: a string where ``schema``, a part of ``root``, allows one and it is no JSON.

    Raises:
        ValueError: It is of no type that is allowed.
    """
    kinds = _kinds(schema, root)
    try:
        value = JSON.decode(text if "string" in kinds else CONSTANTS.get(text.strip(), text))
    except (ValueError, RecursionError):
        value = ""
    fits = _KINDS[type(value)] in kinds or ("integer" in kinds and isinstance(value, float) and value.is_integer())
    exact = "string" not in kinds or isinstance(value, list | dict) or json.dumps(value) == text
    if fits and exact and not isinstance(value, str):
        return value
    if "string" not in kinds:
        raise ValueError(f"{text!r} is none of {kinds}")
    return text


def _kinds(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """The types of JSON that a part of the schema ``root`` allows: all of them if it does not say."""
    said = schema if isinstance(schema, dict) else {}
    if str(said.get("$ref", "")).startswith("#/"):
        return _kinds(reduce(getitem, said["$ref"][2:].split("/"), root), root)
    values = [*said.get("enum", ()), *(said[name] for name in ("const",) if name in said)]
    given = said.get("type") or [_KINDS[type(value)] for value in values]
    kinds = {given} if isinstance(given, str) else set(given)
    choices = [each for name in ("anyOf", "oneOf", "allOf") for each in said.get(name, ())]
    kinds = kinds or set[str]().union(*(_kinds(each, root) for each in choices))
    kinds = kinds & {*_KINDS.values()} or {*_KINDS.values()}
    return kinds | ({"null"} if said.get("nullable") else set()) | ({"integer"} if "number" in kinds else set())
