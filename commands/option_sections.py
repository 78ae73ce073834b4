"""Help texts with their options under headings."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_OTHERS = "Other options"


class _Option(click.Option):
    """An option with a heading."""

    def __init__(self, *args: Any, heading: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading


class SectionedCommand(click.Command):
    """A command whose help lists options by heading, in the order in which the headings come."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; options without a heading come last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "heading", _OTHERS), []).append(record)
        others = sections.pop(_OTHERS, [])
        for heading, records in [*sections.items(), (_OTHERS, others)]:
            with formatter.section(heading):
                formatter.write_dl(records)


def section(heading: str) -> dict[str, Any]:
    """Return the arguments of ``click.option`` that put an option under ``heading`` in the help."""
    return {"cls": _Option, "heading": heading}


def under(heading: str) -> Callable[..., Decorator]:
    """Return ``click.option`` for options that the help lists under ``heading``."""
    return partial(click.option, **section(heading))


def together(*options: Decorator) -> Decorator:
    """Return one decorator for several options, in their order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add
