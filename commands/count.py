"""The command ``count``."""

from pathlib import Path
from typing import Any

import click

from spectool.artifacts.default_paths import default_path, digest, slug
from spectool.artifacts.options import options_of
from spectool.build.counting.options import CountOptions
from spectool.commands.console import guarded, say, say_notes, stage
from spectool.commands.options import json_option, out_option, text_options, tokenizer_option


@click.command("count")
@click.option(
    "--corpus", required=True, metavar="C", help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl."
)
@tokenizer_option(help="Count windows of this tokenizer's tokens, not words.")
@out_option
@options_of(CountOptions)
@text_options
@json_option
@guarded
def count(
    corpus: str,
    tokenizer: str | None,
    out: Path | None,
    reads: dict[str, Any],
    as_json: bool,
    **others: Any,
) -> None:
    """Count the n-grams of a text exactly, in bounded memory: words, or windows of tokens.

    Counts of words depend on no tokenizer and serve every dictionary of the method dictspec. Finished
    work lies beside OUT until all is done; after a kill, the same command resumes.

    On a cluster, OUT must lie where all workers see it. There --memory is the limit of each task, and --workers the
    number of tasks at the same time.

    \b
    Examples:
        spectool count --corpus wiki-pl -o pl.counts
        spectool count --corpus wiki-pl --tokenizer ./Bielik-11B --min-count 4 -o pl-bielik.counts
    """
    from spectool.artifacts.counts import FORMAT
    from spectool.build.counting.stage import count as run
    from spectool.corpora import open_corpus
    from spectool.tokenization.opening import open_tokenizer

    options = CountOptions(**others)
    if options.scheduler is not None and options.engine != "dask":
        raise click.UsageError("--scheduler is for --engine dask")
    if options.language is not None and tokenizer is not None:
        raise click.UsageError("--language is for splitting words; with --tokenizer, tokens are counted")
    source = open_corpus(corpus, **reads)
    target = None if tokenizer is None else open_tokenizer(tokenizer)
    if target is not None:
        say_notes(target)
    what = "words" if target is None else target.fingerprint[:8]
    shaped = digest(options.orders, options.min_count, options.language)
    path = out or default_path(f"{slug(corpus)}.{what}-{shaped}.counts")
    with stage(path, FORMAT, as_json, {} if target is None else {"target": target.fingerprint}) as finish:
        finish(run(source, path, options, target, say))
