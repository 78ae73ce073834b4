"""Options of a stage, declared once: the fields of a dataclass are the options of its command.

    @dataclass(frozen=True, kw_only=True)
    class CountOptions:
        min_count: int = option(click.IntRange(1), "Leave out n-grams that occur less often.", 2)

`options_of` gives them to the command.
"""

from collections.abc import Callable
from dataclasses import MISSING, field, fields
from functools import partial
from typing import Any

import click


def option(kind: Any, text: str, default: Any = MISSING, shown: str | None = None, **attributes: Any) -> Any:
    """Declare a field that is an option, named as the field with hyphens for underscores, or by ``names``.

    Args:
        kind: A click type; ``bool`` makes a flag.
        text: The option's help, and the field's documentation.
        default: Its default; an option without one is required.
        shown: The default as it would be typed.
        attributes: ``names``, and further arguments of `click.option`, such as ``metavar``.
    """
    kinds = {"is_flag": True} if kind is bool else {"type": kind, "show_default": default not in (None, MISSING)}
    needed = {"required": True} if default is MISSING else {"default": shown or default}
    return field(default=default, metadata={"click": {"help": text, **kinds, **needed, **attributes}})


several = partial(option, default=(), multiple=True)
"""Declare a field that is an option which may be repeated, or left out."""


def options_of(options: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command the options of a dataclass, as arguments of their own."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(fields(options)):
            if declared := each.metadata.get("click"):
                names = declared.get("names", ["--" + each.name.replace("_", "-")])
                attributes = {key: value for key, value in declared.items() if key != "names"}
                command = click.option(*names, each.name, **attributes)(command)
        return command

    return add
