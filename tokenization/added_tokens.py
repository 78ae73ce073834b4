"""Added tokens, which are cut out of a text before anything else: where one could be, and what it does around it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from spectool.tokenization.surfaces import Surfaces
from spectool.tokenization.tokenizer import Tokenizer

_WRITTEN = "writes a space after"


class AddedTokens:
    """The added tokens of one tokenizer, as byte strings that may arise across ids.

    Attributes:
        longest: Bytes of the longest; 0 where there are none.
        touches: Token -> whether an added token could begin in it, or go on through all of it. It is remembered.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Find them in ``tokenizer``."""
        self._surfaces, self._leading = tokenizer.spelled, tokenizer.edges.leading_space
        added = {token: text.encode() for token, text in tokenizer.in_text.items()}
        # A space that is put before every text becomes part of a normalized token, and is not put before the others.
        names = {token["id"]: token["content"] for token in tokenizer.spec["added_tokens"]}
        self._alone = tuple(text.encode() for token, text in tokenizer.in_text.items() if text == names[token])
        self._ids = frozenset(added)
        self._contents = contents = frozenset(added.values())
        self.longest = max(map(len, contents), default=0)
        self._openings = frozenset(content[:end] for content in contents for end in range(1, len(content) + 1))
        # Whether each id has a byte with which one begins.
        text, firsts = Surfaces.of(self._surfaces), [content[0] for content in contents]
        before = np.append(0, np.cumsum(np.isin(text.blob, firsts), dtype=np.int32))
        self._opening = bytes(before[text.offsets[1:]] > before[text.offsets[:-1]])
        self._inside = b"\0".join(contents)
        self.touches = cache(self._could_touch)

    def __contains__(self, token: int) -> bool:
        """Whether this is an added token."""
        return token in self._ids

    def _could_touch(self, token: int) -> bool:
        surface = self._surfaces[token]
        begins = any(surface[i:] in self._openings for i in range(len(surface)))
        return begins or (bool(self._contents) and surface in self._inside)

    def may_span(self, ids: Sequence[int], at: int, begin: int) -> bool:
        """Whether an added token could begin in ``ids[begin:at]`` and not have ended there."""
        if at <= begin or not self.touches(ids[at - 1]):
            return False
        return any(map(self._opening.__getitem__, ids[max(begin, at - self.longest) : at]))

    def span(self, ids: Sequence[int], at: int, after: int, begin: int) -> bool:
        """Whether one could begin in ``ids[begin:at]`` and go on in the id ``after`` these."""
        if not self.may_span(ids, at, begin):
            return False
        tail = self._tail(ids, at, begin)
        reach = tail + self._surfaces[after][:1]
        return any(reach[i:] in self._openings for i in range(len(tail)))

    def end_in(self, ids: Sequence[int], data: bytes, begin: int) -> bool:
        """Whether an added token ends within ``data``, which follows ``ids[begin:]``."""
        if not self._contents:
            return False
        tail = self._tail(ids, len(ids), begin)
        reach = tail + data
        for start in range(len(reach)):
            for end in range(start + 1, len(reach) + 1):
                if reach[start:end] not in self._openings:
                    break
                if end > len(tail) and reach[start:end] in self._contents:
                    return True
        return False

    def at_start(self, data: bytes) -> bytes:
        """The bytes of a whole text without the space put before it, where an added token begins it."""
        begins = self._leading and data.startswith(self._alone, 1)
        return data.removeprefix(b" ") if begins else data

    def _tail(self, ids: Sequence[int], at: int, begin: int) -> bytes:
        """As many bytes before ``ids[at]`` as an added token can reach back."""
        tail = b""
        while at > begin and len(tail) < self.longest:
            at -= 1
            tail = self._surfaces[ids[at]] + tail
        return tail


def effects(tokenizer: Tokenizer, added: Iterable[Mapping[str, Any]], adds_space: bool) -> Iterator[tuple[str, str]]:
    """Yield each change that an added token makes to a text that contains it: what is done, and to which token.

    What stands around an added token is tokenized as texts of their own, and the token may take spaces with it. What
    comes of that is seen by trying each token between two letters.

    Args:
        tokenizer: A tokenizer that keeps spaces, and does not stop at text that it has no token for.
        added: Entries of the ``added_tokens`` of its `spec`; special tokens are passed over.
        adds_space: Whether it writes a space before every text, which then need not be said of what follows a token.
    """
    ordinary = [token for token in added if token["id"] not in tokenizer.specials]
    around = max((_kept(tokenizer, letter, adds_space) for letter in "aeo"), key=len)  # a letter may be a token itself
    texts = [[text[:-1] + token["content"] + text[1:] for token in ordinary] for text in around]
    surfaces, encoded = tokenizer.surfaces_of(token["id"] for token in ordinary), map(tokenizer.encode_batch, texts)
    for token, surface, *tried in zip(ordinary, surfaces, *encoded, strict=True):
        index, name, text = token["id"], token["content"], surface.decode("utf-8", "replace")
        if index in tokenizer.redecoded or text.strip(" ") not in _spellings(tokenizer, name):
            yield "decodes", f"{name!r} as {text!r}"
            continue
        if tokenizer.space_sign in name and tokenizer.space_sign != " ":
            continue
        strips = {"drops white space before": token["lstrip"], "drops white space after": token["rstrip"]}
        found = {effect: None for effect, flag in strips.items() if flag}
        for letters, ids in zip(around, tried, strict=True):
            if index in ids:
                written = letters[:-1] + name + letters[1:]
                found |= dict.fromkeys(_changes(_restored(tokenizer, ids, adds_space), text.strip(), written))
        yield from ((effect, repr(name)) for effect in found if effect != _WRITTEN or not adds_space)


def _kept(tokenizer: Tokenizer, letter: str, adds_space: bool) -> list[str]:
    """The texts of two letters, with nothing or white space between them, that the tokenizer keeps."""
    texts = [letter + space + letter for space in ("", " ", "\n")]
    restored = (_restored(tokenizer, ids, adds_space) for ids in tokenizer.encode_batch(texts))
    return [text for text, found in zip(texts, restored, strict=True) if text == found]


def _restored(tokenizer: Tokenizer, ids: list[int], adds_space: bool) -> str:
    return tokenizer.bytes_of(ids).decode("utf-8", "replace").removeprefix(" " * adds_space)


def _changes(restored: str, token: str, written: str) -> Iterator[str]:
    """Yield what has changed around a token, where ``written`` became ``restored``."""
    if not token:  # its own white space cannot be told from what is around it
        if len(restored) != len(written):
            yield _WRITTEN if len(restored) > len(written) else "drops white space around"
        return
    left, found, right = restored[1:-1].partition(token)
    before, _, after = written[1:-1].partition(token)
    if found and len(left) != len(before):
        yield "writes a space before" if len(left) > len(before) else "drops white space before"
    if found and len(right) != len(after):
        yield _WRITTEN if len(right) > len(after) else "drops white space after"


def _spellings(tokenizer: Tokenizer, name: str) -> set[str]:
    """The text of a token as it is written and as it is normalized, without spaces at its ends."""
    normalizer = tokenizer.backend.normalizer
    texts = {name, name if normalizer is None else normalizer.normalize_str(name)}
    return {text.replace(tokenizer.space_sign, " ").strip(" ") for text in texts}
