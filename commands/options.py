"""Options that several commands share, as decorators of `click.option`, and types for their values.

The `partial` ones take further arguments, such as ``help`` or ``required``.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.console import require_utf8

tokenizer_option = partial(click.option, "--tokenizer", "--model", "tokenizer", metavar="T")
"""A tokenizer: directory, tokenizer.json or hub id."""

draft_option = partial(click.option, "--draft", "--draft-model", "draft", required=True)
"""A draft model, or its tokenizer."""

target_option = partial(click.option, "--target", "--model", "target", required=True)
"""The target, likewise."""

corpora_option = partial(click.option, "--corpus", "corpora", required=True, multiple=True, metavar="[NAME=]SPEC")
"""Corpora, each with a name or without."""

path_option = partial(click.option, type=click.Path(path_type=Path))
"""A file or directory."""


class Text(click.types.StringParamType):
    """Text that a tokenizer can spell."""

    def __init__(self, empty: bool = True) -> None:
        """Take text, also the ``empty`` one."""
        self._empty = empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that ``value`` is UTF-8."""
        text = super().convert(value, param, ctx)
        if not text and not self._empty:
            self.fail("expected a text, got nothing.", param, ctx)
        try:
            require_utf8(text)
        except SpectoolError as error:
            self.fail(f"{error}.", param, ctx)
        return text


class Finite(click.FloatRange):
    """A range of numbers that does not take ``nan`` and ``inf`` for numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that ``value`` is a number within the range."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that reads text; it gets them as ``reads``, arguments of `open_corpus`."""

    @wraps(command)
    def run(*args: Any, text_field: str | None, encoding: str | None, on_error: str, **others: Any) -> Any:
        reads = {"text_field": text_field, "encoding": encoding, "on_error": on_error}
        return command(*args, reads=reads, **others)

    repair = click.option(
        "--on-error",
        type=click.Choice(["stop", "repair"]),
        default="stop",
        show_default=True,
        help="At damaged characters: stop and name the place, or drop and count them.",
    )
    encoded = click.option(
        "--encoding",
        metavar="NAME",
        help="Encoding of text files, such as cp1250, cp1251, koi8-u or utf-16; by default UTF-8, or what a byte order "
        "mark says.",
    )
    column = click.option(
        "--text-field", metavar="NAME", help="Column with the text, in JSONL, Parquet and hub data sets."
    )
    return column(encoded(repair(run)))


out_option = path_option("-o", "--out", metavar="OUT", help="Directory to write; by default in the user's cache.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
