"""A look-up in a dictionary, explained: how the text was split, what is proposed after it, what would be drafted.

A dictionary knows contexts of tokens. A text that ends within a word may end in a token that no whole word has. Where
"▁trakcie" is one token, for example, no text has "▁trak" before "cie". So when nothing is found, the longer tokens that
begin with the last one are looked up as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from spectool import ArtifactError, TokenizerError
from spectool.artifacts.dictionary import MIN_PROBABILITY, Dictionary
from spectool.commands.console import say

if TYPE_CHECKING:
    from spectool.tokenization.tokenizer import Tokenizer

_PROPOSED = 8  # look-ups of a proposal that is shown
_COMPLETED = 3  # words that the last token may begin
_BELOW = f"below {MIN_PROBABILITY:.0%}, so not drafted by default"


class Speller:
    """The bytes of a dictionary's tokens, and how they are shown; ids where there is no tokenizer."""

    def __init__(self, dictionary: Dictionary, tokenizer: "Tokenizer | None") -> None:
        self.dictionary = dictionary
        self.tokenizer = tokenizer

    def bytes_of(self, tokens: Iterable[int]) -> list[bytes]:
        """The bytes of each of some tokens, without those of the whole vocabulary."""
        assert self.tokenizer is not None
        tokens = list(tokens)
        unknown = next((token for token in tokens if self.tokenizer.backend.id_to_token(token) is None), None)
        if unknown is not None:  # a manifest may say that there are more ids than there are
            raise ArtifactError(f"{self.dictionary.path}: token id {unknown} is none of {self.tokenizer.name}'s")
        return self.tokenizer.surfaces_of(tokens)

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens in a row."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return b"".join(self.bytes_of(tokens)).decode("utf-8", "replace")

    def split(self, tokens: Sequence[int]) -> str:
        """Tokens with the boundaries between them, such as ``▁w | ▁trak``; parts of characters as ``\\xd0``.

        Special tokens, which stand for no text, are named.
        """
        return " | ".join(
            _shown(raw) or str(self._name(token)) for token, raw in zip(tokens, self.bytes_of(tokens), strict=True)
        )

    def _name(self, token: int) -> str | None:
        """How tokenizer.json names a token, such as ``<unk>``."""
        assert self.tokenizer is not None
        return self.tokenizer.backend.id_to_token(token)

    @cached_property
    def known(self) -> Mapping[int, bytes]:
        """Every token of the dictionary with its bytes, the most frequent first."""
        alphabet = self.dictionary.alphabet.tolist()
        return dict(zip(alphabet, self.bytes_of(alphabet), strict=True))

    def line(self, context: Sequence[int], tokens: Sequence[int], probability: float) -> str:
        """An entry in a line, marked where its probability is below the default threshold."""
        mark = f"  {_BELOW}" if probability < MIN_PROBABILITY else ""
        return f"{self.text(context)!r} -> {self.text(tokens)!r}  ({probability:.0%}){mark}"

    def record(self, context: Sequence[int], tokens: Sequence[int], probability: float) -> dict[str, Any]:
        """The same for JSON."""
        text = {} if self.tokenizer is None else {"text": [self.text(context), self.text(tokens)]}
        return {"context": context, "continuation": tokens, "probability": probability, **text}


