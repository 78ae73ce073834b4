"""What the methods and the commands that edit are asked: fields are options of commands and arguments of stages."""

from dataclasses import dataclass
from typing import Literal

import click

from spectool.artifacts.options import option
from spectool.build.counting.options import size_in_bytes
from spectool.commands.options import Finite

Reading = Literal["whole", "path"]
_TOKENS = click.IntRange(1, 64)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a dictionary may be that is made from others."""

    entries: int | None = option(
        click.IntRange(1), "Keep at most so many entries, those with the highest expected gain.", None, metavar="N"
    )
    max_bytes: int | None = option(
        size_in_bytes, "Keep what fits into data files of this size, as 5MB.", None, metavar="SIZE"
    )


@dataclass(frozen=True, slots=True)
class BackoffOptions:
    """Arguments of the backoff method; the help of each says what it is."""

    entries: int | None = option(
        click.IntRange(1),
        "backoff: keep at most so many. dictspec: take so many of the most frequent n-grams; 200,000 by default.",
        None,
    )
    max_bytes: int | None = option(
        size_in_bytes,
        "backoff: keep the entries with the highest expected gain that fit in.",
        5_000_000,
        shown="5MB",
        metavar="SIZE",
    )
    max_context: int = option(click.IntRange(1, 15), "backoff: longest context, in tokens.", 6)
    # Lower ones drafted held-out text no better; see benchmarks/backoff_choices.py.
    discount: float = option(Finite(0, 1), "backoff: taken off every count by the smoothing.", 0.9)


@dataclass(frozen=True, slots=True)
class DictSpecOptions:
    """Arguments of the DictSpec method (paper: section 4.4); ``entries`` are n-grams to take, over all orders."""

    orders: str = option(
        click.Choice(["n1", "n12", "n123"]), "dictspec: longest n-gram: words, pairs or triples.", "n123"
    )
    entries: int = 200_000
    min_probability: float = option(
        Finite(0, 1), "dictspec: smallest continuation probability.", 0.2, names=["--min-prob"]
    )
    reading: Literal["whole", "path"] = option(
        click.Choice(["whole", "path"]),
        "dictspec: what must reach it: the whole continuation, or the path of likeliest tokens, cut where it falls "
        "below.",
        "path",
        names=["--min-prob-of"],
    )
    max_prefix: int = option(_TOKENS, "dictspec: longest context, in tokens.", 8)
    max_continuation: int = option(_TOKENS, "dictspec: longest proposal, in tokens.", 8)
