"""The command ``build-dict``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource

from spectool.artifacts.default_paths import default_path, digest, slug
from spectool.build.counting.options import CountOptions
from spectool.build.dictionary.options import BackoffOptions, DictSpecOptions, DictSpecReading
from spectool.commands.console import guarded, model_of, say, say_next, say_notes, stage
from spectool.commands.limit_options import memory_option, size_in_bytes, workers_option
from spectool.commands.options import Finite, json_option, out_option, path_option, text_options, tokenizer_option

_SMALL = 4_000_000  # bytes on disk: a dictionary of such a text has room for windows that occurred once
_ONLY = {
    "backoff": ("max_bytes", "max_context", "discount"),
    "dictspec": ("orders", "min_probability", "reading", "max_prefix", "max_continuation"),
}
"""Options that only one of the methods has."""


@click.command("build-dict")
@tokenizer_option("--target", required=True, help="Directory, tokenizer.json or hub id of the target model.")
@click.option("--corpus", metavar="C", help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl.")
@path_option(
    "--counts",
    metavar="DIR",
    help="What `spectool count` wrote, instead of a corpus: windows of T's tokens, or words for dictspec.",
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
    "--entries",
    type=click.IntRange(1),
    help="backoff: maximum number of entries. dictspec: number of most frequent n-grams to take; 200,000 by default.",
)
@click.option(
    "--max-bytes",
    type=size_in_bytes,
    default="5MB",
    show_default=True,
    metavar="SIZE",
    help="backoff: keep the entries with the highest expected gain that fit in.",
)
@click.option(
    "--max-context",
    type=click.IntRange(1, 15),
    default=BackoffOptions.max_context,
    show_default=True,
    help="backoff: longest context, in tokens.",
)
@click.option(
    "--discount",
    type=Finite(0, 1),
    default=BackoffOptions.discount,
    show_default=True,
    help="backoff: taken off every count by the smoothing.",
)
@click.option(
    "--orders",
    type=click.Choice(["n1", "n12", "n123"]),
    default=DictSpecOptions.orders,
    show_default=True,
    help="dictspec: longest n-gram: words, pairs or triples.",
)
@click.option(
    "--min-prob",
    "min_probability",
    type=Finite(0, 1),
    default=DictSpecOptions.min_probability,
    show_default=True,
    help="dictspec: smallest continuation probability.",
)
@click.option(
    "--min-prob-of",
    "reading",
    type=click.Choice(["whole", "path"]),
    default=DictSpecOptions.reading,
    show_default=True,
    help="dictspec: what must reach it: the whole continuation, or the path of most probable tokens, cut where it "
    "falls below.",
)
@click.option(
    "--max-prefix",
    type=click.IntRange(1, 64),
    default=DictSpecOptions.max_prefix,
    show_default=True,
    help="dictspec: longest context, in tokens.",
)
@click.option(
    "--max-continuation",
    type=click.IntRange(1, 64),
    default=DictSpecOptions.max_continuation,
    show_default=True,
    help="dictspec: longest proposal, in tokens.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    help="Count a corpus without the n-grams that occur less often. By default 2 for backoff (1 for a text of less "
    "than 4 MB on disk), and 1 for dictspec.",
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
    method: str,
    entries: int | None,
    max_bytes: int,
    max_context: int,
    discount: float,
    orders: str,
    min_probability: float,
    reading: DictSpecReading,
    max_prefix: int,
    max_continuation: int,
    min_count: int | None,
    memory: int,
    workers: int | None,
    reads: dict[str, Any],
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
    from spectool.artifacts.dictionary import FORMAT
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
        options = BackoffOptions(entries, max_bytes, max_context, discount)
    else:
        taken = entries or DictSpecOptions.entries
        options = DictSpecOptions(orders, taken, min_probability, reading, max_prefix, max_continuation)
    source: Any = None if corpus is None else open_corpus(corpus, **reads)
    target = open_tokenizer(tokenizer)
    say_notes(target)
    small = source is not None and source.total_bytes is not None and source.total_bytes < _SMALL
    least = min_count or (2 if method == "backoff" and not small else 1)
    name = f"{slug(corpus or str(counts))}.{target.fingerprint[:8]}.{method}-{digest(options, least)}.dict"
    path = out or default_path(name)
    counting = CountOptions(min_count=least, memory=memory, workers=workers)
    with stage(path, FORMAT, as_json, {"target": target.fingerprint}) as finish:
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
