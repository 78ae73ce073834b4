"""Commands that look at what lies on disk: ``inspect`` and ``verify``."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click

from spectool.artifacts.console import Text, guarded, in_a_line, json_option, say, show
from spectool.artifacts.options import tokenizer_option

if TYPE_CHECKING:
    from spectool.artifacts.alignment import Alignment
    from spectool.artifacts.dictionary import Dictionary
    from spectool.tokenization.tokenizer import Tokenizer

_READERS = {
    "spectool-dictionary": "spectool.artifacts.dictionary:Dictionary",
    "spectool-alignment": "spectool.artifacts.alignment:Alignment",
    "spectool-counts": "spectool.artifacts.counts:Counts",
    "spectool-benchmark": "spectool.artifacts.benchmark:Benchmark",
    "spectool-fairness": "spectool.lab.fairness.saved:Fairness",
}  # what opens each format, imported when it is needed


@click.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--lookup", type=Text(), metavar="TEXT", help="Show what a dictionary proposes after this text.")
@click.option(
    "--entries",
    type=click.IntRange(0, 100_000),
    default=5,
    show_default=True,
    help="Sample entries of a dictionary to show.",
)
@click.option(
    "--text",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With a tokenizer: check which lines of this file it can spell.",
)
@tokenizer_option(help="Tokenizer for showing tokens as text, if the recorded one has moved.")
@click.option("--as-loaded", is_flag=True, help="With a tokenizer: all of it, as mlx-lm loads it, and its fingerprint.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@guarded
def inspect(
    path: str,
    lookup: str | None,
    entries: int,
    text: Path | None,
    tokenizer: str | None,
    as_loaded: bool,
    as_json: bool,
) -> None:
    """Explain an artifact, or a tokenizer. An artifact in the user's cache is found by its name.

    \b
    Examples:
        spectool inspect pl.dict --lookup "na przykład"
        spectool inspect ./Bielik-11B
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.manifest import MANIFEST, holds_model, read_json, read_manifest, verify_files
    from spectool.commands.describe import describe

    directory = find_artifact(Path(path).expanduser())
    if not directory.is_dir() or (holds_model(directory) and not (directory / MANIFEST).is_file()):
        if lookup is not None:
            raise click.UsageError(f"--lookup works on dictionaries; {path} is not one")
        show(_tokenizer_facts(path, text, as_loaded, as_json), as_json)
        return
    if text is not None or as_loaded:
        raise click.UsageError(f"--text and --as-loaded work on tokenizers; {path} is an artifact")
    manifest = read_manifest(directory)
    if lookup is not None and manifest.format != "spectool-dictionary":
        raise click.UsageError(f"--lookup works on dictionaries; {path} is a {manifest.format}")
    if manifest.format in _READERS:  # figures of a damaged one would look like any others
        opened = resolve_name(_READERS[manifest.format])(directory)
    facts: dict[str, Any] = describe(manifest, directory)
    if as_json:
        facts = read_json(directory / MANIFEST)
    if manifest.format == "spectool-dictionary":
        verify_files(directory, manifest)  # entries of a damaged dictionary would be read as if they were true
        sample = _sample(opened, lookup, entries, tokenizer, as_json)
        facts = sample | facts if lookup is not None and not as_json else facts | sample
    show(facts, as_json)


@click.command("verify")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--proof", is_flag=True, help="Of alignments: compare what joins ids with both tokenizers once more.")
@click.option("--draft", "--draft-model", metavar="D", help="With --proof: the draft's tokenizer, if it has moved.")
@click.option("--target", "--model", metavar="T", help="With --proof: the target's tokenizer, likewise.")
@click.option("--seed", type=int, help="With --proof: of the texts that it makes; by default that of `align`.")
@json_option
@guarded
def verify(
    paths: tuple[Path, ...], proof: bool, draft: str | None, target: str | None, seed: int | None, as_json: bool
) -> None:
    """Prove artifacts whole: checksums of all files, then every invariant of the format.

    All of them are checked, also after one that is damaged; the exit status is 1 where one is.

    \b
    Example:
        spectool verify pl.dict qwen-bielik.align pl.counts
        spectool verify qwen-bielik.align --proof --seed 12
    """
    from spectool import SpectoolError

    found: list[dict[str, Any]] = []
    for path in paths:
        facts: dict[str, Any] = {"path": str(path)}
        found.append(facts)
        try:
            for more in _verified(path, {"draft": draft, "target": target} if proof else None, seed):
                facts |= more
                if not as_json:
                    click.echo(facts.pop("line"))
            facts["whole"] = True
        except (SpectoolError, OSError) as error:
            if click.get_current_context().find_root().params.get("debug"):
                raise
            facts |= {"whole": False, "error": in_a_line(error)}
            if not as_json:
                say(f"Error: {facts['error']}")
        facts.pop("line", None)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
    if not all(facts["whole"] for facts in found):
        sys.exit(1)


