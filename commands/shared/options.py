"""Options that several commands share, the types of their values, and how help texts list options."""

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.shared.console import decoded, guarded

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
EXPLAIN_ALL = "spectool.explain_all"
"""Key in the ``meta`` of a command's context that makes its help explain every option."""


class Whole(click.IntRange):
    """A range of whole numbers."""

    name = "whole number"


class Finite(click.FloatRange):
    """A range of numbers without ``nan`` and ``inf``."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, checked."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


def utf8_text(given: str) -> str:
    """A text that is valid UTF-8."""
    try:
        return decoded(given)
    except SpectoolError as error:
        raise click.BadParameter(f"{error}.") from error


def some_text(given: str) -> str:
    """A text that is not empty."""
    if not given:
        raise click.BadParameter("expected a text, got nothing.")
    return utf8_text(given)


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter(f"expected a JSON object, got {text!r}")
    return found


def size_in_bytes(text: str) -> int:
    """The number of bytes of a size such as 4GB, 500MB or 2GiB.

    >>> size_in_bytes("4GB"), size_in_bytes("1.5 MiB")
    (4000000000, 1572864)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", text.upper())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size. Give one such as 4GB, 500MB or 2GiB.")
    return int(float(match[1]) * _UNITS[match[2] or ""])


class _Option(click.Option):
    """An option that the help lists under a heading, or among those that only ``--help-all`` explains."""

    def __init__(self, *args: Any, heading: str = "", rare: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **{"show_default": True, **kwargs})
        self.heading, self.rare = heading, rare
        if isinstance(self.type, click.IntRange | click.FloatRange):
            self.metavar = self.metavar or "N"

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What click adds to the help, without the range of numbers, which errors name."""
        return {name: value for name, value in super().get_help_extra(ctx).items() if name != "range"}


class SectionedCommand(click.Command):
    """A command with ``--json`` and errors of one line, whose help lists options by heading, in their order."""

    def __init__(self, *args: Any, json: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if any(getattr(parameter, "rare", False) for parameter in self.params):
            explain = partial(click.Option, is_flag=True, is_eager=True, expose_value=False, callback=_explain_all)
            self.params.append(explain(["--help-all"], help="Explain every option."))
        if json:
            self.params.append(_Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."))

    @guarded()
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; options without a heading come last, and rare ones are only named."""
        sections: dict[str, list[tuple[str, str]]] = {}
        rare: list[str] = []
        for parameter in self.get_params(ctx):
            if getattr(parameter, "rare", False) and EXPLAIN_ALL not in ctx.meta:
                rare.append(parameter.opts[0])
            elif isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(parameter, "heading", ""), []).append(record)
        others = sections.pop("")
        for heading, records in [*sections.items(), ("Other options" if sections else "Options", others)]:
            with formatter.section(heading):
                formatter.write_dl(records)
        if rare:
            with formatter.section("Explained by --help-all"):
                indent = " " * formatter.current_indent
                lines = TextWrapper(formatter.width, indent, indent, break_on_hyphens=False).wrap(", ".join(rare))
                formatter.write("\n".join(lines) + "\n")


def _explain_all(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.meta[EXPLAIN_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _text_of(context: click.Context, parameter: click.Parameter, path: str | None) -> tuple[str, str] | None:
    """The path and the text of a file, which is read at once, because a command checks all arguments first."""
    if path is None:
        return None
    try:
        text = decoded(Path(path).read_bytes(), f"{path}: ")
    except (OSError, SpectoolError) as error:
        raise click.BadParameter(f"{error}.") from error
    if not text:
        raise click.BadParameter(f"{path}: expected text, got an empty file.")
    return path, text


command = partial(click.command, cls=SectionedCommand)
option = partial(click.option, cls=_Option)
"""`click.option` with a ``heading``; only --help-all explains an option that is ``rare``. The help shows defaults."""

# Commands add what differs, such as `help` or `required`.
tokenizer_option = partial(option, "--tokenizer", "--model", "tokenizer", metavar="T")
draft_option = partial(option, "--draft", "--draft-model", "draft", required=True)
target_option = partial(option, "--target", "--model", "target", required=True)
path_option = partial(option, type=click.Path(path_type=Path))
text_file_option = partial(option, type=click.Path(exists=True, dir_okay=False), callback=_text_of, metavar="FILE")
out_option = path_option("-o", "--out", metavar="OUT", help="Where to write; by default in your cache folder.")


def option_group(*options: Decorator) -> Decorator:
    """One decorator that adds several options, in their order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add
