"""Options that several commands share, the types of their values, and how help texts list options and commands."""

import io
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from spectool.commands.shared.console import guarded

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


class Whole(click.IntRange):
    """A range of whole numbers."""

    name, metavar = "whole number", "N"


class Finite(click.FloatRange):
    """A range of numbers without ``nan`` and ``inf``."""

    name, metavar = "number", "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, checked."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


def some_text(given: bytes | str, where: str = "") -> str:
    """UTF-8 as text that is not empty, without a mark at its beginning; errors begin with ``where``.

    In text that was typed, other bytes are lone surrogates.
    """
    try:
        text = (given.encode("utf-8", "surrogateescape") if isinstance(given, str) else given).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.BadParameter(
            f"{where}not UTF-8 at byte {error.start}. Convert it first, for example: iconv -f CP1250 -t UTF-8."
        ) from error
    if not text:
        raise click.BadParameter(f"{where}expected a text, got nothing.")
    return text


def language_code(given: str) -> str:
    """A language by its code, in small letters."""
    code = given.lower()
    if not re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]+)*", code):
        raise click.BadParameter(f"expected the code of a language, such as pl or crh, got {given!r}.")
    return code


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    with suppress(ValueError):
        if isinstance(found := json.loads(text), dict):
            return found
    raise click.BadParameter(f"expected a JSON object, got {text!r}")


def size_in_bytes(text: str) -> int:
    """The number of bytes of a size such as 4GB, 500MB or 2GiB.

    >>> size_in_bytes("4GB"), size_in_bytes("1.5 MiB")
    (4000000000, 1572864)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", text.upper())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size. Give one such as 4GB, 500MB or 2GiB.")
    size = int(float(match[1]) * _UNITS[match[2] or ""])
    if not 0 < size < 2**63:
        raise click.BadParameter(f"{text!r} is out of range. Give a size above zero, such as 4GB, 500MB or 2GiB.")
    return size


class _Option(click.Option):
    """An option that the help lists under a heading."""

    def __init__(self, *args: Any, heading: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading
        self.metavar = self.metavar or getattr(self.type, "metavar", None)


class SectionedCommand(click.Command):
    """A command with ``--json`` and errors of one line, whose help lists options by heading, in their order."""

    def __init__(self, *args: Any, json: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if json:
            self.params.append(_Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."))

    @guarded()
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                sections.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class LazyGroup(click.Group):
    """A group that imports the module of a command when it is needed, so help and offline stages never import mlx."""

    def __init__(
        self, name: str | None, *, purposes: Mapping[str, list[str]], modules: Mapping[str, str], **others: Any
    ) -> None:
        """List the names of commands under ``purposes``; ``modules`` are those that are not of that name here."""
        imported_later: Any = dict.fromkeys(chain.from_iterable(purposes.values()))
        super().__init__(name, imported_later, **others)
        self._purposes, self._modules = purposes, modules

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line, whose output has escapes for what its encoding lacks."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        for purpose, names in self._purposes.items():
            with formatter.section(purpose):
                formatter.write_dl([(name, self._imported(name).get_short_help_str(200)) for name in names])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported."""
        return self._imported(cmd_name) if cmd_name in self.commands else None

    @guarded()
    def _imported(self, name: str) -> click.Command:
        function = name.replace("-", "_")
        command: click.Command = resolve_name(f"{self._modules.get(name, f'spectool.commands.{function}')}:{function}")
        return command


def _text_of(path: str) -> str:
    """The text of a file, which is read at once, because a command checks all arguments first."""
    try:
        return some_text(Path(path).read_bytes(), f"{path}: ")
    except OSError as error:
        raise click.BadParameter(f"{error}.") from error


command = partial(click.command, cls=SectionedCommand)
option = partial(click.option, cls=_Option)
"""`click.option` with a ``heading``."""

# Commands add what differs, such as `help` or `required`.
tokenizer_option = partial(option, "--tokenizer", "--model", "tokenizer", metavar="T")
draft_option = partial(option, "--draft", "--draft-model", "draft", required=True)
target_option = partial(option, "--target", "--model", "target", required=True)
pack_option = partial(option, "--pack", "packs", multiple=True, metavar="NAME")
corpora_option = partial(option, "--corpus", "corpora", multiple=True, metavar="C")
language_option = partial(option, "--language", type=language_code, required=True, metavar="CODE")
texts_option = partial(option, type=some_text, multiple=True, metavar="TEXT")
path_option = partial(option, type=click.Path(path_type=Path))
text_file_option = partial(option, type=_text_of, metavar="FILE")
out_option = path_option("-o", "--out", metavar="OUT", help="Where to write; by default in your cache folder.")


def option_group(*options: Decorator) -> Decorator:
    """One decorator that adds several options, in their order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)
