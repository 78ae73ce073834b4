"""The command ``export-dict``."""

from pathlib import Path
from typing import Literal

import click

from spectool.commands.console import guarded, say, show
from spectool.commands.merge_dict import open_verified
from spectool.commands.options import Finite, json_option, path_option


@click.command("export-dict")
@click.argument("path", metavar="DIR", type=click.Path(path_type=Path))
# There is one format, so that the command need not know which was chosen.
@click.option(
    "--format", required=True, type=click.Choice(["llama.cpp"]), expose_value=False, help="The other program's format."
)
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
    help="Leave out less probable entries, unless something even less probable would then be drafted instead.",
)
@click.option(
    "--counted",
    is_flag=True,
    help="Write probabilities as counts, so that llama.cpp's own thresholds (75 and 66%) decide. Otherwise everything "
    "that is written is drafted.",
)
@json_option
@guarded
def export_dict(
    path: Path, out: Path, kind: Literal["dynamic", "static"], min_prob: float, counted: bool, as_json: bool
) -> None:
    """Write a dictionary in the format of another program.

    llama.cpp: a lookup cache, for --lookup-cache-dynamic (or, with --cache static, --lookup-cache-static) of
    llama-lookup and llama-server. llama-lookup adds what it generates to a dynamic cache, so give it a copy.
    An existing file is not replaced.

    \b
    Example:
        spectool export-dict pl.dict --format llama.cpp -o pl.lookup
    """
    from spectool import SpectoolError
    from spectool.artifacts.llama_cpp import write_cache
    from spectool.build.dictionary.lookup_cache import to_ngrams

    dictionary = open_verified(path)
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
