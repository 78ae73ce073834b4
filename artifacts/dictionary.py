"""The dictionary format: context tokens -> next token, by longest known suffix.

    contexts      uint8[bytes]      a marisa trie: reversed contexts, each a string of symbols -> entry id
    alphabet      uint32[symbols]   token id of each symbol, most frequent first
    next_token    uint16[entries]   number of the next token's symbol; uint32 for more than 65,536 symbols
    probability   uint8[entries]    (value + 1) / 256

A symbol is a code point: the n-th most frequent token is U+0001 + n, without surrogates, so that common tokens take one
byte of UTF-8. Contexts are stored newest token first, so that one walk down the trie along the reversed history meets
every known suffix, the longest last. Opening builds nothing, because the state of a sequence is its newest symbols and
every look-up walks in the mapped file. It does check that no walk and no index leads outside the file, because a
dictionary may come from anyone, with a matching checksum.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import marisa_trie
import numpy as np
from numpy.typing import NDArray

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.artifact import Artifact
from spectool.artifacts.container import typed
from spectool.artifacts.marisa_check import check_trie

DictionaryStep: TypeAlias = tuple[int, float, bytes]
"""A next token, its probability, and the state after it."""
START = b""
"""The state of an empty sequence, and of one whose tokens are in no context."""
_FIRST_SURROGATE, _SURROGATES = 0xD800, 0x800
_SYMBOLS = 0x10FFFF - _SURROGATES - 1  # code points but NUL and the last, which is no token's
_CONTEXT_TRIES = 3  # nested tries, a tenth smaller than one
PROBABILITY_STEP = 1 / 256  # closer probabilities are stored as the same
_LONGEST = 64  # tokens of a context
MIN_PROBABILITY = 0.2
"""Default threshold for the probability of a whole proposal, with vLLM."""
_LONGEST_SYMBOL = 4  # bytes
_REMEMBERED = 1 << 14  # symbols
UNKNOWN_SYMBOL = "\U0010ffff".encode()  # stands for tokens outside the alphabet; no context contains it


class Match(NamedTuple):
    """What a look-up found."""

    token: int  # id to propose
    probability: float  # of this token in the corpus, in steps of 1/256
    length: int  # number of context tokens that matched


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a dictionary."""

    context: Sequence[int]  # token ids, oldest first
    token: int  # id to propose after it
    probability: float  # of this token, 0..1


