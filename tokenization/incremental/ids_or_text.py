"""Whether a tokenizer's ids are joined on ids (`by_ids`) or through text (`by_text`), and why.

Here are the reasons that can be told from its steps, and those for which text does not come back, which the check of
`spectool align` leaves out. Others, such as added tokens that its model cannot spell, are found by the check.
"""

from collections.abc import Iterator
from itertools import islice

from spectool import TokenizerError
from spectool.tokenization.fingerprint import PROBES
from spectool.tokenization.round_trips import unread
from spectool.tokenization.tokenizer import Tokenizer

# Kinds of pre-tokenizers, and why a side with one goes through text; empty where ids are joined.
_SPLITS = {
    **dict.fromkeys(("ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"), ""),
    **dict.fromkeys(("BertPreTokenizer", "Whitespace", "WhitespaceSplit"), "keeps no spaces"),
    "CharDelimiterSplit": "keeps no delimiters",
    "UnicodeScripts": "splits by script",
}


def reasons_for_text(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Why a tokenizer's ids have to be joined through text; empty where they are joined on ids.

    Raises:
        TokenizerError: Its decoder has a step that this version does not know, or its text can be followed in no way.
    """
    tokenizer.token_bytes_of(())  # refuses such a decoder
    if tokenizer.has_step("FixedLength", "pre_tokenizer"):
        raise TokenizerError(
            f"{tokenizer.name}: its pre_tokenizer FixedLength counts characters from the beginning of a text, so that "
            "drafts cannot be translated. Use a tokenizer without this step"
        )
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
    # What is lost is in no text that the check compares.
    if any(step.get("behavior") == "Removed" for step in splits) and tokenizer.loses_text("".join(PROBES)):
        yield "its pre-tokenizer removes what it splits at"
    if any(step["type"] == "ByteLevel" for step in splits[:-1]):
        yield "its pre-tokenizer splits bytes"
    yield from islice(_decoded_otherwise(tokenizer), 1)


def _decoded_otherwise(tokenizer: Tokenizer) -> Iterator[str]:
    # As ``the`` to ``▁the``, an added token where the normalizer prepends ``▁``, or one with the id of another token.
    added = {token["id"] for token in tokenizer.spec["added_tokens"]}
    added -= {index for index in tokenizer.specials if not tokenizer.running_bytes[index]}
    for name, index in sorted(item for item in tokenizer.vocabulary.items() if item[1] in added):
        decoded = tokenizer.backend.id_to_token(index)
        if tokenizer.backend.model.token_to_id(name) == index and decoded != name:
            yield f"its token {name!r} decodes as {decoded!r}"