def _verified(path: Path, proving: Mapping[str, str | None] | None, seed: int | None) -> Iterator[dict[str, Any]]:
    """Verify an artifact; yield what was found step by step, and the ``line`` to print of each.

    Raises:
        SpectoolError: The first thing that is wrong.
    """
    from spectool import ArtifactError
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.manifest import read_manifest, verify_files
    from spectool.build.alignment.check import require_checked
    from spectool.commands.describe import describe

    path = find_artifact(path)
    facts: dict[str, Any] = {"path": str(path)}
    if (path / "training.json").is_file():
        size = resolve_name("spectool.lab.training.saved:verify_draft")(path)
        line = f"{path}: whole (spectool-draft, {size:,} bytes)"
        yield facts | {"format": "spectool-draft", "bytes": size, "line": line}
        return
    manifest = read_manifest(path)
    if manifest.format not in _READERS:
        raise ArtifactError(f"{path}: unknown format {manifest.format!r}; expected one of {', '.join(_READERS)}")
    verify_files(path, manifest)  # before the reader, which would name a consequence
    artifact = resolve_name(_READERS[manifest.format])(path)
    artifact.check()
    describe(manifest, path)  # every figure that is shown must be there
    facts |= {"format": manifest.format, "version": manifest.version, "bytes": manifest.total_bytes}
    yield facts | {"line": f"{path}: whole ({manifest.format} {manifest.version}, {manifest.total_bytes:,} bytes)"}
    if manifest.format == "spectool-alignment":
        require_checked(path, manifest, say)
        for side, line in _check_again(artifact, proving, seed) if proving else ():
            yield {f"{side}_proof": line, "line": f"{path}: {line}"}


def _check_again(opened: "Alignment", sources: Mapping[str, str | None], seed: int | None) -> Iterator[tuple[str, str]]:
    """Repeat the proof of an alignment; yield each side and what was found."""
    from spectool import ArtifactError
    from spectool.build.alignment.check import LOST, check_again
    from spectool.tokenization.opening import open_tokenizer

    recorded = opened.manifest.tokenizers
    draft, target = (open_tokenizer(sources[role] or str(recorded[role]["name"])) for role in ("draft", "target"))
    seed = int(opened.manifest.arguments["seed"]) if seed is None else seed
    for side, found in check_again(opened, draft, target, seed).items():
        line = f"{side} ids are {found} (seed {seed})"
        if found.share > LOST:
            raise ArtifactError(
                f"{opened.path}: {line}. Align again; where that says the same, please report the tokenizer"
            )
        yield side, line


def _tokenizer_facts(source: str, text: Path | None, as_loaded: bool, as_json: bool) -> dict[str, Any]:
    from spectool.tokenization.fingerprint import file_digest
    from spectool.tokenization.opening import open_tokenizer, read_tokenizer
    from spectool.tokenization.round_trips import LIMITS_READ, NO_LIMITS, limits

    read = None if as_loaded or text else read_tokenizer(source, LIMITS_READ)
    tokenizer = read or open_tokenizer(source)
    facts: dict[str, Any] = {
        "tokenizer": tokenizer.name,
        "kind": tokenizer.kind,
        "ids": tokenizer.size,
        **({"file": file_digest(tokenizer.file)} if tokenizer.file and (read or not tokenizer.rebuilt_as) else {}),
        **({} if read else {"fingerprint": tokenizer.fingerprint}),
        "roles": tokenizer.roles.as_dict() if as_json else str(tokenizer.roles),
        "limits": list(limits(tokenizer)) or ([] if as_json else NO_LIMITS),
        "notes": list(tokenizer.notes),
    }
    return facts if text is None else facts | _check_lines(tokenizer, text)


def _check_lines(tokenizer: "Tokenizer", path: Path) -> dict[str, Any]:
    from collections import Counter

    from spectool import CorpusError
    from spectool.tokenization.round_trips import round_trip

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 at byte {error.start}. Convert it first") from error
    outcomes = [round_trip(tokenizer, line) for line in lines]
    reasons = Counter(reason for outcome in outcomes for reason in outcome.reasons)
    lossless = sum(outcome.lossless for outcome in outcomes)
    return {
        "lines spelled exactly": f"{lossless:,} of {len(lines):,}",
        "reasons": [f"{reason} ({count:,} lines)" for reason, count in reasons.most_common()],
    }


def _sample(
    dictionary: "Dictionary", lookup: str | None, count: int, source: str | None, as_json: bool
) -> dict[str, Any]:
    """Sample entries, and the answer to ``--lookup``, spelled with the dictionary's tokenizer."""
    from spectool.commands.look_ups import Speller, explain

    tokenizer = _tokenizer_of(dictionary, source, lookup)
    speller = Speller(dictionary, tokenizer)
    facts = {} if lookup is None or tokenizer is None else explain(speller, lookup, as_json)
    step = max(1, len(dictionary) // max(1, count))
    chosen = map(dictionary.entry, range(0, len(dictionary), step)[:count])
    line = speller.record if as_json else speller.line
    facts["sample entries"] = [line(entry.context, entry.continuation, entry.probability) for entry in chosen]
    return facts


def _tokenizer_of(dictionary: "Dictionary", source: str | None, lookup: str | None) -> "Tokenizer | None":
    from spectool import TokenizerError
    from spectool.tokenization.opening import open_named, read_tokenizer

    recorded, texts = dictionary.tokenizer, [] if lookup is None else [lookup, f" {lookup}"]
    try:
        if read := read_tokenizer(source or recorded["name"], texts, dictionary.alphabet.tolist(), recorded):
            return read
        tokenizer = open_named(source, recorded, "the dictionary's")
    except TokenizerError:
        if source or lookup is not None:
            raise
        say(f"{recorded['name']}: tokenizer not found, showing ids; give it with --tokenizer to see text")
        return None
    tokenizer.require(recorded, str(dictionary.path), f"spectool build-dict --tokenizer {tokenizer.name} …")
    return tokenizer
