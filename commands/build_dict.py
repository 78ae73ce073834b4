"""The command ``build-dict``."""

from pathlib import Path

import click

from spectool.artifacts.default_paths import default_path, digest, slug
from spectool.build.dictionary.options import BackoffOptions
from spectool.commands.shared.console import model_of, open_text, open_tokenizers, print_result, say, say_next
from spectool.commands.shared.options import command, option, out_option, size_in_bytes, tokenizer_option

_SMALL = 4_000_000  # bytes on disk: a dictionary of such a text has room for windows that occurred once


@command("build-dict")
@tokenizer_option("--target", required=True, help="Directory, tokenizer.json or hub id of the target model.")
@option(
    "--corpus", metavar="C", help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset such as wiki-pl, or sample:pl."
)
@option(
    "--pack",
    "packs",
    multiple=True,
    metavar="NAME",
    help="Counts of a language: pl, uk or crh, which are bundled, or a file; may be repeated, and counts on top.",
)
@out_option
@option(
    "--max-bytes",
    type=size_in_bytes,
    default="5MB",
    metavar="SIZE",
    help="Maximum size, without a header of some 2 kB; the entries with the highest expected gain are kept.",
)
def build_dict(
    tokenizer: str,
    corpus: str | None,
    packs: tuple[str, ...],
    out: Path | None,
    max_bytes: int,
    as_json: bool,
) -> None:
    """Build a dictionary for a tokenizer from plain text, or from packs, which are counts of a language.

    The dictionary works with every model that has that tokenizer. It gets better with more text, up to some hundred
    million words, and with text like what the model will write.

    \b
    Examples:
        spectool build-dict --tokenizer ./Bielik-11B --pack pl -o pl.dict
        spectool build-dict --tokenizer ./Bielik-11B --corpus texts/ -o texts.dict
    """
    from spectool.artifacts.dictionary import Dictionary
    from spectool.build.dictionary.backoff_stage import count_and_build
    from spectool.build.packs.stage import compile_and_build, open_pack

    if corpus is None and not packs:
        raise click.UsageError("nothing to build from: give --corpus TEXT, or --pack NAME")
    source = None if corpus is None else open_text(corpus)
    counted = [open_pack(name) for name in packs]
    size = None if source is None else source.total_bytes
    options = BackoffOptions(max_bytes, min_count=least_count(size))
    (target,) = open_tokenizers(Dictionary.format, out, target=tokenizer)
    names = [*(pack.path.name for pack in counted), *filter(None, [corpus])]
    path = out or dictionary_path("-".join(names), target.fingerprint, options)
    if source is not None and not counted:
        manifest = count_and_build(target, source, path, options, say)
        print_result(path, manifest, as_json, text=amount_of_text(manifest.statistics["tokens"]))
    else:
        print_result(path, compile_and_build(target, counted, source, path, options, say), as_json)
    if not as_json:
        say_next(["generate", "--model", model_of(tokenizer, "MODEL"), "--dict", str(path)])


def least_count(total_bytes: int | None) -> int:
    """Occurrences of the n-grams that a dictionary of a corpus of this size has by default."""
    return 1 if total_bytes is not None and total_bytes < _SMALL else 2


def dictionary_path(text: str, fingerprint: str, options: BackoffOptions) -> Path:
    """Where a dictionary is written without ``-o``, by the name of its text and the fingerprint of its tokenizer."""
    return default_path(f"{slug(text)}.{fingerprint[:8]}.backoff-{digest(options)}.dict")


def amount_of_text(tokens: int) -> str:
    """A sentence about how much a dictionary of this much text saves, by the tables in docs/dictionaries.md.

    >>> amount_of_text(24_597)
    '24,597 tokens: enough for documents like these. Use a general dictionary as well, from a million tokens or more'
    """
    if tokens < 20_000:
        said = "too little text to help much. Documents like yours help from 20,000 on, text in general from a million"
    elif tokens < 1_000_000:
        said = "enough for documents like these. Use a general dictionary as well, from a million tokens or more"
    else:
        said = "enough for a useful dictionary. Ten times as much text saves more passes, though not ten times as many"
    return f"{tokens:,} tokens: {said}"
