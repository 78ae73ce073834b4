"""The command ``inspect``, and look-ups step by step: how a text was split, and what would be drafted."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool import ArtifactError
from spectool.commands.shared.console import say, show
from spectool.commands.shared.options import command, option, some_text, tokenizer_option

if TYPE_CHECKING:
    from spectool.artifacts.dictionary import Dictionary
    from spectool.tokenization.tokenizer import Tokenizer

_SUFFIXES = (".dict", ".align", ".pack")
_STEPS = 8  # most look-ups of a proposal that is shown


@command("inspect")
@click.argument("path", metavar="PATH")
@option("--lookup", type=some_text, metavar="TEXT", help="Show what a dictionary proposes after this text.")
@tokenizer_option(help="The dictionary's tokenizer, for --lookup, if no command has opened it here.")
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
    from spectool.commands.shared.tokenizers import named_tokenizer, own_tokenizer
    from spectool.tokenization.round_trips import limits

    file = find_artifact(Path(path))
    is_artifact = file.suffix in _SUFFIXES or (file.is_file() and file.suffix != ".json")
    opened: Any = open_artifact(file) if is_artifact else None
    kind = opened.format if is_artifact else "tokenizer"
    for name, value in (("lookup", lookup), ("tokenizer", tokenizer)):
        if kind != "spectool-dictionary" and value is not None:
            raise click.UsageError(f"--{name} works on dictionaries; {path} is a {kind}")
    if not is_artifact:
        say(f"opening {path}")
        found = named_tokenizer(find_draft(path))
        about = {"tokenizer": found.name, "kind": found.kind, "ids": found.size, "fingerprint": found.fingerprint}
        show(about | {"roles": asdict(found.roles), "limits": [*limits(found)]}, as_json)
        return
    facts = asdict(opened.manifest) | {"bytes": file.stat().st_size, "sha256": opened.file.sha256}
    if lookup is not None:
        target = named_tokenizer(tokenizer) if tokenizer else own_tokenizer(opened)
        rebuild = f"spectool build-dict --tokenizer {shlex.quote(target.name)} …"
        target.require(opened.tokenizer, str(opened.path), rebuild)
        explained = explain(opened, target, lookup)
        if not explained["proposal"]:
            say("the dictionary proposes nothing after this text. Try more of it, or another: --lookup TEXT")
        facts = explained | (facts if as_json else {})
    elif kind == "spectool-alignment":
        from spectool.commands.align import judgement

        facts |= judgement(opened.manifest)
    show(facts, as_json)


def explain(dictionary: "Dictionary", tokenizer: "Tokenizer", text: str) -> dict[str, Any]:
    """The tokens of a text, and the entries of the successive look-ups after it, with the probability of all so far."""
    tokens = tokenizer.encode(text if tokenizer.leading_space else f" {text}")
    split = " | ".join(_shown(dictionary, tokenizer, [token]) for token in tokens)
    chain, probability = list[dict[str, Any]](), 1.0
    while len(chain) < _STEPS and (match := dictionary.look_up(dictionary.state_after(tokens))) is not None:
        probability *= match.probability
        after, comes = (_shown(dictionary, tokenizer, part) for part in (tokens[-match.length :], [match.token]))
        chances = {"probability": round(match.probability, 4), "in_all": round(probability, 4)}
        chain.append({"after": after, "comes": comes, **chances})
        tokens.append(match.token)
    return {"tokens": split, "proposal": chain}


def _shown(dictionary: "Dictionary", tokenizer: "Tokenizer", tokens: Sequence[int]) -> str:
    """Tokens as text with visible spaces, a special one by its name."""
    names = [tokenizer.backend.id_to_token(token) for token in tokens]
    if None in names:  # the manifest may say that there are more ids than there are
        unknown = tokens[names.index(None)]
        raise ArtifactError(f"{dictionary.path}: token id {unknown} is not in {tokenizer.name}'s vocabulary")
    raw = b"".join(tokenizer.token_bytes_of(tokens)) or "".join(map(str, names)).encode()
    return raw.decode("utf-8", "backslashreplace").replace(" ", "▁").replace("\n", "\\n").replace("\t", "\\t")
