"""Texts on which ids joined by table are most likely to differ from the tokenizer's own, without end.

Derived from the tokenizer alone. They are made of characters of every class that its pre-tokenizer tells apart, and of
the literal words and counts of its patterns. They have its added tokens, its tokens cut and glued, and what it has no
token for.
"""

import random
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from spectool import TokenizerError
from spectool.tokenization.incremental.alphabet import alphabet_of, parts_of
from spectool.tokenization.incremental.pretokens import spelled
from spectool.tokenization.surfaces import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

_MEMBERS = 12  # characters drawn from each class
_TOKENS = 4000  # tokens drawn from the vocabulary
_GAPS = 60  # characters drawn that have no token of their own
_RUNS = (1, 1, 1, 1, 2, 2, 3, 4, 5, 7, 9, 17)
_BLANKS = (" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\x85", "\ufeff")
_LINE = 150  # characters of a real line


def adversarial_texts(tokenizer: Tokenizer, rng: random.Random, lines: Sequence[str] = ()) -> Iterator[str]:
    """Yield texts of up to a few hundred characters, without end; the same ones for the same random numbers.

    ``lines`` are real text to insert into; none for made text alone.
    """
    pools = [pool for pool in _pools(tokenizer, rng) if pool]
    everything = [*pools, list(_BLANKS)]

    def some() -> str:
        return rng.choice(rng.choice(everything))

    while True:
        kind = rng.randrange(7 if lines else 5)
        if kind == 0:  # a few things in turn, as runs
            few = [some() for _ in range(rng.randint(1, 3))]
            text = "".join(rng.choice(few) * rng.choice(_RUNS) for _ in range(rng.randint(1, 8)))
        elif kind == 1:  # one kind of thing
            text = "".join(rng.choices(rng.choice(everything), k=rng.randint(1, 14)))
        elif kind <= 4:
            text = "".join(some() for _ in range(rng.randint(1, 14)))
        else:  # a real line with insertions
            line = rng.choice(lines)
            at = rng.randrange(max(1, len(line) - _LINE))
            pieces = list(line[at : at + _LINE])
            for _ in range(rng.randint(0, 6)):
                pieces.insert(rng.randrange(len(pieces) + 1), some())
            text = "".join(pieces)
        yield text[: 4 * _LINE]


def _pools(tokenizer: Tokenizer, rng: random.Random) -> Iterator[list[str]]:
    """Yield what texts are put together from, one kind of thing in each list."""
    yield from _of_patterns(tokenizer, rng)
    added = [token["content"] for token in tokenizer.spec["added_tokens"] if token["content"]]
    cuts = [(content, rng.randrange(len(content) + 1)) for content in rng.sample(added, min(200, len(added)))]
    yield [part for content, cut in cuts for part in (content, content[:cut], content[cut:], f" {content}") if part]
    yield list(_tokens_cut_and_glued(tokenizer, rng))
    yield list(_gaps(tokenizer, rng))


def _of_patterns(tokenizer: Tokenizer, rng: random.Random) -> Iterator[list[str]]:
    try:
        alphabet = alphabet_of(tokenizer)
        parts = parts_of(tokenizer.steps("pre_tokenizer"))
    except TokenizerError:  # a side that goes through text
        yield list(_characters(rng, 400))
        return
    by_class = []
    for number in range(alphabet.size):
        ranges = alphabet.members(number)
        ends = [chr(code) for run in ranges[:3] for code in (run[0], run[-1])]
        by_class.append([*ends, *(chr(rng.choice(rng.choice(ranges))) for _ in range(_MEMBERS))])
    yield [char for members in by_class for char in members]
    yield [rng.choice(members) * count for members in by_class for count in range(2, 2 * parts.repeats + 3)]
    words = ["".join(rng.choice(by_class[n]) for n in word) for word in spelled(parts.words, alphabet) for _ in "123"]
    yield [variant for word in words for variant in (word, word[:-1], word[1:], word * 2)]
    yield list(_characters(rng, 100))


def _tokens_cut_and_glued(tokenizer: Tokenizer, rng: random.Random) -> Iterator[str]:
    """Yield tokens, the longest among them, and the end of one with the beginning of another."""
    by_length = sorted(tokenizer.surfaces, key=len, reverse=True)[:100]
    drawn = [*by_length, *rng.choices(tokenizer.surfaces, k=_TOKENS)]
    texts = [surface.decode("utf-8", "ignore") for surface in drawn]
    for one, other in pairwise(texts):
        yield one
        yield one[rng.randrange(len(one) + 1) :] + other[: rng.randrange(len(other) + 1)]


def _gaps(tokenizer: Tokenizer, rng: random.Random) -> Iterator[str]:
    """Yield characters that have no token, and those with a byte that has none."""
    whole = {surface for surface in tokenizer.surfaces if surface}
    missing = {byte for symbol, byte in byte_symbols().items() if symbol not in tokenizer.vocabulary}
    without = (char for char in _characters(rng, 100_000) if char.encode() not in whole)
    yield from islice(without, _GAPS)
    if 0 < len(missing) < 128:
        spelled = (char for char in _characters(rng, 10_000) if missing.intersection(char.encode()))
        yield from (chr(byte) for byte in missing if byte < 0x80)
        yield from islice(spelled, _GAPS)


def _characters(rng: random.Random, count: int) -> Iterator[str]:
    """Yield characters of all planes, the common ones more often, and no surrogates."""
    for _ in range(count):
        top = rng.choice((0x80, 0x250, 0x600, 0x3000, 0x10000, 0x20000, 0x110000))
        char = chr(rng.randrange(top))
        if unicodedata.category(char) != "Cs":
            yield char
