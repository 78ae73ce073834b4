"""The command ``build-dict``."""

from collections.abc import Sequence
from pathlib import Path

import click

from spectool import expanded
from spectool.artifacts.default_paths import default_path, digest, place_of, slug
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs import bundled_packs
from spectool.commands.shared.console import model_of, open_text, print_result, say, say_next
from spectool.commands.shared.options import command, option, out_option, pack_option, size_in_bytes, tokenizer_option
from spectool.corpora import Corpus

_SMALL = 4_000_000  # bytes on disk: a dictionary of such a text has room for n-grams that occurred once


@command("build-dict")
@tokenizer_option("--target", required=True, help="Directory, tokenizer.json or hub id of the target model.")
@option("--corpus", metavar="C", help="File or directory, with #COLUMN for a column of tables; or sample:pl.")
@pack_option(help=f"Counts of a language: {', '.join(bundled_packs())}, or a file; may be repeated, and add to text.")
@out_option
@option("--max-bytes", type=size_in_bytes, default="5MB", metavar="SIZE", help="Maximum size of the dictionary.")
def build_dict(
    tokenizer: str, corpus: str | None, packs: tuple[str, ...], out: Path | None, max_bytes: int, as_json: bool
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
    from spectool.build.packs.stage import count_and_build, open_pack
    from spectool.commands.shared.tokenizers import open_tokenizers

    if corpus is None and not packs:
        raise click.UsageError("nothing to build from: give --corpus TEXT, or --pack NAME")
    source = None if corpus is None else open_text(corpus)
    counted = [open_pack(name) for name in packs]
    options = options_for(source, max_bytes)
    (target,) = open_tokenizers(Dictionary.format, out, target=tokenizer)
    path = out or dictionary_path(target.fingerprint, max_bytes, packs, [corpus] if corpus else [])
    manifest = count_and_build(target, source, path, options, say, counted)
    print_result(path, manifest, as_json)
    say_next(["generate", "--model", model_of(tokenizer, "MODEL"), "--dict", str(path)])


def dictionary_path(fingerprint: str, max_bytes: int, packs: Sequence[str], corpora: Sequence[str]) -> Path:
    """Where the dictionary of some packs and texts for a tokenizer is in the user's cache."""
    # A pack is where its file is, or has the name of a bundled one, which a folder may have, too.
    places = [place_of(name) if expanded(name).is_file() else name for name in packs] + [*map(place_of, corpora)]
    return default_path(f"{slug('-'.join([*packs, *corpora]))}-{digest(max_bytes, *places)}.{fingerprint[:8]}.dict")


def options_for(corpus: Corpus | None, max_bytes: int = BackoffOptions.max_bytes) -> BackoffOptions:
    """How a dictionary of a text, or of packs alone, is built."""
    return BackoffOptions(max_bytes, min_count=2 if corpus is None or corpus.total_bytes >= _SMALL else 1)
