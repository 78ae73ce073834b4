"""Entries of a dictionary in words, and a look-up step by step: how a text was split, and what would be drafted."""

import shlex
from collections.abc import Sequence
from typing import Any

from spectool import ArtifactError, TokenizerError
from spectool.artifacts.dictionary import Dictionary
from spectool.commands.shared.console import say
from spectool.commands.shared.tokenizers import named_tokenizer, own_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_ENTRIES = 5  # of a dictionary, as a sample
_STEPS = 8  # most look-ups of a proposal that is shown


def sample(dictionary: Dictionary, lookup: str | None, source: str | None) -> dict[str, Any]:
    """Some entries, and the look-up of a text; ``source`` is the tokenizer, by default `own_tokenizer`."""
    try:
        tokenizer = named_tokenizer(source) if source else own_tokenizer(dictionary)
    except TokenizerError as error:
        if source or lookup is not None:
            raise
        say(f"no entries are shown: {error}")
        return {}
    rebuild = f"spectool build-dict --tokenizer {shlex.quote(tokenizer.name)} …"
    tokenizer.require(dictionary.tokenizer, str(dictionary.path), rebuild)
    facts = {} if lookup is None else explain(dictionary, tokenizer, lookup)
    step = max(1, len(dictionary) // _ENTRIES)
    chosen = map(dictionary.entry, range(0, len(dictionary), step)[:_ENTRIES])
    return facts | {"sample entries": [_entry(dictionary, tokenizer, each.context, each) for each in chosen]}


def explain(dictionary: Dictionary, tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """The tokens of a text, and the entries of the successive look-ups after it, with the probability of all so far."""
    tokens: list[int] = list(tokenizer.encode_after_space([text])[0])
    split = " | ".join(_shown(dictionary, tokenizer, [token]) for token in tokens)
    chain, probability = list[dict[str, Any]](), 1.0
    while len(chain) < _STEPS and (match := dictionary.look_up(dictionary.state_after(tokens))) is not None:
        probability *= match.probability
        found = _entry(dictionary, tokenizer, tokens[-match.length :], match)
        chain.append(found | {"in_all": round(probability, 4)})
        tokens.append(match.token)
    return {"tokens": split, "proposal": chain}


def _entry(dictionary: Dictionary, tokenizer: Tokenizer, context: Sequence[int], entry: Any) -> dict[str, Any]:
    after, comes = (_shown(dictionary, tokenizer, part) for part in (context, [entry.token]))
    return {"after": after, "comes": comes, "probability": round(entry.probability, 4)}


def _shown(dictionary: Dictionary, tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Tokens as text with visible spaces, a special one by its name."""
    names = [tokenizer.backend.id_to_token(token) for token in tokens]
    if None in names:  # the manifest may say that there are more ids than there are
        unknown = tokens[names.index(None)]
        raise ArtifactError(f"{dictionary.path}: token id {unknown} is not in {tokenizer.name}'s vocabulary")
    raw = b"".join(tokenizer.token_bytes_of(tokens)) or "".join(map(str, names)).encode()
    return raw.decode("utf-8", "backslashreplace").replace(" ", "▁").replace("\n", "\\n").replace("\t", "\\t")
