"""How often first guesses are right on a text, in tokens of the target.

A drafter is asked at each place. A draft model that is not aligned yet reads each text in one pass, in its own tokens:

    text       Na przykład w Pols|ce
    draft      |Na| przy|kład| w| Polsce|      guesses   Na, przy, kład, w, Polsk
    right      ..bytes, up to the first that a guess has wrong, of every token of the draft
    target     |N|a| przyk|ład| w| Pol|sce|    right     where all bytes of the token are

So a draft that the target has committed within a token of the draft is taken to guess on from the token's beginning.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from spectool.measure.predict import Text
from spectool.runtime.drafters.drafter import Drafter
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.tokenizer import Tokenizer


def most_probable(model: Any, draft: Tokenizer, tokens: Sequence[int]) -> list[int]:
    """What a model guesses at each place of a text, given what is before it, and the BOS that it was trained with."""
    before = [0 if draft.roles.bos is None else draft.roles.bos]
    logits = model(mx.array([[*before, *tokens[:-1]]]))[0]
    return [int(token) for token in mx.argmax(logits, axis=-1)]


def right_guesses(model: Any, draft: Tokenizer, target: Tokenizer, texts: Iterable[str]) -> Iterator[bool]:
    """Yield for each token of texts in the target whether a draft model's first guess there is right.

    A text that one of the two tokenizers does not keep is left out.
    """
    for text in texts:
        data, ids, tokens = text.encode(), draft.encode(text), target.encode(text)
        if not ids or draft.bytes_of(ids) != data or target.bytes_of(tokens) != data:
            continue
        right = bytearray(len(data))
        for (start, end), guess in zip(_places(draft, ids, data), most_probable(model, draft, ids), strict=True):
            said = draft.token_bytes[guess] if guess < draft.size else b""
            same = common_prefix(said[-start:] if start < 0 else said, data[max(0, start) : end])
            right[max(0, start) : max(0, start) + same] = b"\1" * same
        yield from (all(right[max(0, start) : end]) for start, end in _places(target, tokens, data))


def right_proposals(drafter: Drafter, texts: Iterable[Text]) -> Iterator[bool]:
    """Yield for each token of texts whether the first token that a drafter proposes there is right."""
    for text in texts:
        drafter.start(text.prompt)
        for token in text.output:
            yield list(drafter.propose(1).tokens) == [token]
            drafter.commit((token,))


def share(right: Iterable[bool]) -> float:
    """The share of guesses that are right; 0 where there are none."""
    found = list(right)
    return sum(found) / max(1, len(found))


def _places(tokenizer: Tokenizer, ids: Sequence[int], data: bytes) -> list[tuple[int, int]]:
    """The bytes of a text that each token covers; a space that decoding removes lies before the text."""
    lengths = [len(tokenizer.token_bytes[token]) for token in ids]
    end, places = len(data) - sum(lengths), list[tuple[int, int]]()
    for length in lengths:
        places.append((end, end + length))
        end += length
    return places
