"""The command ``build-dict``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from spectool.artifacts.default_paths import default_path, digest, slug
from spectool.build.counting.options import CountOptions
from spectool.build.dictionary.options import BackoffOptions, DictSpecOptions
from spectool.commands.console import guarded, model_of, say, say_next, say_notes, stage
from spectool.commands.options import (
    Finite,
    SectionedCommand,
    json_option,
    memory_option,
    option,
    out_option,
    path_option,
    section,
    size_in_bytes,
    text_options,
    tokenizer_option,
    workers_option,
)

if TYPE_CHECKING:
    from spectool.corpora import Corpus

_SMALL = 4_000_000  # bytes on disk: a dictionary of such a text has room for windows that occurred once
_ONLY = {"backoff": ("max_bytes", "max_context"), "dictspec": ("orders", "min_probability")}
"""Options that only one of the methods has."""
_rare = section(rare=True)


@click.command("build-dict", cls=SectionedCommand)
@tokenizer_option("--target", required=True, help="Directory, tokenizer.json or hub id of the target model.")
@option(
    "--corpus",
    metavar="C",
    help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset such as wiki-pl, or sample:pl.",
)
@path_option("--counts", metavar="DIR", help="What `spectool count` wrote, instead of a corpus.")
@out_option
@option(
    "--max-bytes",
    type=size_in_bytes,
    default="5MB",
    show_default=True,
    metavar="SIZE",
    help="Maximum size on disk; the entries with the highest expected gain are kept.",
)
@option(
    "--entries",
    type=click.IntRange(1),
    help="Maximum number of entries. dictspec: number of most frequent n-grams to take; 200,000 by default.",
)
@option(
    "--min-count",
    type=click.IntRange(1),
    help="Leave out n-grams of a corpus that occur less often. By default 2 for backoff (1 for a text of less than "
    "4 MB on disk), and 1 for dictspec.",
    **_rare,
)
@option(
    "--method",
    type=click.Choice(["backoff", "dictspec"]),
    default="backoff",
    show_default=True,
    help="The next token after every context, chained; or the DictSpec paper's frequent phrases.",
    **_rare,
)
@option(
    "--max-context",
    type=click.IntRange(1, 15),
    default=BackoffOptions.max_context,
    show_default=True,
    help="backoff: longest context, in tokens.",
    **_rare,
)
@option(
    "--orders",
    type=click.Choice(["n1", "n12", "n123"]),
    default=DictSpecOptions.orders,
    show_default=True,
    help="dictspec: longest n-gram: words, pairs or triples.",
    **_rare,
)
@option(
    "--min-prob",
    "min_probability",
    type=Finite(0, 1),
    default=DictSpecOptions.min_probability,
    show_default=True,
    help="dictspec: cut a continuation where its probability falls below this.",
    **_rare,
)
@memory_option
@workers_option
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
    max_bytes: int,
    entries: int | None,
    min_count: int | None,
    method: str,
    max_context: int,
    orders: str,
    min_probability: float,
    memory: int,
    workers: int | None,
    reads: dict[str, Any],
    as_json: bool,
) -> None:
    """Build a dictionary for a tokenizer from plain text, or from the counts of one.

    The dictionary serves every model with that tokenizer. It gets better with more text, up to some hundred million
    words, and with text of the kind that the model is to write.

    \b
    Examples:
        spectool build-dict --tokenizer ./Bielik-11B --corpus wiki-pl -o pl.dict
        spectool build-dict --tokenizer ./Bielik-11B --counts pl-bielik.counts --max-bytes 2MB -o small.dict
    """
    from spectool.artifacts.dictionary import Dictionary
    from spectool.build.dictionary.backoff_stage import build_backoff, count_and_build
    from spectool.build.dictionary.dictspec import build_dictspec, count_corpus, open_counts
    from spectool.corpora import open_corpus
    from spectool.tokenization.opening import open_tokenizer

    if (corpus is None) == (counts is None):
        raise click.UsageError("name the text: either --corpus C or --counts DIR")
    if counts is not None and (reads["text_field"] is not None or min_count is not None):
        raise click.UsageError("--text-field and --min-count are for --corpus; --counts are counted already")
    _refuse(context, "dictspec" if method == "backoff" else "backoff", method)
    options: BackoffOptions | DictSpecOptions
    if method == "backoff":
        options = BackoffOptions(entries, max_bytes, max_context)
    else:
        options = DictSpecOptions(orders, entries or DictSpecOptions.entries, min_probability)
    source: Any = None if corpus is None else open_corpus(corpus, **reads)
    target = open_tokenizer(tokenizer)
    say_notes(target)
    least = min_count or (least_count(source) if method == "backoff" else 1)
    path = out or dictionary_path(corpus or str(counts), target.fingerprint, options, least)
    counting = CountOptions(min_count=least, memory=memory, workers=workers)
    with stage(path, Dictionary.format, as_json, {"target": target.fingerprint}) as finish:
        if isinstance(options, DictSpecOptions):
            words = open_counts(counts, orders) if counts else count_corpus(source, orders, counting)
            manifest = build_dictspec(target, words, path, options, say)
        elif counts:
            from spectool.artifacts.counts import Counts

            manifest = build_backoff(target, Counts(counts), path, options, say)
        else:
            manifest = count_and_build(target, source, path, options, counting, say)
        finish(manifest, _what_to_expect(manifest.statistics, as_json))
    if not as_json:
        say_next(["generate", "--model", model_of(tokenizer, "MODEL"), "--dict", str(path)])


def least_count(corpus: "Corpus | None") -> int:
    """Occurrences of the n-grams that a backoff dictionary of a corpus, or of counts, has by default."""
    return 1 if corpus is not None and corpus.total_bytes is not None and corpus.total_bytes < _SMALL else 2


def dictionary_path(text: str, fingerprint: str, options: BackoffOptions | DictSpecOptions, least: int) -> Path:
    """Where a dictionary is written without ``-o``, by the name of its text and the fingerprint of its tokenizer."""
    method = "backoff" if isinstance(options, BackoffOptions) else "dictspec"
    return default_path(f"{slug(text)}.{fingerprint[:8]}.{method}-{digest(options, least)}.dict")


def _what_to_expect(statistics: Mapping[str, Any], as_json: bool) -> dict[str, Any]:
    """What the amount of text is good for, and the tokens per pass on the part of it that was held out."""
    from spectool.commands.describe import held_out

    unit: Literal["tokens", "words"] = "tokens" if "tokens" in statistics else "words"
    facts: dict[str, Any] = {"text": amount_of_text(statistics[unit], unit)}
    if "held_out" in statistics and not as_json:
        facts["held-out text"] = held_out(statistics["held_out"])
    return facts


def _refuse(context: click.Context, other: str, method: str) -> None:
    """Refuse options of the other method that were given on the command line."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in _ONLY[other]:
            raise click.UsageError(
                f"{parameter.opts[0]} does nothing for --method {method}; see `spectool build-dict --help`"
            )


_TOKENS_PER_WORD = 2  # of sample:pl 2.2 with Gemma 3, 2.9 with Bielik 11B
_DEMONSTRATION, _USEFUL = 100_000, 1_000_000  # tokens, by the table in docs/dictionaries.md


def amount_of_text(counted: int, unit: Literal["tokens", "words"] = "tokens") -> str:
    """A sentence about how much a dictionary of this much text saves.

    >>> amount_of_text(24_597)
    '24,597 tokens: enough for a demonstration. Expect gains from about a million tokens'
    """
    tokens = counted * (_TOKENS_PER_WORD if unit == "words" else 1)
    million = f"a million {unit}" if unit == "tokens" else "half a million words"
    if tokens < _DEMONSTRATION:
        said = f"enough for a demonstration. Expect gains from about {million}"
    elif tokens < _USEFUL:
        said = f"enough for part of the gain. Expect more from {million} on"
    else:
        said = "enough for a useful dictionary. Ten times as much text saves more passes, though not ten times as many"
    return f"{counted:,} {unit}: {said}"
