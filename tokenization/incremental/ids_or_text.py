"""Whether a tokenizer's ids are joined on ids (`by_ids`) or through text (`by_text`), and why.

Every kind of step that the `tokenizers` library knows is listed here. A step that neither way can follow is refused.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from spectool import TokenizerError
from spectool.tokenization.round_trips import unread
from spectool.tokenization.running_text import RunningText
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

# Kinds of steps, by section, and why a side with one goes through text; empty where ids are joined.
# Normalizers are not run on text that comes out of ids; what they would change is lost to that side anyway.
_KINDS = {
    "normalizer": {
        **dict.fromkeys(("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled"), ""),
        **dict.fromkeys(("Prepend", "Replace", "Sequence", "Strip", "StripAccents"), ""),
        "ByteLevel": "writes bytes as signs before the text is split",
    },
    "pre_tokenizer": {
        **dict.fromkeys(("ByteLevel", "Digits", "Metaspace", "Punctuation", "Sequence", "Split"), ""),
        **dict.fromkeys(("BertPreTokenizer", "Whitespace", "WhitespaceSplit"), "keeps no spaces"),
        "CharDelimiterSplit": "keeps no delimiters",
        "UnicodeScripts": "splits by script",
    },
    "model": {"BPE": "", **dict.fromkeys(("Unigram", "WordLevel"), "does not merge pairs")},
}
_REFUSED = {"FixedLength": "counts characters from the beginning of a text"}
_MOST_COUNTED = 4
_SAMPLE = " \n\t.,'/aAżжא漢あ\u0301\u0378\u200b😀\x00" + "059²"  # characters of most kinds


def reasons_for_text(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Why a tokenizer's ids have to be joined through text; empty where they are joined on ids.

    Raises:
        TokenizerError: It has a step that can be followed in neither way, or that this version does not know.
    """
    tokenizer.token_bytes_of(())  # refuses a decoder that is not known
    kinds = [(section, step["type"]) for section in _KINDS for step in tokenizer.steps(section)]
    for section, kind in kinds:
        if kind not in _KINDS[section]:
            raise TokenizerError(
                f"{tokenizer.name}: its {section} {kind} {_REFUSED.get(kind, 'is not known to this version')}, so that "
                "drafts cannot be translated. Use a tokenizer without this step"
            )
    of_kinds = (f"its {section} {kind} {reason}" for section, kind in kinds if (reason := _KINDS[section][kind]))
    return tuple(dict.fromkeys([*of_kinds, *_of_options(tokenizer)]))


def _spells(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the model has a token for each character of a text, or for each byte of those without one."""
    id_of = tokenizer.backend.token_to_id
    if tokenizer.kind == "byte-level BPE":
        symbols = {byte: symbol for symbol, byte in byte_symbols().items()}
        return None not in (id_of(symbols[byte]) for byte in text.encode())
    lone = (char for char in text.replace(" ", tokenizer.space_sign) if id_of(char) is None)
    return tokenizer.byte_tokens.issuperset(id_of(f"<0x{byte:02X}>") for char in lone for byte in char.encode())


def _of_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    for token in tokenizer.spec["added_tokens"]:
        if token["single_word"] and token["id"] not in tokenizer.specials:
            yield f"its added token {token['content']!r} is looked for between words"
    contents = {token["id"]: token["content"] for token in tokenizer.spec["added_tokens"]}
    running = RunningText(tokenizer)
    for index, text in running.added.items():
        if tokenizer.leading_space and contents[index].startswith(" "):
            yield f"its added token {text!r} begins with the space that is put before every text"
        if not _spells(tokenizer, text):
            yield f"its added token {text!r} has characters that no token of its model has"
    # Some added tokens decode to other text than the model makes them of: normalized ones, as ``the`` to ``▁the`` where
    # the normalizer prepends ``▁``, and those with the id of another token.
    in_text = contents.keys() - {index for index in tokenizer.specials if not running.token_bytes[index]}
    # The library gives its vocabulary in any order.
    for name, index in sorted(item for item in tokenizer.vocabulary.items() if item[1] in in_text):
        decoded = tokenizer.backend.id_to_token(index)
        if tokenizer.backend.model.token_to_id(name) == index and decoded != name:
            yield f"its token {name!r} decodes as {decoded!r}"


def _counting(step: dict[str, Any]) -> str:
    """Why text of any length may decide where a step splits; empty where a few characters do."""
    counts = re.findall(r"(?<=[{,])\d+(?=[,}])", step.get("pattern", {}).get("Regex", ""))
    most = max(map(int, counts), default=0)
    return f"its pre-tokenizer counts up to {most} characters" if most > _MOST_COUNTED else ""


def _of_options(tokenizer: Tokenizer) -> Iterator[str]:
    model = tokenizer.spec["model"]
    read = [(step.get("content"), step.get("pattern")) for step in tokenizer.steps("decoder")]
    for step in tokenizer.steps("normalizer"):
        if step["type"] == "Replace" and "String" in step["pattern"]:
            old, new = step["pattern"]["String"], step["content"]
            if (old, new) != (" ", tokenizer.normalized_space) and (old, {"String": new}) in read:
                yield f"it writes {new!r} for {old!r}"
    yield from (f"it {limit}" for limit in unread(tokenizer))
    splits = tokenizer.steps("pre_tokenizer")
    if any(step["type"] == "ByteLevel" for step in splits[:-1]):
        yield "its pre-tokenizer splits bytes"
    if added := next(_of_added_tokens(tokenizer), ""):
        yield added
    if model["type"] == "BPE" and not any(_KINDS["pre_tokenizer"][step["type"]] for step in splits):
        yield from filter(None, map(_counting, splits))
        removing = any(step.get("behavior") == "Removed" for step in splits)
        if removing and any(map(tokenizer.loses_text, map("".join, product(_SAMPLE, repeat=2)))):
            yield "its pre-tokenizer removes what it splits at"
