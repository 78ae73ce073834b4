"""In which values two runs differ, in words."""

from collections.abc import Mapping
from typing import Any

_MOST_NAMED = 4  # differences in a message


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first few values in which two keys differ, in words."""
    one, two = _flat(there), _flat(now)
    names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    said = [f"{name} is {_short(one.get(name))} there and {_short(two.get(name))} now" for name in names[:_MOST_NAMED]]
    more = len(names) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flat(value) if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else {f"{name}.{key}": v for key, v in inner.items()}
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
