"""The command ``count``, and the options of every command that counts."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.console import guarded, json_option, out_option, say, stage, text_options
from spectool.artifacts.default_paths import default_path, digest, slug

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


def resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit a count."""
    memory = click.option(
        "--memory",
        type=size_in_bytes,
        default="4GB",
        show_default=True,
        metavar="SIZE",
        help="Limit for counting, all processes together.",
    )
    workers = click.option(
        "--workers",
        type=click.IntRange(1),
        metavar="N",
        help="Processes that count; by default one for each core, as far as the memory goes.",
    )
    return memory(workers(command))


@click.command("count")
@click.option(
    "--corpus",
    required=True,
    metavar="C",
    help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl.",
)
@click.option(
    "--tokenizer", "--model", "tokenizer", metavar="T", help="Count windows of this tokenizer's tokens, not words."
)
@out_option
@click.option(
    "--orders",
    type=click.IntRange(1, 16),
    metavar="N",
    help="Longest n-gram; by default 3 words, or 8 tokens.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Leave out n-grams that occur less often; the counts of all others are exact.",
)
@resource_options
@click.option(
    "--engine",
    type=click.Choice(["embedded", "dask"]),
    default="embedded",
    show_default=True,
    help="Processes of this machine, or Dask (pip install spectool[cluster]).",
)
@click.option(
    "--scheduler",
    metavar="ADDR",
    help="A running Dask cluster, such as tcp://10.0.0.1:8786; without it, Dask runs on this machine.",
)
@click.option(
    "--language", metavar="CODE", help="ISO 639 code of the text, for splitting words (fr, it and ca differ)."
)
@text_options
@json_option
@guarded
def count(
    corpus: str,
    tokenizer: str | None,
    out: Path | None,
    orders: int | None,
    min_count: int,
    memory: int,
    workers: int | None,
    engine: Any,
    scheduler: str | None,
    language: str | None,
    text_field: str | None,
    on_error: Any,
    as_json: bool,
) -> None:
    """Count the n-grams of a text exactly, in bounded memory: words, or windows of tokens.

    Counts of words depend on no tokenizer and serve every dictionary of the method dictspec. Finished
    work lies beside OUT until all is done; after a kill, the same command goes on from there.

    On a cluster, OUT must lie where all workers see it, --memory is the limit of each task, and --workers
    the number of tasks at the same time.

    \b
    Examples:
        spectool count --corpus wiki-pl -o pl.counts
        spectool count --corpus wiki-pl --tokenizer ./Bielik-11B --min-count 4 -o pl-bielik.counts
    """
    from spectool.artifacts.formats.counts import FORMAT
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.artifacts.work import work_path
    from spectool.build.counting.stage import CountOptions
    from spectool.build.counting.stage import count as run
    from spectool.corpora import open_corpus

    if scheduler is not None and engine != "dask":
        raise click.UsageError("--scheduler is for --engine dask")
    if language is not None and tokenizer is not None:
        raise click.UsageError("--language is for splitting words; with --tokenizer, tokens are counted")
    options = CountOptions(orders, min_count, language, memory, workers, engine, scheduler)
    source = open_corpus(corpus, on_error=on_error, text_field=text_field)
    target = None if tokenizer is None else open_tokenizer(tokenizer)
    if target is not None:
        for note in target.notes:
            say(f"{target.name}: {note}")
    what = "words" if target is None else target.fingerprint[:8]
    path = out or default_path(f"{slug(corpus)}.{what}-{digest(orders, min_count, language)}.counts")
    with stage(path, FORMAT, as_json, {} if target is None else {"target": target.fingerprint}) as finish:
        try:
            finish(run(source, path, options, target, say))
        except KeyboardInterrupt:
            if work_path(path).exists():
                say(f"Interrupted. Finished work is kept in {work_path(path)}; the same command goes on from there.")
                sys.exit(130)
            raise