class Dictionary(Artifact):
    """An open dictionary, memory-mapped and read-only.

    Attributes:
        alphabet: Ids of all tokens in it; uint32, most frequent first.
        max_context: Length of the longest context in tokens; a look-up needs no more history.
    """

    format, version, roles = "spectool-dictionary", 6, ("target",)
    again = "Build the dictionary again"
    rebuild = "spectool build-dict --tokenizer {target} {sources} -o {path}"

    def __init__(self, path: Path) -> None:
        """Open the dictionary at ``path`` and check everything that look-ups rely on (`marisa_check`)."""
        super().__init__(path)
        self.alphabet = self._array("alphabet", "uint32")
        self._mapped = self._array("contexts", "uint8")  # kept: the trie does not hold what it walks in
        self._contexts = self._open_contexts()
        self._prefixes, self._key_id = self._contexts.prefixes, self._contexts.key_id
        size, symbols = len(self._contexts), len(self.alphabet)
        # Single elements are read faster from memoryviews than from numpy arrays; nothing is copied.
        self._next_token = self._array("next_token", _rank_type(symbols), size).data
        self._probability = self._array("probability", "uint8", size).data
        self.max_context: int = self.manifest.statistics.get("max_context", 0)
        fits = type(self.max_context) is int and 1 <= self.max_context <= _LONGEST
        self._expect(fits, f"max_context is {self.max_context!r}, expected 1 to {_LONGEST} tokens")
        self._reach = self.max_context * _LONGEST_SYMBOL
        ranks = np.argsort(self.alphabet).astype(np.uint32)
        ids = self.alphabet[ranks]
        self._tokens, self._ranks, self._ids = self.alphabet.data, ranks.data, ids.data  # by rank, and by token id
        self._check_ids("alphabet", self.alphabet, self.tokenizer["size"], "token ids outside the vocabulary")
        differ = bool((ids[1:] != ids[:-1]).all())
        self._expect(differ and symbols < _SYMBOLS, "token ids repeat", "alphabet")
        self._check_ids("next_token", np.asarray(self._next_token), symbols, "numbers outside the alphabet")
        self._symbol = lru_cache(_REMEMBERED)(self._symbol_of)

    def _check_ids(self, array: str, ids: NDArray[Any], above: int, problem: str) -> None:
        self._expect(not len(ids) or int(ids.max()) < above, problem, array)

    def _open_contexts(self) -> Any:
        try:
            if self._mapped.ctypes.data % 8:
                raise ValueError("does not begin at a multiple of 8")
            check_trie(self._mapped, _LONGEST * _LONGEST_SYMBOL)
            return marisa_trie.BinaryTrie().map(self._mapped)
        except (RuntimeError, ValueError) as error:
            raise ArtifactError(f"{self.path}: contexts: not a readable marisa trie ({error}). {self.again}") from error

    def __len__(self) -> int:
        return len(self._next_token)

    @property
    def tokenizer(self) -> Mapping[str, Any]:
        """The manifest's entry of the tokenizer that it was built for."""
        return self.manifest.tokenizers["target"]

    def look_up(self, tokens: Sequence[int]) -> Match | None:
        """The longest known suffix of token ids, oldest first; None if none is known.

        `advance` and `step` do the same as a sequence grows.
        """
        newest_first = tokens[: -self.max_context - 1 : -1]
        known = self._prefixes(b"".join(map(self._symbol, newest_first)))
        if not known:
            return None
        length = len(known[-1].decode(errors="replace"))  # the key may end within a symbol
        return Match(*self._proposal(self._key_id(known[-1])), length)

    def advance(self, state: bytes, token: int) -> bytes:
        """The state after one more token id: symbols, newest first, of which the last may be cut off."""
        return (self._symbol(token) + state)[: self._reach]

    def step(self, state: bytes) -> DictionaryStep | None:
        """The next token by the longest context that a sequence with this state ends with, None without one."""
        known = self._prefixes(state)
        if not known:
            return None
        token, probability = self._proposal(self._key_id(known[-1]))
        return token, probability, (self._symbol(token) + state)[: self._reach]

    def entry(self, row: int) -> Entry:
        """The entry with a number from 0 to ``len(self) - 1``."""
        return Entry(self._context(self._contexts.restore_key(row)), *self._proposal(row))

    def _proposal(self, row: int) -> tuple[int, float]:
        return self._tokens[self._next_token[row]], (self._probability[row] + 1) * PROBABILITY_STEP

    def _symbol_of(self, token: int) -> bytes:
        place = bisect_left(self._ids, token)
        known = place < len(self._ids) and self._ids[place] == token
        return symbol(self._ranks[place]).encode() if known else UNKNOWN_SYMBOL

    def _context(self, key: bytes) -> tuple[int, ...]:
        """The token ids of a key, oldest first."""
        try:
            return tuple(map(self._token_of, reversed(key.decode())))
        except (UnicodeDecodeError, IndexError) as error:
            raise ArtifactError(f"{self.path}: contexts: {error}. {self.again}") from error

    def _token_of(self, char: str) -> int:
        code = ord(char)
        rank = code - 1 if code < _FIRST_SURROGATE else code - 1 - _SURROGATES
        if not 0 <= rank < len(self._tokens):
            raise IndexError("a symbol is not in the alphabet")
        return self._tokens[rank]


def dictionary_arrays(entries: Iterable[Entry]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of a dictionary, and what its manifest's statistics say of them.

    Args:
        entries: Entries with different contexts.

    Raises:
        SpectoolError: A context is too long.
    """
    rows = list(entries)
    longest = max((len(row.context) for row in rows), default=0)
    if longest > _LONGEST:
        raise SpectoolError(f"a context of {longest} tokens, expected at most {_LONGEST} in a dictionary")
    frequency = Counter(chain.from_iterable((*row.context, row.token) for row in rows))
    alphabet = sorted(frequency, key=lambda token: (-frequency[token], token))
    ranks = {token: rank for rank, token in enumerate(alphabet)}
    symbols = {token: symbol(rank) for token, rank in ranks.items()}
    keys = ["".join(map(symbols.__getitem__, reversed(row.context))) for row in rows]
    contexts = marisa_trie.Trie(keys, num_tries=_CONTEXT_TRIES)
    by_place = np.argsort(np.fromiter(map(contexts.key_id, keys), np.int64, len(rows)))
    following = np.fromiter((ranks[row.token] for row in rows), np.int64, len(rows))
    probability = np.clip(np.rint([row.probability * 256 for row in rows]) - 1, 0, 255)
    arrays = {
        "contexts": np.frombuffer(contexts.tobytes(), np.uint8),
        "alphabet": typed(alphabet, "uint32"),
        "next_token": typed(following[by_place], _rank_type(len(alphabet))),
        "probability": typed(probability[by_place], "uint8"),
    }
    return arrays, {"entries": len(rows), "symbols": len(alphabet), "max_context": longest}


def symbol(rank: int) -> str:
    """Code point of the token with this frequency rank (0 = most frequent); no NUL, no surrogate.

    >>> symbol(0), symbol(0xD7FE), symbol(0xD7FF)
    ('\\x01', '\\ud7ff', '\\ue000')
    """
    code = rank + 1
    return chr(code if code < _FIRST_SURROGATE else code + _SURROGATES)


def _rank_type(symbols: int) -> str:
    return "uint16" if symbols <= 1 << 16 else "uint32"
