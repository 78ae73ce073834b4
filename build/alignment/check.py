"""Compares joined ids with the ids that the tokenizers themselves write.

Generation joins committed text in ids of the draft, and proposals in ids of the target, so that is what is compared:

    draft     | O |'| Ne | ill |       target tokens, committed one by one: after each, the ids joined so far are those
              [O]['][Ne]               that the draft's tokenizer writes for "O'Ne"
    target    [O] | ['][Neill]         committed ids stay; a draft's tokens joined to them go on as the target does

The texts are pieces of the sample and texts that are made to be hard to join. Where a tokenizer does not keep the bytes
of a text, there is nothing to compare.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from spectool.artifacts.alignment import JoinCheck
from spectool.build.alignment.replayed_text import Written, pieces, written
from spectool.tokenization.incremental.adversarial import adversarial_texts
from spectool.tokenization.incremental.by_ids import IncrementalEncoder
from spectool.tokenization.incremental.by_text import TailReencoder, whole_characters
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.incremental.translated_text import TranslatedText
from spectool.tokenization.tokenizer import Tokenizer

_DRAFTED = 4  # source tokens that are joined behind committed ids
_TEXTS = 400  # made from each tokenizer
_LONGEST = 160  # characters of one: each of its prefixes is encoded
_SHOWN, _BEFORE = 2, 24  # ids of an example on either side of the first difference, and characters before them
_Places = Iterator[tuple[Sequence[int], Sequence[int]]]


def hard_texts(draft: Tokenizer, target: Tokenizer, seed: int, lines: Sequence[str] = ()) -> list[str]:
    """Lines, and texts that are hard to join for either tokenizer; equal arguments give equal texts."""
    made = (adversarial_texts(tokenizer, random.Random(seed), lines) for tokenizer in (draft, target))
    return [text[:_LONGEST] for texts in (lines, *made) for text in islice(texts, _TEXTS)]


def check_joins(
    role: str, source: Tokenizer, other: Tokenizer, encoder: IncrementalEncoder, texts: Sequence[str]
) -> JoinCheck:
    """Where ids of ``other``, joined by its ``encoder``, differ from its own encoding, at every place of short texts.

    The ``role`` of ``other`` says what is compared: of ``draft`` committed text, of ``target`` proposals.
    """
    found, both = JoinCheck(), zip(texts, written(source, texts), written(other, texts), strict=True)
    kept = [(text.encode(), ends, theirs) for text, (ids, ends), theirs in both if ids and ends is not None]
    beginnings = dict.fromkeys(data[:end] for data, ends, _ in kept for end in ends)
    whole = [data for data in beginnings if whole_characters(data) == len(data)]
    spelled = zip(whole, written(other, [data.decode() for data in whole]), strict=True)
    expected = {data: ids for data, (ids, ends) in spelled if ends is not None}
    for data, ends, theirs in kept:
        try:
            if role == "draft":
                places = _committed(data, ends, expected, TranslatedText(encoder, other.leading_space))
            else:
                places = _proposed(data, ends, theirs, expected, encoder)
            for joined, right in places:
                found.places += 1
                if list(joined) != list(right):
                    found.different += 1
                    found.example = found.example or _difference(joined, right, other.token_bytes)
        except Exception as error:  # any of them means that the side does not work
            found.places += 1
            found.different += 1
            found.example = found.example or f"{data.decode()!r}: {type(error).__name__}: {error}"
    return found


def _committed(
    data: bytes, ends: Sequence[int], expected: Mapping[bytes, list[int]], joined: TranslatedText
) -> _Places:
    """Yield the ids after each token of a text, joined and expected."""
    for end, piece in pieces(data, ends):
        joined.append(piece)
        # Of nothing but an artificial space there is no text to encode.
        if end and (right := expected.get(data[:end])) is not None:
            yield joined.ids, right


def _proposed(
    data: bytes, ends: Sequence[int], other: Written, expected: Mapping[bytes, list[int]], encoder: IncrementalEncoder
) -> _Places:
    """Yield what a draft says after each of the other's ids, joined and expected, where the earlier ids stay."""
    committed, places = other
    for count, start in enumerate(places[:-1] if places else (), 1):
        first = bisect_right(ends, start)
        end = ends[min(first + _DRAFTED, len(ends)) - 1]
        right = expected.get(data[:end], [])
        if not start or not right or right[:count] != committed[:count] or whole_characters(data[:start]) < start:
            continue
        if isinstance(encoder, TailReencoder):
            yield encoder.encode_after(data[:start], data[start:end]), right[count:]
        else:
            yield encoder.join(committed[:count], data[start:end], count)[1], right[count:]


def _difference(found: Sequence[int], expected: Sequence[int], token_bytes: Sequence[bytes]) -> str:
    """The tokens around the first difference of two lists of ids, and the text before them."""
    place = common_prefix(found, expected)
    first, end = max(0, place - _SHOWN), place + _SHOWN + 1

    def show(ids: Sequence[int]) -> str:
        shown = (f"{token} {token_bytes[token].decode('utf-8', 'backslashreplace')!r}" for token in ids[first:end])
        return "[" + ", ".join(shown) + (", …" if len(ids) > end else "") + "]"

    before = b"".join(token_bytes[token] for token in expected[:first]).decode("utf-8", "replace")[-_BEFORE:]
    return f"after {before!r} the tokenizer writes {show(expected)}, joined are {show(found)}"
