"""The command ``inspect``."""

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click

from spectool.commands.console import guarded, show
from spectool.commands.describe import READERS, describe
from spectool.commands.options import Text, tokenizer_option

if TYPE_CHECKING:
    from spectool.tokenization.tokenizer import Tokenizer

_LINES_SHOWN = 10


@click.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--lookup", type=Text(), metavar="TEXT", help="Show what a dictionary proposes after this text.")
@click.option(
    "--entries",
    type=click.IntRange(0, 100_000),
    default=5,
    show_default=True,
    help="Number of sample entries of a dictionary to show.",
)
@click.option(
    "--text",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With a tokenizer: check which lines of this file it keeps exactly.",
)
@tokenizer_option(help="Tokenizer for showing tokens as text, if the recorded one has moved.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@guarded
def inspect(
    path: str,
    lookup: str | None,
    entries: int,
    text: Path | None,
    tokenizer: str | None,
    as_json: bool,
) -> None:
    """Explain an artifact or a tokenizer. An artifact in the user's cache can be given by its name.

    \b
    Examples:
        spectool inspect pl.dict --lookup "na przykład"
        spectool inspect ./Bielik-11B
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.manifest import MANIFEST, holds_model, read_bounded_json, read_manifest, verify_files
    from spectool.commands.look_ups import sample

    directory = find_artifact(Path(path).expanduser())
    if not directory.is_dir() or (holds_model(directory) and not (directory / MANIFEST).is_file()):
        if lookup is not None:
            raise click.UsageError(f"--lookup works on dictionaries; {path} is not one")
        show(_tokenizer_facts(path, text, as_json), as_json)
        return
    if text is not None:
        raise click.UsageError(f"--text works on tokenizers; {path} is an artifact")
    manifest = read_manifest(directory)
    if lookup is not None and manifest.format != "spectool-dictionary":
        raise click.UsageError(f"--lookup works on dictionaries; {path} is a {manifest.format}")
    if manifest.format in READERS:  # a damaged one must not be described
        opened = resolve_name(READERS[manifest.format])(directory)
    facts: dict[str, Any] = describe(manifest, directory)
    if as_json:
        facts = read_bounded_json(directory / MANIFEST)
    if manifest.format == "spectool-dictionary":
        verify_files(directory, manifest)  # nor must entries of a damaged one be shown
        sampled = sample(opened, lookup, entries, tokenizer, as_json)
        facts = sampled | facts if lookup is not None and not as_json else facts | sampled
    show(facts, as_json)


def _tokenizer_facts(source: str, text: Path | None, as_json: bool) -> dict[str, Any]:
    from spectool.tokenization.opening import open_tokenizer
    from spectool.tokenization.round_trips import NO_LIMITS, limits

    tokenizer = open_tokenizer(source)
    facts: dict[str, Any] = {
        "tokenizer": tokenizer.name,
        "kind": tokenizer.kind,
        "ids": tokenizer.size,
        "fingerprint": tokenizer.fingerprint,
        "roles": tokenizer.roles.as_dict() if as_json else str(tokenizer.roles),
        "limits": list(limits(tokenizer)) or ([] if as_json else NO_LIMITS),
        "notes": list(tokenizer.notes),
    }
    return facts if text is None else facts | _check_lines(tokenizer, text)


def _check_lines(tokenizer: "Tokenizer", path: Path) -> dict[str, Any]:
    from spectool import CorpusError

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 at byte {error.start}. Convert it first") from error
    changed = [number for number, line in enumerate(lines, 1) if not tokenizer.keeps(line)]
    return {
        "lines spelled exactly": f"{len(lines) - len(changed):,} of {len(lines):,}",
        "first changed lines": changed[:_LINES_SHOWN],
    }
