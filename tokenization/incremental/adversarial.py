"""Texts on which joined ids are most likely to differ from the tokenizer's own."""

import random
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

from spectool.tokenization.tokenizer import Tokenizer

_TOKENS = 4000  # tokens drawn from the vocabulary
_RUNS = (1, 1, 1, 1, 2, 2, 3, 4, 5, 7, 9, 17)
_BLANKS = (" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\x85", "\ufeff")
_ENDINGS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")  # that the patterns of many tokenizers look for
_KINDS = "aAsSżжЖªǅʼ漢あ한ไא\u0301\u094d059٣²½Ⅷ.,!'’`\"-_/\\(){}<>|=#$€«—😀\x00\u0378\u200b\ufffd"
_LINE = 150  # characters of a real line


def adversarial_texts(tokenizer: Tokenizer, rng: random.Random, lines: Sequence[str] = ()) -> Iterator[str]:
    """Yield texts of up to a few hundred characters, without end; equal random numbers give equal texts.

    They are put together from characters of many kinds, the endings that patterns look for, the tokenizer's added
    tokens, and its tokens cut and glued. ``lines`` are real text to insert into; with none, all text is made up.
    """
    pools = [pool for pool in _pools(tokenizer, rng) if pool]

    def some() -> str:
        return rng.choice(rng.choice(pools))

    while True:
        kind = rng.randrange(7 if lines else 5)
        if kind == 0:  # a few things in turn, as runs
            few = [some() for _ in range(rng.randint(1, 3))]
            text = "".join(rng.choice(few) * rng.choice(_RUNS) for _ in range(rng.randint(1, 8)))
        elif kind == 1:  # one kind of thing
            text = "".join(rng.choices(rng.choice(pools), k=rng.randint(1, 14)))
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
    yield list(_BLANKS)
    planes = (0x80, 0x250, 0x600, 0x3000, 0x10000, 0x20000, 0x110000)  # common characters more often
    yield [char for _ in range(400) if unicodedata.category(char := chr(rng.randrange(rng.choice(planes)))) != "Cs"]
    patterns = (str(step.get("pattern", "")) for step in tokenizer.steps("pre_tokenizer"))
    yield list(dict.fromkeys("".join((_KINDS, *patterns))))  # a set would have another order in every process
    yield [variant for word in _ENDINGS for variant in (word, word.upper(), word * 2)]
    added = [token["content"] for token in tokenizer.spec["added_tokens"] if token["content"]]
    cuts = [(content, rng.randrange(len(content) + 1)) for content in rng.sample(added, min(200, len(added)))]
    yield [part for content, cut in cuts for part in (content, content[:cut], content[cut:], f" {content}") if part]
    longest = sorted(tokenizer.token_bytes, key=len, reverse=True)[:100]
    texts = [token.decode("utf-8", "ignore") for token in (*longest, *rng.choices(tokenizer.token_bytes, k=_TOKENS))]
    yield list(filter(None, texts))
    yield [one[len(one) // 2 :] + other[: rng.randrange(len(other) + 1)] for one, other in pairwise(texts)]
