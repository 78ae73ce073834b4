"""The command ``inspect``."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import say, show
from spectool.commands.shared.options import command, option, some_text, tokenizer_option

_SUFFIXES = (".dict", ".align", ".pack")
_SHOWN = ("format", "version", "tool", "tokenizers", "arguments", "inputs", "statistics")  # of a manifest


@command("inspect")
@click.argument("path", metavar="PATH")
@option("--lookup", type=some_text, metavar="TEXT", help="Show what a dictionary proposes after this text.")
@tokenizer_option(help="The dictionary's tokenizer, for showing tokens as text, if you have not used it here.")
def inspect(path: str, lookup: str | None, tokenizer: str | None, as_json: bool) -> None:
    """Explain an artifact or a tokenizer, and check artifacts for damage.

    PATH may be the name of an artifact or a draft model in your cache folder. Of an artifact, the checksum and the
    rules of its format are checked; the exit status is 1 if it is damaged.

    \b
    Examples:
        spectool inspect pl.dict --lookup "na przykład"
        spectool inspect ./Bielik-11B
    """
    from spectool.artifacts.artifact import open_artifact
    from spectool.artifacts.default_paths import find_artifact, find_draft

    file = find_artifact(Path(path))
    is_artifact = file.suffix in _SUFFIXES or (file.is_file() and file.suffix != ".json")
    opened: Any = open_artifact(file) if is_artifact else None
    kind = opened.format if is_artifact else "tokenizer"
    for name, value in (("lookup", lookup), ("tokenizer", tokenizer)):
        if kind != "spectool-dictionary" and value is not None:
            raise click.UsageError(f"--{name} works on dictionaries; {path} is a {kind}")
    if not is_artifact:
        show(_tokenizer_facts(find_draft(path)), as_json)
        return
    facts: dict[str, Any] = {name: getattr(opened.manifest, name) for name in _SHOWN}
    facts |= {"bytes": file.stat().st_size, "sha256": opened.file.sha256}
    if kind == "spectool-dictionary":
        from spectool.commands.look_ups import sample

        sampled = sample(opened, lookup, tokenizer)
        if lookup is not None and not sampled["proposal"]:
            say("the dictionary proposes nothing after this text. Try more of it, or another: --lookup TEXT")
        facts = facts | sampled if lookup is None else sampled | (facts if as_json else {})
    elif kind == "spectool-alignment":
        from spectool.commands.shared.align_summary import judgement

        facts |= judgement(opened.manifest)
    show(facts, as_json)


def _tokenizer_facts(source: str) -> dict[str, Any]:
    from spectool.commands.shared.tokenizers import named_tokenizer
    from spectool.tokenization.round_trips import limits

    say(f"opening {source}")
    tokenizer = named_tokenizer(source)
    return {
        "tokenizer": tokenizer.name,
        "kind": tokenizer.kind,
        "ids": tokenizer.size,
        "fingerprint": tokenizer.fingerprint,
        "roles": asdict(tokenizer.roles),
        "limits": list(limits(tokenizer)),
    }
