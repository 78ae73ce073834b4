"""Sample entries of a dictionary, and an explained look-up: how the text was split and what would be drafted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spectool import ArtifactError, TokenizerError
from spectool.artifacts.dictionary import MIN_PROBABILITY, Dictionary
from spectool.commands.shared.console import say

if TYPE_CHECKING:
    from spectool.tokenization.tokenizer import Tokenizer

_PROPOSED = 8  # most look-ups of a proposal that is shown
_BELOW = f"below {MIN_PROBABILITY:.0%}, so not drafted by default"


class DictionaryText:
    """The tokens of a dictionary as text, or as ids if its tokenizer is not there."""

    def __init__(self, dictionary: Dictionary, tokenizer: "Tokenizer | None") -> None:
        self.dictionary = dictionary
        self.tokenizer = tokenizer

    def bytes_of(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each token."""
        assert self.tokenizer is not None
        unknown = next((token for token in tokens if self.tokenizer.backend.id_to_token(token) is None), None)
        if unknown is not None:  # the manifest may say that there are more ids than there are
            raise ArtifactError(
                f"{self.dictionary.path}: token id {unknown} is not in {self.tokenizer.name}'s vocabulary"
            )
        return self.tokenizer.token_bytes_of(tokens)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of consecutive tokens."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return b"".join(self.bytes_of(tokens)).decode("utf-8", "replace")

    def split(self, tokens: Sequence[int]) -> str:
        """Tokens with the boundaries between them, such as ``▁w | ▁trak``; special tokens are named."""
        assert self.tokenizer is not None
        name = self.tokenizer.backend.id_to_token
        shown = zip(tokens, map(_shown, self.bytes_of(tokens)), strict=True)
        return " | ".join(text or str(name(token)) for token, text in shown)

    def entry(self, context: Sequence[int], token: int, probability: float, as_json: bool) -> Any:
        """An entry in a line, or as a JSON object."""
        if as_json:
            text = {} if self.tokenizer is None else {"text": [self.text(context), self.text([token])]}
            return {"context": context, "token": token, "probability": probability, **text}
        mark = f"  {_BELOW}" if probability < MIN_PROBABILITY else ""
        return f"{self.text(context)!r} -> {self.text([token])!r}  ({probability:.0%}){mark}"


def sample(dictionary: Dictionary, lookup: str | None, count: int, source: str | None, as_json: bool) -> dict[str, Any]:
    """Facts about some entries, and about the look-up of a text; ``source`` is the tokenizer, if it has moved."""
    tokenizer = _tokenizer_of(dictionary, source, required=lookup is not None)
    words = DictionaryText(dictionary, tokenizer)
    facts = {} if lookup is None else explain(words, lookup, as_json)
    step = max(1, len(dictionary) // max(1, count))
    chosen = map(dictionary.entry, range(0, len(dictionary), step)[:count])
    facts["sample entries"] = [words.entry(entry.context, entry.token, entry.probability, as_json) for entry in chosen]
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


def explain(words: DictionaryText, text: str, as_json: bool) -> dict[str, Any]:
    """Facts about how a text is split and what the dictionary proposes after it."""
    assert words.tokenizer is not None
    context = words.tokenizer.encode_after_space([text])[0]
    pieces = [{"id": token, "text": words.text([token])} for token in context]
    split = f"{text.replace(' ', '␣')} → {words.split(context) or 'none'}"
    facts: dict[str, Any] = {"tokens": pieces if as_json else split}
    if match := words.dictionary.look_up(context):
        facts["lookup"] = words.entry(context[-match.length :], match.token, match.probability, as_json)
        return facts | _proposal(words, context, as_json)
    return facts | {"lookup": None if as_json else "nothing", "reason": _reason(words, text, context)}


def _proposal(words: DictionaryText, context: Sequence[int], as_json: bool) -> dict[str, Any]:
    """What successive look-ups propose after ``context``, with the probability of everything so far."""
    tokens, steps, probability = list(context), list[Any](), 1.0
    while len(steps) < _PROPOSED and (match := words.dictionary.look_up(tokens)) is not None:
        tokens.append(match.token)
        probability *= match.probability
        drafted = probability >= MIN_PROBABILITY
        steps.append({"text": words.text([match.token]), "probability": round(probability, 4), "drafted": drafted})
    if as_json:
        return {"proposal": steps, "min_probability": MIN_PROBABILITY}
    drafts = [step for step in steps if step["drafted"]]
    facts = {"proposal": _steps(drafts) if drafts else f"nothing: the first token is {_BELOW}"}
    if rest := steps[len(drafts) :]:
        facts["not drafted"] = f"{_steps(rest)}, {_BELOW}"
    return facts


def _steps(steps: Sequence[Mapping[str, Any]]) -> str:
    return f"{''.join(step['text'] for step in steps)!r}  ({steps[-1]['probability']:.0%} for all of it)"


def _reason(words: DictionaryText, text: str, context: Sequence[int]) -> str:
    """Why nothing was found, and what to do."""
    if not context:
        return "the text has no token. Give a text of some words"
    last = words.split(context[-1:])
    assert words.tokenizer is not None
    if context[-1] == words.tokenizer.unknown:
        return "the tokenizer has no token for the end of the text. Give other words, as in the sample entries"
    if context[-1] in words.tokenizer.specials:
        return f"the text ends in the special token {last}, which stands for no text. Give words after it"
    if text != text.rstrip():
        return f"no entry ends in {last}. Tokens begin with the space before a word: leave out the space at the end"
    return (
        f"no entry ends in {last}: it is too rare in the counted text, or no whole word ends in it. Give whole words, "
        "as in the sample entries"
    )


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace").replace(" ", "▁").replace("\n", "\\n").replace("\t", "\\t")