def sample(dictionary: Dictionary, lookup: str | None, count: int, source: str | None, as_json: bool) -> dict[str, Any]:
    """Sample entries, and the answer to ``--lookup``, spelled with the dictionary's tokenizer."""
    tokenizer = _tokenizer_of(dictionary, source, required=lookup is not None)
    speller = Speller(dictionary, tokenizer)
    facts = {} if lookup is None or tokenizer is None else explain(speller, lookup, as_json)
    step = max(1, len(dictionary) // max(1, count))
    chosen = map(dictionary.entry, range(0, len(dictionary), step)[:count])
    line = speller.record if as_json else speller.line
    facts["sample entries"] = [line(entry.context, entry.continuation, entry.probability) for entry in chosen]
    return facts


def _tokenizer_of(dictionary: Dictionary, source: str | None, required: bool) -> "Tokenizer | None":
    from spectool.tokenization.opening import open_named

    recorded = dictionary.tokenizer
    try:
        tokenizer = open_named(source, recorded, "the dictionary's")
    except TokenizerError:
        if source or required:
            raise
        say(f"{recorded['name']}: tokenizer not found, showing ids; give it with --tokenizer to see text")
        return None
    tokenizer.require(recorded, str(dictionary.path), f"spectool build-dict --tokenizer {tokenizer.name} …")
    return tokenizer


def explain(speller: Speller, text: str, as_json: bool) -> dict[str, Any]:
    """How a text is split and what a dictionary proposes after it, as facts in reading order."""
    assert speller.tokenizer is not None
    dictionary = speller.dictionary
    context = speller.tokenizer.encode_after_space([text])[0]
    match = dictionary.look_up(context)
    entry = speller.record if as_json else speller.line
    pieces = [{"id": token, "text": speller.text([token])} for token in context]
    split = f"{text.replace(' ', '␣')} → {speller.split(context) or 'none'}"
    facts: dict[str, Any] = {"tokens": pieces if as_json else split}
    if match is None:
        facts["lookup"] = None if as_json else "nothing"
        facts["reason"] = _reason(speller, text, context)
        if others := _other_look_ups(speller, context, as_json):
            facts["instead"] = others
    else:
        facts["lookup"] = entry(context[-match.length :], match.tokens, match.probability)
        if dictionary.chained:
            facts |= _proposal(speller, context, as_json)
    return facts


def _proposal(speller: Speller, context: Sequence[int], as_json: bool) -> dict[str, Any]:
    """What is proposed after ``context``, one look-up after the other, with the probability of all so far."""
    said, steps, probability = list(context), list[Any](), 1.0
    while len(steps) < _PROPOSED and (match := speller.dictionary.look_up(said)) is not None:
        said += match.tokens
        probability *= match.probability
        drafted = probability >= MIN_PROBABILITY
        steps.append({"text": speller.text(match.tokens), "probability": round(probability, 4), "drafted": drafted})
    if as_json:
        return {"proposal": steps, "min_probability": MIN_PROBABILITY}
    drafted_steps = [step for step in steps if step["drafted"]]
    rest = steps[len(drafted_steps) :]
    facts = {"proposal": _steps(drafted_steps) if drafted_steps else f"nothing: the first token is {_BELOW}"}
    if rest:
        facts["not drafted"] = f"{_steps(rest)}, {_BELOW}"
    return facts


def _steps(steps: Sequence[Mapping[str, Any]]) -> str:
    return f"{''.join(step['text'] for step in steps)!r}  ({steps[-1]['probability']:.0%} for all of it)"


def _reason(speller: Speller, text: str, context: Sequence[int]) -> str:
    """Say why nothing was found, and what to do."""
    if not context:
        return "the text has no token. Give one of some words"
    last = speller.split(context[-1:])
    assert speller.tokenizer is not None
    if context[-1] == speller.tokenizer.unknown:
        return "the tokenizer has no token for the end of the text. Give other words, as in the sample entries"
    if context[-1] in speller.tokenizer.specials:
        return f"the text ends in the special token {last}, which stands for no text. Give words after it"
    reason = f"no entry ends in {last}"
    if text != text.rstrip():
        return f"{reason}. Tokens begin with the space before a word: leave out the space at the end"
    longer = _completions(speller, context[-1])
    if longer:
        return (
            f"{reason}. The text may end within a word: the tokenizer writes longer words as {speller.split(longer)}, "
            "without that token. Give whole words"
        )
    if context[-1] in speller.known:
        return f"{reason}, since it was too rare at the end of a context. Give other words, as in the sample entries"
    return f"{reason}, which is not in the counted text, or was too rare. Give other words, as in the sample entries"


def _completions(speller: Speller, token: int) -> list[int]:
    """The most frequent tokens of the dictionary that a token is the beginning of, without its mark of a word's end."""
    begun = speller.bytes_of([token])[0].rstrip(b" ")
    longer = (
        other for other, known in speller.known.items() if known.startswith(begun) and known.rstrip(b" ") != begun
    )
    return list(islice(longer, _COMPLETED)) if begun else []


def _other_look_ups(speller: Speller, context: Sequence[int], as_json: bool) -> list[Any]:
    """Look up the text before its last token, and with that token completed."""
    entry = speller.record if as_json else speller.line
    if not context:
        return []
    found = []
    for other in (context[:-1], *([*context[:-1], longer] for longer in _completions(speller, context[-1]))):
        if other and (match := speller.dictionary.look_up(other)) is not None:
            found.append(entry(other[-match.length :], match.tokens, match.probability))
    return found


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace").replace(" ", "▁").replace("\n", "\\n").replace("\t", "\\t")
