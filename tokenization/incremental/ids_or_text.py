"""Whether a tokenizer's ids are joined on ids (`by_ids`) or through text (`by_text`), and why.

Here are the reasons that can be told from its steps. Rarer ones, such as added tokens that its model cannot spell, are
found by the check of `spectool align`, which compares joined ids with those that the tokenizer writes.
"""

from collections.abc import Iterator

from spectool.tokenization.round_trips import unread
from spectool.tokenization.tokenizer import Tokenizer

# Kinds of pre-tokenizers, and why a side with one goes through text; empty where ids are joined.
_SPLITS = {
    **dict.fromkeys(("ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"), ""),
    **dict.fromkeys(("BertPreTokenizer", "Whitespace", "WhitespaceSplit"), "keeps no spaces"),
    "CharDelimiterSplit": "keeps no delimiters",
    "FixedLength": "counts characters from the beginning of a text",
    "UnicodeScripts": "splits by script",
}


def reasons_for_text(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Why a tokenizer's ids have to be joined through text; empty where they are joined on ids.

    Raises:
        TokenizerError: Its decoder has a step that this version does not know.
    """
    tokenizer.token_bytes_of(())  # refuses such a decoder
    return tuple(dict.fromkeys(_reasons(tokenizer)))


def _reasons(tokenizer: Tokenizer) -> Iterator[str]:
    # Other normalizers are not run on text that comes out of ids; what they would change is lost to that side anyway.
    if tokenizer.has_step("ByteLevel", "normalizer"):
        yield "its normalizer ByteLevel writes bytes as signs before the text is split"
    splits, model = tokenizer.steps("pre_tokenizer"), tokenizer.spec["model"]["type"]
    for kind in (step["type"] for step in splits):
        if reason := _SPLITS.get(kind, "is not known to this version"):
            yield f"its pre_tokenizer {kind} {reason}"
    if model != "BPE":
        yield f"its model {model} does not merge pairs"
    yield from (f"it {limit}" for limit in unread(tokenizer))
    if any(step["type"] == "ByteLevel" for step in splits[:-1]):
        yield "its pre-tokenizer splits bytes"
