"""The command ``inspect``."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from spectool.commands.shared.console import model_of, say, say_next, say_opening, show
from spectool.commands.shared.options import Whole, command, option, some_text, tokenizer_option

_SHOWN = ("format", "version", "tool", "tokenizers", "arguments", "inputs", "statistics")  # of a manifest


@command("inspect")
@click.argument("path", metavar="PATH")
@option("--lookup", type=some_text, metavar="TEXT", help="Show what a dictionary proposes after this text.")
@option(
    "--entries",
    type=Whole(0, 100_000),
    default=5,
    help="Number of sample entries of a dictionary to show.",
)
@tokenizer_option(help="Tokenizer for showing tokens as text, if the recorded one has moved.")
def inspect(path: str, lookup: str | None, entries: int, tokenizer: str | None, as_json: bool) -> None:
    """Explain an artifact or a tokenizer, and check artifacts for damage.

    PATH may be the name of an artifact in your cache folder. Of an artifact, the checksum and all rules of its format
    are checked; the exit status is 1 if it is damaged.

    \b
    Examples:
        spectool inspect pl.dict --lookup "na przykład"
        spectool inspect ./Bielik-11B
    """
    from spectool.artifacts.artifact import verify_artifact
    from spectool.artifacts.default_paths import find_artifact

    file = find_artifact(Path(path))
    ours = any((file / name).is_file() for name in ("manifest.json", "run.jsonl"))  # an old artifact, a run of bench
    missing = not file.exists() and file.suffix in (".dict", ".align", ".pack")
    is_tokenizer = file.suffix == ".json" or not (file.is_file() or missing)
    is_tokenizer = is_tokenizer and (not ours or (file / "tokenizer.json").is_file())
    opened: Any = None if is_tokenizer else verify_artifact(file)
    kind = "tokenizer" if is_tokenizer else opened.format
    source_of = click.get_current_context().get_parameter_source
    for name in ("lookup", "entries", "tokenizer"):
        if kind != "spectool-dictionary" and source_of(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} works on dictionaries; {path} is a {kind}")
    if is_tokenizer:
        show(_tokenizer_facts(path), as_json)
        return
    facts: dict[str, Any] = {name: getattr(opened.manifest, name) for name in _SHOWN}
    facts["arrays"] = {name: f"{each.dtype} {len(each):,}" for name, each in opened.file.arrays.items()}
    facts |= {"bytes": file.stat().st_size, "sha256": opened.file.sha256}
    if kind == "spectool-dictionary":
        from spectool.commands.look_ups import sample

        sampled = sample(opened, lookup, entries, tokenizer)
        if lookup is not None and not sampled["proposal"]:
            say("the dictionary proposes nothing after this text. Try more of it, or another: --lookup TEXT")
        facts = facts | sampled if lookup is None else sampled | (facts if as_json else {})
    elif kind == "spectool-alignment":
        from spectool.commands.shared.align_summary import judgement

        facts |= judgement(opened.manifest)
    show(facts, as_json)
    if kind == "spectool-alignment" and facts["usable"] and not as_json:
        sides = opened.manifest.tokenizers
        models = [model_of(str(sides[role]["name"]), role.upper()) for role in ("target", "draft")]
        say_next(["generate", "--model", models[0], "--draft-model", models[1], "--alignment", str(file)])


def _tokenizer_facts(source: str) -> dict[str, Any]:
    from spectool.tokenization.opening import open_tokenizer
    from spectool.tokenization.round_trips import limits

    say_opening(source)
    tokenizer = open_tokenizer(source)
    return {
        "tokenizer": tokenizer.name,
        "kind": tokenizer.kind,
        "ids": tokenizer.size,
        "fingerprint": tokenizer.fingerprint,
        "roles": asdict(tokenizer.roles),
        "limits": list(limits(tokenizer)),
    }
