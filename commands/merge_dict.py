"""The command ``merge-dict``."""

from pathlib import Path

import click

from spectool.commands.shared.console import model_of, say, say_next, stage
from spectool.commands.shared.options import command, option, path_option, size_in_bytes


@command("merge-dict")
@click.argument("paths", metavar="A B...", nargs=-1, required=True, type=click.Path(path_type=Path))
@path_option("-o", "--out", required=True, metavar="OUT", help="Directory to write.")
@option("--max-bytes", type=size_in_bytes, metavar="SIZE", help="Maximum size, such as 5MB.")
def merge_dict(paths: tuple[Path, ...], out: Path, max_bytes: int | None, as_json: bool) -> None:
    """Merge dictionaries of one tokenizer into one file that drafts what all of them together draft.

    \b
    Example:
        spectool merge-dict pl.dict law.dict --max-bytes 5MB -o office.dict
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.artifacts.manifest import verify_files
    from spectool.build.dictionary.merging import merge_dictionaries

    if len(paths) < 2:
        raise click.UsageError("name two dictionaries or more")
    opened = [Dictionary(find_artifact(path, ".dict")) for path in paths]
    for dictionary in opened:
        verify_files(dictionary.path, dictionary.manifest)
    with stage(out, Dictionary.format, as_json, {"target": opened[0].fingerprint}) as finish:
        finish(merge_dictionaries(opened, out, max_bytes, say))
    if not as_json:
        say_next(["generate", "--model", model_of(str(opened[0].tokenizer["name"]), "MODEL"), "--dict", str(out)])
