"""Commands that make dictionaries from dictionaries: merge, restrict, export and import."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool.artifacts.options import options_of
from spectool.build.dictionary.options import Limits
from spectool.build.editing.scripts import ALPHABETS, SCRIPTS
from spectool.commands.console import guarded, say, show, stage
from spectool.commands.options import Finite, json_option, path_option, tokenizer_option

if TYPE_CHECKING:
    from spectool.artifacts.dictionary import Dictionary

# There is one format, so that no command has to know which was chosen.
_format = click.option(
    "--format", required=True, type=click.Choice(["llama.cpp"]), expose_value=False, help="The other program's format."
)


def _writes_dictionary(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command here that writes a dictionary."""
    out = path_option("-o", "--out", required=True, metavar="OUT", help="Directory to write.")
    return out(options_of(Limits)(json_option(guarded(command))))


@click.command("merge-dict")
@click.argument("paths", metavar="A B...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--weight",
    "weights",
    type=Finite(0, 1_000_000, min_open=True),
    multiple=True,
    help="How often the text of each dictionary counts, in their order; by default once.",
)
@_writes_dictionary
def merge_dict(
    paths: tuple[Path, ...], weights: tuple[float, ...], out: Path, as_json: bool, **limits: int | None
) -> None:
    """Merge dictionaries of one tokenizer, as if their texts had been joined.

    Give the weight of each dictionary, in the same order. A domain's dictionary from little text needs a higher one to
    be heard beside a general one from much.

    \b
    Example:
        spectool merge-dict pl.dict law.dict --weight 1 --weight 4 --max-bytes 5MB -o office.dict
    """
    from spectool.artifacts.dictionary import FORMAT
    from spectool.build.editing.merging import merge_dictionaries

    if len(paths) < 2:
        raise click.UsageError("name two dictionaries or more")
    if weights and len(weights) != len(paths):
        raise click.UsageError(f"{len(weights)} weights for {len(paths)} dictionaries: give one --weight for each")
    opened = [_opened(path) for path in paths]
    with stage(out, FORMAT, as_json, {"target": opened[0].fingerprint}) as finish:
        finish(merge_dictionaries(opened, weights or [1.0] * len(paths), out, Limits(**limits), say))


