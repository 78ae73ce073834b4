"""The command ``inspect``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool import SpectoolError
from spectool.commands.shared.console import guarded, say, show
from spectool.commands.shared.describe import artifact_facts
from spectool.commands.shared.options import Finite, Text, Whole, json_option, path_option, tokenizer_option

if TYPE_CHECKING:
    from spectool.artifacts.dictionary import Dictionary


@click.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--lookup", type=Text(), metavar="TEXT", help="Show what a dictionary proposes after this text.")
@click.option(
    "--entries",
    type=Whole(0, 100_000),
    default=5,
    show_default=True,
    help="Number of sample entries of a dictionary to show.",
)
@tokenizer_option(help="Tokenizer for showing tokens as text, if the recorded one has moved.")
@path_option(
    "--export-llama-cpp", "exported", metavar="FILE", help="Write a dictionary as a lookup cache of llama.cpp."
)
@click.option(
    "--min-prob",
    type=Finite(0, 1),
    metavar="P",
    help="With --export-llama-cpp: leave out less probable entries.",
)
@json_option
@guarded
def inspect(
    path: str,
    lookup: str | None,
    entries: int,
    tokenizer: str | None,
    exported: Path | None,
    min_prob: float | None,
    as_json: bool,
) -> None:
    """Explain an artifact or a tokenizer, or export a dictionary to llama.cpp.

    PATH may be the name of an artifact in your cache folder. The lookup cache is for llama.cpp's
    --lookup-cache-dynamic.

    \b
    Examples:
        spectool inspect pl.dict --lookup "na przykład"
        spectool inspect ./Bielik-11B
        spectool inspect pl.dict --export-llama-cpp pl.lookup --min-prob 0.3
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.formats import class_of
    from spectool.artifacts.manifest import MANIFEST, holds_model, read_bounded_json, read_manifest, verify_files
    from spectool.commands.look_ups import sample

    if min_prob is not None and exported is None:
        raise click.UsageError("--min-prob chooses what is exported: give --export-llama-cpp FILE with it")
    directory = find_artifact(Path(path).expanduser())
    is_tokenizer = not directory.is_dir() or (holds_model(directory) and not (directory / MANIFEST).is_file())
    manifest = None if is_tokenizer else read_manifest(directory)
    kind = manifest.format if manifest else "tokenizer"
    reader = None if manifest is None else class_of(manifest, directory)
    for option, value in (("--lookup", lookup), ("--export-llama-cpp", exported)):
        if value is not None and kind != "spectool-dictionary":
            raise click.UsageError(f"{option} works on dictionaries; {path} is {f'a {kind}' if manifest else 'none'}")
    if reader is None:
        show(_tokenizer_facts(path, as_json), as_json)
        return
    opened: Any = reader(directory)  # a damaged one must be neither described nor exported
    if kind == "spectool-dictionary":  # opening it does not read all of its files
        verify_files(directory, opened.manifest)
    if exported is not None:
        show(_export(opened, exported, min_prob or 0.0), as_json)
        return
    facts: dict[str, Any] = artifact_facts(opened.manifest, directory)
    if as_json:
        facts = read_bounded_json(directory / MANIFEST)
    if kind == "spectool-dictionary":
        sampled = sample(opened, lookup, entries, tokenizer, as_json)
        facts = sampled | facts if lookup is not None and not as_json else facts | sampled
    show(facts, as_json)


def _export(dictionary: "Dictionary", out: Path, min_probability: float) -> dict[str, Any]:
    """Write a lookup cache, which replaces nothing but another one; return what is in it."""
    from spectool.artifacts.llama_cpp import write_cache
    from spectool.build.dictionary.lookup_cache import to_ngrams

    exported = to_ngrams(dictionary.entries(), min_probability)
    if not exported.ngrams:
        raise SpectoolError(
            f"{dictionary.path}: none of its {len(dictionary):,} entries can be written. Give a lower --min-prob, or "
            "build a dictionary with shorter contexts: spectool build-dict --max-context 4"
        )
    for reason, number in exported.left_out.items():
        say(f"{number:,} of {len(dictionary):,} entries are left out: {reason}")
    say("llama.cpp will draft everything in the file, because probabilities are not written")
    return {
        "path": str(out),
        "n-grams": write_cache(out, exported.ngrams.items()),
        "bytes": out.stat().st_size,
        "entries": exported.entries,
        "entries left out": exported.left_out.total(),
    }


def _tokenizer_facts(source: str, as_json: bool) -> dict[str, Any]:
    from spectool.tokenization.opening import open_tokenizer
    from spectool.tokenization.round_trips import NO_LIMITS, limits

    tokenizer = open_tokenizer(source)
    return {
        "tokenizer": tokenizer.name,
        "kind": tokenizer.kind,
        "ids": tokenizer.size,
        "fingerprint": tokenizer.fingerprint,
        "roles": tokenizer.roles.as_dict() if as_json else str(tokenizer.roles),
        "limits": list(limits(tokenizer)) or ([] if as_json else NO_LIMITS),
        "notes": list(tokenizer.notes),
    }
