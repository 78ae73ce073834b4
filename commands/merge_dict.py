"""The command ``merge-dict``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spectool.build.dictionary.options import Limits
from spectool.commands.shared.console import guarded, say, stage
from spectool.commands.shared.options import Finite, Whole, json_option, path_option, size_in_bytes

if TYPE_CHECKING:
    from spectool.artifacts.dictionary import Dictionary


@click.command("merge-dict")
@click.argument("paths", metavar="A B...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--weight",
    "weights",
    type=Finite(0, 1_000_000, min_open=True),
    multiple=True,
    help="How many times the text of each dictionary counts, in their order; by default once.",
)
@path_option("-o", "--out", required=True, metavar="OUT", help="Directory to write.")
@click.option(
    "--entries",
    type=Whole(1),
    metavar="N",
    help="Maximum number of entries; those with the highest expected gain are kept.",
)
@click.option("--max-bytes", type=size_in_bytes, metavar="SIZE", help="Maximum size of the data files, such as 5MB.")
@json_option
@guarded
def merge_dict(
    paths: tuple[Path, ...],
    weights: tuple[float, ...],
    out: Path,
    entries: int | None,
    max_bytes: int | None,
    as_json: bool,
) -> None:
    """Merge dictionaries of one tokenizer, as if they had been built from all their texts.

    Next to a dictionary from much text, one from little text needs a higher weight to have an effect.

    \b
    Example:
        spectool merge-dict pl.dict law.dict --weight 1 --weight 4 --max-bytes 5MB -o office.dict
    """
    from spectool.artifacts.dictionary import Dictionary
    from spectool.build.dictionary.merging import merge_dictionaries

    if len(paths) < 2:
        raise click.UsageError("name two dictionaries or more")
    if weights and len(weights) != len(paths):
        raise click.UsageError(f"{len(weights)} weights for {len(paths)} dictionaries: give one --weight for each")
    opened = [open_verified(path) for path in paths]
    with stage(out, Dictionary.format, as_json, {"target": opened[0].fingerprint}) as finish:
        finish(merge_dictionaries(opened, weights or [1.0] * len(paths), out, Limits(entries, max_bytes), say))


def open_verified(path: Path) -> "Dictionary":
    """The dictionary at ``path`` or of that name, after its checksums have been compared."""
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.artifacts.manifest import verify_files

    dictionary = Dictionary(find_artifact(path, ".dict"))
    verify_files(dictionary.path, dictionary.manifest)
    return dictionary
