"""The command ``build-dict``."""

import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from spectool.artifacts.console import Finite, guarded, json_option, out_option, say, stage, text_options
from spectool.artifacts.default_paths import default_path, digest, slug
from spectool.build.counting.options import Resources, size_in_bytes
from spectool.build.options import options_of

_OF_BACKOFF = ("max_bytes", "max_context", "discount")
_OF_DICTSPEC = ("orders", "min_prob", "min_prob_of", "max_prefix", "max_continuation", "language")
_SMALL = 4_000_000  # bytes on disk: windows that occurred once find room in a dictionary of such a text


@click.command("build-dict")
@click.option(
    "--tokenizer",
    "--model",
    "--target",
    "tokenizer",
    required=True,
    metavar="T",
    help="Directory, tokenizer.json or hub id of the target model.",
)
@click.option(
    "--corpus",
    metavar="C",
    help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl.",
)
@click.option(
    "--counts",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="What `spectool count` wrote, in place of a corpus: windows of T's tokens, or words for dictspec.",
)
@out_option
@click.option(
    "--method",
    type=click.Choice(["backoff", "dictspec"]),
    default="backoff",
    show_default=True,
    help="The next token after every context, chained; or the DictSpec paper's frequent phrases.",
)
@click.option(
    "--max-bytes",
    type=size_in_bytes,
    default="5MB",
    show_default=True,
    metavar="SIZE",
    help="backoff: keep the entries worth most that fit in.",
)
@click.option(
    "--entries",
    type=click.IntRange(1),
    help="backoff: keep at most so many. dictspec: take so many of the most frequent n-grams; 200,000 by default.",
)
@click.option(
    "--max-context",
    type=click.IntRange(1, 15),
    default=6,
    show_default=True,
    help="backoff: longest context, in tokens.",
)
@click.option(
    "--discount",
    type=Finite(0, 1),
    default=0.9,
    show_default=True,
    help="backoff: taken off every count by the smoothing.",
)
@click.option(
    "--orders",
    type=click.Choice(["n1", "n12", "n123"]),
    default="n123",
    show_default=True,
    help="dictspec: longest n-gram: words, pairs or triples.",
)
@click.option(
    "--min-prob",
    type=Finite(0, 1),
    default=0.2,
    show_default=True,
    help="dictspec: smallest continuation probability.",
)
@click.option(
    "--min-prob-of",
    type=click.Choice(["whole", "path"]),
    default="path",
    show_default=True,
    help="dictspec: what must reach it: the whole continuation, or the path of likeliest tokens, cut where it falls "
    "below.",
)
@click.option(
    "--max-prefix",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="dictspec: longest context, in tokens.",
)
@click.option(
    "--max-continuation",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="dictspec: longest proposal, in tokens.",
)
@click.option(
    "--language", metavar="CODE", help="dictspec: ISO 639 code of the text, for splitting words (fr, it and ca differ)."
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    help="Count a corpus without the n-grams that occur less often. By default 2 for backoff (1 for a text of less "
    "than 4 MB on disk), and 1 for dictspec.",
)
@options_of(Resources)
@text_options
@json_option
@click.pass_context
@guarded
def build_dict(
    context: click.Context,
    tokenizer: str,
    corpus: str | None,
    counts: Path | None,
    out: Path | None,
    method: str,
    max_bytes: int,
    entries: int | None,
    max_context: int,
    discount: float,
    orders: str,
    min_prob: float,
    min_prob_of: Any,
    max_prefix: int,
    max_continuation: int,
    language: str | None,
    min_count: int | None,
    memory: int,
    workers: int | None,
    text_field: str | None,
    on_error: Any,
    as_json: bool,
) -> None:
    """Build a dictionary for a tokenizer from plain text, or from the counts of one.

    The dictionary serves every model with that tokenizer. More text makes it better, up to some
    hundred million words, and so does text of the kind that the model is to write.

    \b
    Examples:
        spectool build-dict --tokenizer ./Bielik-11B --corpus wiki-pl -o pl.dict
        spectool build-dict --tokenizer ./Bielik-11B --counts pl-bielik.counts --max-bytes 2MB -o small.dict
        spectool build-dict --tokenizer ./Bielik-11B --corpus wiki-pl --method dictspec -o paper.dict
    """
    from spectool.artifacts.formats.dictionary import FORMAT as DICTIONARY
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.build.counting.options import CountOptions
    from spectool.build.dictionary.backoff_stage import BackoffOptions
    from spectool.build.dictionary.dictspec_stage import DictSpecOptions
    from spectool.corpora import open_corpus

    if (corpus is None) == (counts is None):
        raise click.UsageError("name the text: either --corpus C or --counts DIR")
    if counts is not None and (language is not None or text_field is not None or min_count is not None):
        raise click.UsageError(
            "--language, --text-field and --min-count are for --corpus; --counts are counted already"
        )
    _refuse(context, _OF_DICTSPEC if method == "backoff" else _OF_BACKOFF, method)
    source = None if corpus is None else open_corpus(corpus, on_error=on_error, text_field=text_field)
    target = open_tokenizer(tokenizer)
    for note in target.notes:
        say(f"{target.name}: {note}")
    options: BackoffOptions | DictSpecOptions
    if method == "backoff":
        options = BackoffOptions(entries, max_bytes, max_context, discount)
        small = source is not None and source.total_bytes is not None and source.total_bytes < _SMALL
        least = min_count or (1 if small else 2)
    else:
        options = DictSpecOptions(orders, entries or 200_000, min_prob, min_prob_of, max_prefix, max_continuation)
        least = min_count or 1
    name = f"{slug(corpus or str(counts))}.{target.fingerprint[:8]}.{method}-{digest(options, language, least)}.dict"
    path = out or default_path(name)
    limits = CountOptions(min_count=least, memory=memory, workers=workers, language=language)
    with stage(path, DICTIONARY, as_json, {"target": target.fingerprint}) as finish:
        if isinstance(options, BackoffOptions):
            finish(_backoff(target, source, counts, path, options, limits))
        else:
            finish(_dictspec(target, source, counts, path, options, limits))
    if not as_json:
        say(f"next: spectool generate --model {shlex.quote(tokenizer)} --dict {shlex.quote(str(path))} --prompt …")


def _backoff(target: Any, source: Any, counts: Path | None, path: Path, options: Any, limits: Any) -> Any:
    from spectool.artifacts.formats.counts import Counts
    from spectool.build.dictionary.backoff_stage import build_backoff, count_and_build

    if counts is not None:
        return build_backoff(target, Counts(counts), path, options, say)
    return count_and_build(target, source, path, options, limits, say)


def _dictspec(target: Any, source: Any, counts: Path | None, path: Path, options: Any, limits: Any) -> Any:
    from spectool.build.dictionary.dictspec_stage import build_dictspec, count_corpus, open_counts

    if counts is not None:
        counted = open_counts(counts, options.orders)
    else:
        counted = count_corpus(source, options.orders, limits.language, options=limits)
    return build_dictspec(target, counted, path, options, say)


def _refuse(context: click.Context, names: tuple[str, ...], method: str) -> None:
    """Refuse options of the other method."""
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} does nothing for --method {method}; see `spectool build-dict --help`")
