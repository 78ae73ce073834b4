"""What a count is asked: its arguments, and limits of memory and processes."""

import re
from dataclasses import dataclass
from typing import Literal

import click

from spectool.artifacts.options import option

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def size_in_bytes(text: str) -> int:
    """Read a size such as 4GB, 500MB or 2GiB.

    >>> size_in_bytes("4GB"), size_in_bytes("1.5 MiB")
    (4000000000, 1572864)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", str(text).upper())
    if match is None:
        raise click.BadParameter(f"{text!r} is no size. Give one such as 4GB, 500MB or 2GiB.")
    return int(float(match[1]) * _UNITS[match[2] or ""])


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Limits of every command that counts; the help of each says what it is."""

    memory: int = option(
        size_in_bytes, "Limit for counting, all processes together.", 4 * 10**9, shown="4GB", metavar="SIZE"
    )
    workers: int | None = option(
        click.IntRange(1),
        "Processes that count; by default one for each core, as far as the memory goes.",
        None,
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class CountOptions(Resources):
    """Arguments of a count. Only orders, minimum count and language shape the result."""

    orders: int | None = option(
        click.IntRange(1, 16), "Longest n-gram; by default 3 words, or 8 tokens.", None, metavar="N"
    )
    min_count: int = option(
        click.IntRange(1), "Leave out n-grams that occur less often; the counts of all others are exact.", 2
    )
    language: str | None = option(
        str, "ISO 639 code of the text, for splitting words (fr, it and ca differ).", None, metavar="CODE"
    )
    engine: Literal["embedded", "dask"] = option(
        click.Choice(["embedded", "dask"]),
        "Processes of this machine, or Dask (pip install 'spectool[cluster]').",
        "embedded",
    )
    scheduler: str | None = option(
        str,
        "A running Dask cluster, such as tcp://10.0.0.1:8786; without it, Dask runs on this machine.",
        None,
        metavar="ADDR",
    )
