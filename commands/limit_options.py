"""Options that limit what counting takes and what a dictionary holds, and sizes such as 5MB as their values."""

import re

import click

from spectool.build.counting.options import CountOptions

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def size_in_bytes(text: str) -> int:
    """The number of bytes of a size such as 4GB, 500MB or 2GiB.

    >>> size_in_bytes("4GB"), size_in_bytes("1.5 MiB")
    (4000000000, 1572864)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", str(text).upper())
    if match is None:
        raise click.BadParameter(f"{text!r} is no size. Give one such as 4GB, 500MB or 2GiB.")
    return int(float(match[1]) * _UNITS[match[2] or ""])


memory_option = click.option(
    "--memory",
    type=size_in_bytes,
    default=f"{CountOptions.memory // 10**9}GB",
    show_default=True,
    metavar="SIZE",
    help="Limit for counting, all processes together.",
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that count; by default one for each core, as far as the memory goes.",
)
