"""The command ``verify``."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool import ArtifactError, SpectoolError
from spectool.commands.console import guarded, in_a_line, say
from spectool.commands.describe import artifact_facts
from spectool.commands.options import json_option

if TYPE_CHECKING:
    from spectool.artifacts.alignment import Alignment


@click.command("verify")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--recheck", is_flag=True, help="Also compare the ids that alignments join with both tokenizers.")
@click.option("--draft", "--draft-model", metavar="D", help="With --recheck: the draft's tokenizer, if it has moved.")
@click.option("--target", "--model", metavar="T", help="With --recheck: the target's tokenizer, likewise.")
@click.option("--seed", type=int, help="With --recheck: seed of its texts; by default that of `align`.")
@json_option
@guarded
def verify(
    paths: tuple[Path, ...], recheck: bool, draft: str | None, target: str | None, seed: int | None, as_json: bool
) -> None:
    """Check that artifacts are whole: checksums of all files, then every invariant of the format.

    All of them are checked, even if one is damaged; the exit status is then 1.

    \b
    Examples:
        spectool verify pl.dict qwen-bielik.align pl.counts
        spectool verify qwen-bielik.align --recheck --seed 12
    """
    found: list[dict[str, Any]] = []
    for path in paths:
        facts: dict[str, Any] = {"path": str(path)}
        found.append(facts)
        try:
            artifact = _verified(path, facts)
            if not as_json:
                size = f"{artifact.manifest.total_bytes:,} bytes"
                click.echo(f"{artifact.path}: whole ({facts['format']} {facts['version']}, {size})")
            if recheck and facts["format"] == "spectool-alignment":
                for side, line in _checked_again(artifact, {"draft": draft, "target": target}, seed):
                    facts[f"{side}_check"] = line
                    if not as_json:
                        click.echo(f"{artifact.path}: {line}")
            facts["whole"] = True
        except (SpectoolError, OSError) as error:
            if click.get_current_context().find_root().params.get("debug"):
                raise
            facts |= {"whole": False, "error": in_a_line(error)}
            if not as_json:
                say(f"Error: {facts['error']}")
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
    if not all(facts["whole"] for facts in found):
        sys.exit(1)


def _verified(path: Path, facts: dict[str, Any]) -> Any:
    """The artifact at ``path`` after all its checks, with what it is added to ``facts``.

    Raises:
        SpectoolError: The first thing that is wrong.
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.formats import class_of
    from spectool.artifacts.manifest import read_manifest, verify_files
    from spectool.build.alignment.check import require_checked

    path = find_artifact(path)
    facts["path"] = str(path)
    manifest = read_manifest(path)
    kind = class_of(manifest, path)
    verify_files(path, manifest)  # first, because the reader would name a consequence
    artifact = kind(path)
    artifact.check()
    artifact_facts(manifest, path)  # requires every figure that `inspect` shows
    facts |= {"format": manifest.format, "version": manifest.version, "bytes": manifest.total_bytes}
    if manifest.format == "spectool-alignment":
        require_checked(path, manifest, say)
    return artifact


def _checked_again(
    opened: "Alignment", tokenizers: Mapping[str, str | None], seed: int | None
) -> Iterator[tuple[str, str]]:
    """Repeat the check of an alignment: yields each side and what was found."""
    from spectool.build.alignment.check import LOST, check_again
    from spectool.tokenization.opening import open_tokenizer

    recorded = opened.manifest.tokenizers
    draft, target = (open_tokenizer(tokenizers[role] or str(recorded[role]["name"])) for role in ("draft", "target"))
    seed = int(opened.manifest.arguments["seed"]) if seed is None else seed
    for side, found in check_again(opened, draft, target, seed).items():
        line = f"{side} ids are {found} (seed {seed})"
        if found.share > LOST:
            raise ArtifactError(
                f"{opened.path}: {line}. Align again; if that says the same, please report the tokenizer"
            )
        yield side, line
