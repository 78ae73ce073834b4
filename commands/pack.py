"""The command ``pack``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from spectool.build.packs.options import PackOptions
from spectool.commands.shared.console import open_text, print_result, say, say_next
from spectool.commands.shared.options import Whole, command, language_code, option, path_option, size_in_bytes


@command("pack")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@path_option("-o", "--out", required=True, metavar="OUT", help="The pack to write, such as pl.pack.")
@option("--language", type=language_code, metavar="CODE", required=True, help="Language of the text, such as pl.")
@option(
    "--from",
    "credits",
    multiple=True,
    metavar="TEXT",
    help="Where the text is from and its licence, for whoever gets the pack; may be repeated.",
)
@path_option("--card", metavar="FILE", help="Write a page about the pack as well, for example README.md.")
@option("--max-bytes", type=size_in_bytes, default="2MB", metavar="SIZE", help="Maximum size of the pack.")
@option("--min-count", type=Whole(1), default=PackOptions.min_count, help="Leave out n-grams that occur less often.")
@option(
    "--min-names",
    type=Whole(0),
    default=PackOptions.min_names,
    help="Leave out names, numbers and all that is not in lower case if it occurs less often.",
)
@option("--orders", type=Whole(1, 5), default=PackOptions.orders, help="Words of the longest n-gram.")
def pack(
    sources: tuple[str, ...],
    out: Path,
    language: str,
    credits: tuple[str, ...],
    card: Path | None,
    max_bytes: int,
    min_count: int,
    min_names: int,
    orders: int,
    as_json: bool,
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
    from spectool.artifacts.atomic import naming
    from spectool.artifacts.pack import Pack
    from spectool.build.packs.stage import build_pack

    packs = [Pack(Path(source)) for source in sources if source.endswith(".pack")]
    corpora = [open_text(source) for source in sources if not source.endswith(".pack")]
    inherited = [line for each in packs for line in each.manifest.inputs.get("credits", [])]
    about = {"language": language, "credits": list(dict.fromkeys([*inherited, *credits]))}
    options = PackOptions(max_bytes, orders, min_count, min_names)
    require_replaceable(out, Pack.format)
    manifest = build_pack(packs, corpora, about, out, options, say)
    print_result(out, manifest, as_json)
    if card is not None:
        with naming(card):
            card.write_text(_card(out, about, manifest.statistics), encoding="utf-8")
    if not as_json:
        say_next(["build-dict", "--tokenizer", "MODEL", "--pack", str(out)], "-o …")


def _card(out: Path, about: Mapping[str, Any], statistics: Mapping[str, Any]) -> str:
    """A page about a pack, in the form that the Hugging Face hub reads."""
    credits = "\n".join(f"- {line}" for line in about["credits"]) or "- not stated"
    return f"""---
language: {about["language"]}
tags: [spectool, speculative-decoding]
---
# {out.name}

Counts of {statistics["ngrams"][0]:,} words and of {sum(statistics["ngrams"][1:]):,} sequences of up to
{len(statistics["ngrams"])} of them, from which [spectool](https://github.com/spectool/spectool) makes a dictionary for
the tokenizer of any model. Local models then write this language in fewer passes, and their text stays the same.

    spectool setup MODEL --language {about["language"]} --pack {out.name}

The counts are from {statistics["occurrences"]:,} words, numbers and marks of these sources. The text itself is not in
the file.

{credits}
"""
