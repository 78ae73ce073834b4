"""Tokenizers that commands open: by the names that the user gives, and by a dictionary's fingerprint.

A manifest names its tokenizer, too, but whoever wrote the file chose that name, so nothing is opened or fetched by it.
The fingerprint finds the tokenizer among those that the user has named to a command before. The hub is not asked.
"""

import os
from contextlib import suppress
from pathlib import Path

from spectool import TokenizerError, expanded
from spectool.artifacts.artifact import require_replaceable
from spectool.artifacts.default_paths import default_path, digest
from spectool.artifacts.dictionary import Dictionary
from spectool.commands.shared.console import say
from spectool.tokenization.fingerprint import short
from spectool.tokenization.opening import cached_tokenizer, open_tokenizer
from spectool.tokenization.round_trips import limits
from spectool.tokenization.tokenizer import Tokenizer

_RARE = "𒀀"  # in few vocabularies


def named_tokenizer(source: str | Path) -> Tokenizer:
    """The tokenizer of a name that the user gave, which is remembered for `own_tokenizer`."""
    tokenizer, path = open_tokenizer(source), expanded(source)
    name = str(path.resolve() if path.exists() else source)
    remembered = _name_file(tokenizer.fingerprint)
    with suppress(OSError):  # a cache that cannot be written ends no command
        remembered.parent.mkdir(parents=True, exist_ok=True)
        remembered.write_bytes(os.fsencode(name))
    return tokenizer


def _name_file(fingerprint: str) -> Path:
    """Where the name of a tokenizer is remembered; the fingerprint may be a stranger's, and is no part of a path."""
    return default_path("tokenizers") / digest(fingerprint)


def tokenizer_with_notes(source: str | Path) -> Tokenizer:
    """The tokenizer of that name, with a note on stderr of which text it does not keep.

    Raises:
        TokenizerError: It cannot be opened, or stops at text that it has no token for.
    """
    say(f"opening {source}")
    tokenizer = named_tokenizer(source)
    tokenizer.encode(_RARE)
    if changes := limits(tokenizer):
        say(f"{tokenizer.name} keeps ordinary text as it is, with these exceptions: {'; '.join(changes)}")
    return tokenizer


def open_tokenizers(format_name: str, out: Path | None, **names: str) -> list[Tokenizer]:
    """The tokenizers of a stage by role, with notes, if ``out`` may be written for them.

    Without ``out``, the stage writes in the user's cache, under a name that depends on the tokenizers.
    """
    out = out or default_path("new")
    require_replaceable(out, format_name)
    opened = {role: tokenizer_with_notes(name) for role, name in names.items()}
    require_replaceable(out, format_name, {role: each.fingerprint for role, each in opened.items()})
    return list(opened.values())


def own_tokenizer(dictionary: Dictionary) -> Tokenizer:
    """The tokenizer that the user has named before and that has the fingerprint which a dictionary records.

    Raises:
        TokenizerError: There is none; the message asks for ``--tokenizer``.
    """
    recorded = dictionary.tokenizer
    with suppress(TokenizerError, OSError):
        known = os.fsdecode(_name_file(recorded["fingerprint"]).read_bytes())
        tokenizer = open_tokenizer(known) if Path(known).exists() else cached_tokenizer(known)
        if tokenizer is not None and tokenizer.matches(recorded):
            return tokenizer
    raise TokenizerError(
        f"{dictionary.path}: built for tokenizer {short(recorded['fingerprint'])}, which you have not used here. Give "
        f"the dictionary's tokenizer with --tokenizer; the file calls it {recorded['name']!r}"
    )
