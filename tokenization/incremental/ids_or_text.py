"""What every kind of step that the `tokenizers` library knows means for joining ids.

A side whose steps are all understood joins ids by merges and boundaries (`by_ids`). Any other goes through text
(`by_text`), for reasons that are listed. What neither can do is refused by name.
"""

from collections.abc import Iterator
from itertools import product

from spectool import TokenizerError
from spectool.tokenization.incremental.alphabet import alphabet_of, parts_of
from spectool.tokenization.incremental.pretokens import LONGEST_WORD, MOST_REPEATS
from spectool.tokenization.round_trips import unread
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
    "model": {"BPE": "", **dict.fromkeys(("Unigram", "WordLevel", "WordPiece"), "does not merge pairs")},
}
_REFUSED = {"FixedLength": "counts characters from the beginning of a text"}
_MOST_COUNTED = 64  # characters that a pattern may count; the texts of a proof are longer than twice that


def reasons_for_text(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Say why a tokenizer's ids have to be joined through text; nothing where merges and boundaries do it.

    Raises:
        TokenizerError: It has a step that can be followed in neither way, or that this version does not know.
    """
    tokenizer.surfaces_of(())  # refuses a decoder that is not known
    kinds = [(section, step["type"]) for section in _KINDS for step in tokenizer.steps(section)]
    for section, kind in kinds:
        if kind not in _KINDS[section]:
            raise TokenizerError(
                f"{tokenizer.name}: its {section} {kind} {_REFUSED.get(kind, 'is not known to this version')}, so that "
                "drafts cannot be translated. Use a tokenizer without this step"
            )
    if lacking := tokenizer.lacking:
        raise TokenizerError(
            f"{tokenizer.name}: its model {tokenizer.kind} has no {lacking}, and stops with an error at text that it "
            "has no token for. Give it one in tokenizer.json, or use another tokenizer"
        )
    of_kinds = (f"its {section} {kind} {reason}" for section, kind in kinds if (reason := _KINDS[section][kind]))
    return tuple(dict.fromkeys([*of_kinds, *_of_options(tokenizer)]))


def _of_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    for token in tokenizer.spec["added_tokens"]:
        if token["single_word"] and token["id"] not in tokenizer.specials:
            yield f"its added token {token['content']!r} is looked for between words"
    for index, name in tokenizer.redecoded.items():
        yield f"its token {name!r} decodes as {tokenizer.backend.id_to_token(index)!r}"


def _of_options(tokenizer: Tokenizer) -> Iterator[str]:
    model = tokenizer.spec["model"]
    marks = ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
    yield from (f"its model has the option {mark}" for mark in marks if model.get(mark))
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
    if model["type"] != "BPE" or any(_KINDS["pre_tokenizer"][step["type"]] for step in splits):
        return
    try:
        pairs, parts = product(alphabet_of(tokenizer).representatives, repeat=2), parts_of(splits)
    except TokenizerError as error:
        yield str(error)
        return
    if parts.repeats > _MOST_COUNTED:
        raise TokenizerError(
            f"{tokenizer.name}: its pre-tokenizer counts up to {parts.repeats} characters, more than "
            f"{_MOST_COUNTED}, so that drafts cannot be translated. Use a tokenizer without this step"
        )
    if parts.repeats > MOST_REPEATS:
        yield f"its pre-tokenizer counts up to {parts.repeats} characters, more than {MOST_REPEATS}"
    if (longest := max(map(len, parts.words), default=0)) > LONGEST_WORD:
        yield f"its pre-tokenizer looks for {longest} characters in a row, more than {LONGEST_WORD}"
    if any(step.get("behavior") == "Removed" for step in splits) and any(map(tokenizer.drops, map("".join, pairs))):
        yield "its pre-tokenizer removes what it splits at"