@click.command("restrict-dict")
@click.argument("path", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--script", "scripts", type=click.Choice(sorted(SCRIPTS)), multiple=True, help="Script of letters; may be repeated."
)
@click.option(
    "--language",
    "languages",
    metavar="CODES",
    help=f"Languages whose alphabets to keep, such as uk,crh; of {', '.join(ALPHABETS)}.",
)
@tokenizer_option(help="The dictionary's tokenizer, if the recorded one has moved.")
@_writes_dictionary
def restrict_dict(
    path: Path,
    scripts: tuple[str, ...],
    languages: str | None,
    tokenizer: str | None,
    out: Path,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Keep the entries of a dictionary that are written in a script, or in a language's alphabet.

    Only letters decide: digits, punctuation and spaces fit everywhere. With several scripts, their letters may
    stand together in one entry; with several languages, each entry has the letters of one of them.
    An alphabet tells Polish from Czech text only where their letters differ.

    \b
    Examples:
        spectool restrict-dict web.dict --script Cyrl -o cyrillic.dict
        spectool restrict-dict web.dict --language uk,crh -o crimea.dict
    """
    from spectool.artifacts.dictionary import FORMAT
    from spectool.build.editing.restriction import restrict_dictionary
    from spectool.tokenization.opening import open_named

    codes = tuple(code.strip() for code in languages.split(",")) if languages is not None else ()
    unknown = [code for code in codes if code not in ALPHABETS]
    if unknown:
        raise click.UsageError(f"no alphabet of {', '.join(map(repr, unknown))}; there are {', '.join(ALPHABETS)}")
    if not scripts and not codes:
        raise click.UsageError("name what to keep: --script or --language")
    opened = _opened(path)
    with stage(out, FORMAT, as_json, {"target": opened.fingerprint}) as finish:
        target = open_named(tokenizer, opened.tokenizer, "the dictionary's")
        finish(restrict_dictionary(opened, target, out, scripts, codes, Limits(**limits), say))


@click.command("export-dict")
@click.argument("path", metavar="DIR", type=click.Path(path_type=Path))
@_format
@path_option("-o", "--out", required=True, metavar="FILE", help="File to write.")
@click.option(
    "--cache",
    "kind",
    type=click.Choice(["dynamic", "static"]),
    default="dynamic",
    show_default=True,
    help="What llama.cpp will use it as: a dynamic cache has contexts of 1 to 4 tokens, a static one of 2.",
)
@click.option(
    "--min-prob",
    type=Finite(0, 1),
    default=0.0,
    show_default=True,
    help="Leave out what is less probable, unless something still less probable would be drafted in its place.",
)
@click.option(
    "--counted",
    is_flag=True,
    help="Write probabilities as counts, for llama.cpp's own thresholds (75 and 66%) to decide. Otherwise all that "
    "is written is drafted.",
)
@json_option
@guarded
def export_dict(path: Path, out: Path, kind: Any, min_prob: float, counted: bool, as_json: bool) -> None:
    """Write a dictionary in the format of another program.

    llama.cpp: a lookup cache, for --lookup-cache-dynamic (or, with --cache static, --lookup-cache-static) of
    llama-lookup and llama-server. llama-lookup adds what it generates to a dynamic cache: give it a copy.
    A lookup cache that is there already is replaced, any other file is not.

    \b
    Example:
        spectool export-dict pl.dict --format llama.cpp -o pl.lookup
    """
    from spectool import SpectoolError
    from spectool.artifacts.llama_cpp import check_replaceable, write_cache
    from spectool.build.editing.lookup_cache import to_ngrams

    dictionary = _opened(path)
    check_replaceable(out)
    exported = to_ngrams(dictionary.entries(), kind, not counted, min_prob)
    if not exported.ngrams:
        raise SpectoolError(
            f"{path}: none of its {len(dictionary):,} entries can be written. Give a lower --min-prob, or --cache "
            "dynamic"
        )
    for reason, number in exported.left_out.items():
        say(f"{number:,} of {len(dictionary):,} entries are left out: {reason}")
    if not counted:
        say("probabilities are not in the file: llama.cpp will draft all of it (--counted keeps them as counts)")
    facts = {
        "path": str(out),
        "n-grams": write_cache(out, exported.ngrams.items()),
        "bytes": out.stat().st_size,
        "entries": exported.entries,
        "entries left out": exported.left_out.total(),
    }
    show(facts, as_json)


@click.command("import-dict")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@_format
@tokenizer_option(required=True, help="Tokenizer of the model that the file was made with.")
@click.option(
    "--min-count",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Leave out contexts that occur less often.",
)
@_writes_dictionary
def import_dict(file: Path, tokenizer: str, min_count: int, out: Path, as_json: bool, **limits: int | None) -> None:
    """Make a dictionary from a file of another program.

    llama.cpp: a lookup cache, as llama-lookup-create or llama-lookup writes it. The file does not say which
    model it is for: give the tokenizer of that very model.

    \b
    Example:
        spectool import-dict wiki.lookup --format llama.cpp --tokenizer ./Bielik-11B -o wiki.dict
    """
    from spectool.artifacts.dictionary import FORMAT
    from spectool.build.editing.lookup_cache import import_cache
    from spectool.tokenization.opening import open_tokenizer

    target = open_tokenizer(tokenizer)
    with stage(out, FORMAT, as_json, {"target": target.fingerprint}) as finish:
        finish(import_cache(file, target, out, min_count, Limits(**limits), say))


def _opened(path: Path) -> "Dictionary":
    """Open a dictionary all of whose bytes are as they were written."""
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.artifacts.manifest import verify_files

    dictionary = Dictionary(find_artifact(path, ".dict"))
    verify_files(dictionary.path, dictionary.manifest)
    return dictionary
