"""How often first guesses are right on a text, in tokens of the target.

A drafter is asked at each place. A draft model that is not aligned yet reads each text in one pass, in its own tokens:

    text       Na przykład w Pols|ce
    draft      |Na| przy|kład| w| Polsce|      guesses   Na, przy, kład, w, Polsk
    right      ..bytes, up to the first that a guess has wrong, of every token of the draft
    target     |N|a| przyk|ład| w| Pol|sce|    right     where all bytes of the token are

So a draft that the target has committed within a token of the draft is taken to guess on from the token's beginning.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any

import mlx.core as mx

from spectool.corpora import open_corpus
from spectool.measure.predict import Text
from spectool.runtime.drafters.drafter import Drafter
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.tokenizer import Tokenizer

_TEXTS, _LENGTH = 8, 600  # passages of a text that a draft model is tried on, and characters of each


def passages(spec: str) -> list[str]:
    """Beginnings of the documents of a corpus, few enough for a draft model to read in seconds."""
    return [document[:_LENGTH] for document in islice(open_corpus(spec), _TEXTS)]


def most_probable(model: Any, draft: Tokenizer, tokens: Sequence[int]) -> list[int]:
    """What a model guesses at each place of a text, given what is before it, and the BOS that it was trained with."""
    return [int(token) for token in mx.argmax(_logits(model, draft, tokens), axis=-1)]


def guesses(model: Any, draft: Tokenizer, texts: Iterable[str]) -> dict[str, float]:
    """How a draft model guesses each token of texts in its own tokenizer.

    The number of ``places``, the mean probability that it ``said`` of its guess, and the share that is ``right``.
    """
    places, said, right = 0, 0.0, 0
    for text in texts:
        if ids := draft.encode(text):
            logits = _logits(model, draft, ids).astype(mx.float32)
            sure, found = mx.softmax(logits, axis=-1).max(axis=-1), mx.argmax(logits, axis=-1)
            places, said = places + len(ids), said + float(sure.sum())
            right += int((found == mx.array(ids)).sum())
    return {"places": places, "said": round(said / max(1, places), 4), "right": round(right / max(1, places), 4)}


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


def _logits(model: Any, draft: Tokenizer, tokens: Sequence[int]) -> mx.array:
    """Logits [tokens, vocabulary] for each token of a text, of which there is one at least."""
    before = [0 if draft.roles.bos is None else draft.roles.bos]
    found: mx.array = model(mx.array([[*before, *tokens[:-1]]]))[0]
    return found


def _places(tokenizer: Tokenizer, ids: Sequence[int], data: bytes) -> list[tuple[int, int]]:
    """The bytes of a text that each token covers; a space that decoding removes lies before the text."""
    lengths = [len(tokenizer.token_bytes[token]) for token in ids]
    return list(pairwise(accumulate(lengths, initial=len(data) - sum(lengths))))
