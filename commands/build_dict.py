"""The command ``build-dict``."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource

from spectool.artifacts.default_paths import default_path, digest, slug
from spectool.artifacts.options import options_of
from spectool.build.counting.options import Resources
from spectool.build.dictionary.options import BackoffOptions, DictSpecOptions
from spectool.commands.console import guarded, model_of, say, say_next, say_notes, stage
from spectool.commands.options import json_option, out_option, path_option, text_options, tokenizer_option

_SMALL = 4_000_000  # bytes on disk: windows that occurred once find room in a dictionary of such a text


@click.command("build-dict")
@tokenizer_option("--target", required=True, help="Directory, tokenizer.json or hub id of the target model.")
@click.option("--corpus", metavar="C", help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl.")
@path_option(
    "--counts",
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
@options_of(BackoffOptions)
@options_of(DictSpecOptions)
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
    language: str | None,
    min_count: int | None,
    memory: int,
    workers: int | None,
    reads: dict[str, Any],
    as_json: bool,
    **chosen: Any,
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
    from spectool.artifacts.counts import Counts
    from spectool.artifacts.dictionary import FORMAT
    from spectool.build.counting.options import CountOptions
    from spectool.build.dictionary.backoff_stage import build_backoff, count_and_build
    from spectool.corpora import open_corpus
    from spectool.tokenization.opening import open_tokenizer

    if (corpus is None) == (counts is None):
        raise click.UsageError("name the text: either --corpus C or --counts DIR")
    if counts is not None and (language is not None or reads["text_field"] is not None or min_count is not None):
        raise click.UsageError(
            "--language, --text-field and --min-count are for --corpus; --counts are counted already"
        )
    kind, other = (BackoffOptions, DictSpecOptions) if method == "backoff" else (DictSpecOptions, BackoffOptions)
    _refuse(context, other, method)
    source: Any = None if corpus is None else open_corpus(corpus, **reads)
    target = open_tokenizer(tokenizer)
    say_notes(target)
    names = [field.name for field in fields(kind)]
    options: Any = kind(**{name: chosen[name] for name in names if chosen[name] is not None})
    small = source is not None and source.total_bytes is not None and source.total_bytes < _SMALL
    least = min_count or (2 if method == "backoff" and not small else 1)
    name = f"{slug(corpus or str(counts))}.{target.fingerprint[:8]}.{method}-{digest(options, language, least)}.dict"
    path = out or default_path(name)
    limits = CountOptions(min_count=least, memory=memory, workers=workers, language=language)
    with stage(path, FORMAT, as_json, {"target": target.fingerprint}) as finish:
        if method == "dictspec":
            from spectool.build.dictionary.dictspec_stage import build_dictspec, count_corpus, open_counts

            words = open_counts(counts, options.orders) if counts else count_corpus(source, options.orders, limits)
            manifest = build_dictspec(target, words, path, options, say)
        elif counts:
            manifest = build_backoff(target, Counts(counts), path, options, say)
        else:
            manifest = count_and_build(target, source, path, options, limits, say)
        finish(manifest, _what_to_expect(manifest.statistics, as_json))
    if not as_json:
        say_next(["generate", "--model", model_of(tokenizer, "MODEL"), "--dict", str(path)])


def _what_to_expect(statistics: Mapping[str, Any], as_json: bool) -> dict[str, Any]:
    """Say what the text is good for, and what the figures on a part of it are about."""
    from spectool.build.dictionary.amount import amount_of_text
    from spectool.commands.describe import held_out

    unit: Literal["tokens", "words"] = "tokens" if "tokens" in statistics else "words"
    facts: dict[str, Any] = {"text": amount_of_text(statistics[unit], unit)}
    if "held_out" in statistics and not as_json:
        facts["held-out text"] = held_out(statistics["held_out"])
    return facts


def _refuse(context: click.Context, kind: type, method: str) -> None:
    """Refuse options of the other method."""
    others = {field.name for field in fields(kind)} - {"entries"} | ({"language"} if method == "backoff" else set())
    for parameter in context.command.params:
        if parameter.name in others and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{parameter.opts[0]} does nothing for --method {method}; see `spectool build-dict --help`"
            )
