"""The command ``pack``."""

from pathlib import Path

import click

from spectool.build.packs import PackOptions
from spectool.commands.shared.console import open_text, print_result, say, say_next
from spectool.commands.shared.options import Whole, command, language_option, option, path_option, size_in_bytes


@command("pack")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@path_option("-o", "--out", required=True, metavar="OUT", help="The pack to write, such as pl.pack.")
@language_option(help="Language of the text, such as pl.")
@option("--from", "credits", multiple=True, help="Where the text is from, and its licence; may be repeated.")
@option("--max-bytes", type=size_in_bytes, default="2MB", metavar="SIZE", help="Maximum size of the pack.")
@option("--min-count", type=Whole(1), default=PackOptions.min_count, help="Leave out n-grams that occur less often.")
@option("--min-names", type=Whole(0), default=PackOptions.min_names, help="The same for all that is not in lower case.")
@option("--orders", type=Whole(1, 5), default=PackOptions.orders, help="Words of the longest n-gram.")
def pack(
    sources: tuple[str, ...], out: Path, language: str, credits: tuple[str, ...], as_json: bool, **options: int
) -> None:
    """Count the words of a language, for dictionaries of every tokenizer.

    A pack has counts of words and of what follows them, and no text. `build-dict --pack` compiles it for a tokenizer.
    Each SOURCE is text of any size, as for build-dict, or another pack, whose counts are added.

    \b
    Examples:
        spectool pack texts/ --language pl -o pl.pack
        spectool pack a.pack b.pack --language pl -o both.pack
    """
    from spectool.artifacts.artifact import require_replaceable
    from spectool.artifacts.pack import Pack
    from spectool.build.packs.stage import build_pack

    packs = [Pack(Path(source)) for source in sources if source.endswith(".pack")]
    corpora = [open_text(source) for source in sources if not source.endswith(".pack")]
    inherited = [line for each in packs for line in each.manifest.inputs.get("credits", [])]
    about = {"language": language, "credits": list(dict.fromkeys([*inherited, *credits]))}
    require_replaceable(out, Pack.format, {})
    manifest = build_pack(packs, corpora, about, out, PackOptions(**options), say)
    print_result(out, manifest, as_json)
    say_next(["build-dict", "--tokenizer", "MODEL", "--pack", str(out)], "-o …")
