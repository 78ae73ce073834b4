"""The dictionary format: context tokens -> continuation tokens, by longest known suffix.

    alphabet.arrow        token   uint32[symbols]        token id of each symbol, most frequent first
    contexts.marisa       reversed contexts, each a string of symbols          -> entry id
    entries.arrow         continuation uint16[entries]   id of a continuation; uint32 for more than 65,536
                          probability  uint8[entries]    (value + 1) / 256
                          count        uint8[entries]    occurrences of the context, 2 ^ (value / 8)
    continuations.marisa  continuations, each a string of symbols              -> continuation id

The manifest says whether entries are ``chained``: after its continuation, the next entry is looked up
and goes on, as in the backoff method, whose continuations are single tokens; a DictSpec proposal is
the one continuation.

A symbol is a code point: the n-th most frequent token is U+0001 + n, surrogates skipped, so that
common tokens take one byte of UTF-8. Contexts are stored newest token first: one walk down
the trie along the reversed history meets every known suffix, and the last hit is the longest.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import marisa_trie
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spectool import ArtifactError
from spectool.artifacts.formats.columns import as_numpy, read_columns, write_columns
from spectool.artifacts.formats.context_automaton import ContextAutomaton
from spectool.artifacts.manifest import MANIFEST, Manifest, expect_format, read_manifest, verify_file, verify_files

FORMAT = "spectool-dictionary"
VERSION = 2
_FIRST_SURROGATE, _SURROGATES = 0xD800, 0x800
_CONTEXT_TRIES = 3  # nested in each other: a tenth smaller than one
PROBABILITY_STEP = 1 / 256  # closer probabilities are stored as the same
_BATCH = 1 << 16  # contexts read at once
UNKNOWN_SYMBOL = "\U0010ffff"  # stands for tokens outside the alphabet; no context contains it


class Match(NamedTuple):
    """What a look-up found.

    Attributes:
        tokens: Continuation to propose, token ids.
        probability: Of the whole continuation, from the corpus, in steps of 1/256.
        length: Context tokens that matched.
    """

    tokens: tuple[int, ...]
    probability: float
    length: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a dictionary.

    Attributes:
        context: Token ids, oldest first.
        continuation: Token ids to propose after it.
        probability: Of the whole continuation, 0..1.
        count: Occurrences of the context in the text; about 9% coarse once written.
    """

    context: Sequence[int]
    continuation: Sequence[int]
    probability: float
    count: int


class Dictionary:
    """An open dictionary, memory-mapped and read-only.

    Attributes:
        path: Its directory.
        manifest: Its manifest.
        max_context: Longest context, in tokens; a look-up needs no more history than that.
        chained: Whether a proposal goes on with further look-ups after its first continuation.
    """

    def __init__(self, path: Path) -> None:
        """Open the dictionary at ``path``. Sizes and types are checked; `verify` checks contents.

        The tries are compared with their checksums at once, about 1 ms for each MB: walking a
        damaged one can end the process.

        Raises:
            ArtifactError: Not a whole dictionary of this version.
        """
        self.path = path
        self.manifest = read_manifest(path)
        expect_format(path, self.manifest, FORMAT, VERSION, ("target",))
        _expect_files(path, self.manifest)
        alphabet = read_columns(path / "alphabet.arrow", {"token": pa.uint32()})["token"].to_pylist()
        self._symbols: dict[int, str] = {token: symbol(rank) for rank, token in enumerate(alphabet)}
        self._ranks = len(alphabet)
        self._tokens: dict[str, int] = {char: token for token, char in self._symbols.items()}
        self._continuations = _open_trie(path, self.manifest, "continuations.marisa")
        types = {"continuation": _id_type(len(self._continuations)), "probability": pa.uint8(), "count": pa.uint8()}
        entries = read_columns(path / "entries.arrow", types)
        # Single elements are read faster from memoryviews than from numpy arrays; nothing is copied.
        self._continuation = as_numpy(entries["continuation"]).data
        self._probability = as_numpy(entries["probability"]).data
        self._count = as_numpy(entries["count"]).data
        self._spelled: dict[int, tuple[int, ...]] = {}
        self._contexts = _open_trie(path, self.manifest, "contexts.marisa")
        if len(self._contexts) != len(self._continuation):
            raise ArtifactError(
                f"{path}: {len(self._contexts)} contexts and {len(self._continuation)} entries, expected equal "
                "numbers. Build the dictionary again"
            )
        self.max_context = _max_context(path, self.manifest)
        chained = self.manifest.statistics.get("chained")
        if not isinstance(chained, bool):
            raise ArtifactError(
                f"{path / MANIFEST}: chained is {chained!r}, expected true or false. Build the dictionary again"
            )
        self.chained = chained

    def __len__(self) -> int:
        return len(self._continuation)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the tokenizer that it was built for."""
        return str(self.manifest.tokenizers["target"]["fingerprint"])

    def look_up(self, tokens: Sequence[int]) -> Match | None:
        """Look up the longest known suffix of a token sequence; `automaton` does it faster as one grows.

        Args:
            tokens: Ids, oldest first; the last `max_context` of them count.

        Returns:
            The match, or None where no suffix is known.
        """
        recent = tokens[-self.max_context :] if tokens else []
        newest_first = "".join(self._symbols.get(token, UNKNOWN_SYMBOL) for token in reversed(recent))
        prefix, row = "", 0
        for prefix, row in self._contexts.iter_prefixes_with_ids(newest_first):  # noqa: B007 (the last hit is wanted)
            pass
        return Match(*self.continuation(row), len(prefix)) if prefix else None

    def continuation(self, row: int) -> tuple[tuple[int, ...], float]:
        """Return what an entry proposes, token ids, and its probability."""
        place = self._continuation[row]
        return self._spelled.get(place) or self._spell(place), (self._probability[row] + 1) * PROBABILITY_STEP

    def _spell(self, place: int) -> tuple[int, ...]:
        """Read a continuation from its trie and remember it: a few thousand serve most look-ups."""
        spelled = tuple(self._tokens[char] for char in self._continuations.restore_key(place))
        self._spelled[place] = spelled
        return spelled

    @cached_property
    def automaton(self) -> ContextAutomaton:
        """All contexts, ready to be followed token by token; built when first asked for, about 2 µs for each entry.

        Raises:
            ArtifactError: A context has a symbol that is not in the alphabet.
        """
        return ContextAutomaton(self._context_tokens(), self.continuation)

    def _context_tokens(self) -> NDArray[np.int64]:
        """Return the token ids of all contexts by row, newest first, -1 beyond their ends."""
        contexts = np.full((len(self), self.max_context), -1, dtype=np.int64)
        alphabet = np.array(list(self._tokens.values()), dtype=np.int64)
        entries = self._contexts.iteritems()
        while batch := list(islice(entries, _BATCH)):
            keys, rows = zip(*batch, strict=True)
            lengths = np.fromiter(map(len, keys), np.int64, len(keys))
            ranks = _ranks("".join(keys))
            if ranks.max(initial=0) >= len(alphabet) or lengths.max(initial=0) > self.max_context:
                raise ArtifactError(
                    f"{self.path / 'contexts.marisa'}: a context is too long or has a symbol that is not in "
                    "alphabet.arrow. Build the dictionary again"
                )
            begins = np.cumsum(lengths) - lengths
            contexts[np.repeat(rows, lengths), np.arange(len(ranks)) - np.repeat(begins, lengths)] = alphabet[ranks]
        return contexts

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, in trie order."""
        for key, index in self._contexts.iteritems():
            context = [self._tokens[char] for char in reversed(key)]
            yield Entry(context, *self.continuation(index), round(2 ** (self._count[index] / 8)))

    def verify(self) -> None:
        """Prove the dictionary whole: checksums first, then every invariant of the format.

        Raises:
            ArtifactError: The first thing that is wrong.
        """
        verify_files(self.path, self.manifest)
        size = self.manifest.tokenizers["target"]["size"]
        lengths = [len(key) for key in self._contexts.iterkeys()]
        checks = {
            "alphabet.arrow: token ids repeat": len(self._symbols) == self._ranks,
            "alphabet.arrow: token ids outside the vocabulary": max(self._symbols, default=0) < size,
            "contexts.marisa: a symbol is not in alphabet.arrow": self._tokens.keys() >= _symbols(self._contexts),
            "contexts.marisa: a context is empty or too long": all(0 < n <= self.max_context for n in lengths),
            "continuations.marisa: a symbol is not in alphabet.arrow": self._tokens.keys()
            >= _symbols(self._continuations),
            "continuations.marisa: a continuation is empty": "" not in self._continuations,
            "entries.arrow: ids outside continuations.marisa": max(self._continuation, default=-1)
            < len(self._continuations),
        }
        for problem, holds in checks.items():
            if not holds:
                raise ArtifactError(f"{self.path}/{problem}. Build the dictionary again")


def _save(trie: marisa_trie.Trie, path: Path) -> None:
    try:
        trie.save(str(path))
    except RuntimeError as error:  # the library's own for any failure to write: no number, no name
        raise ArtifactError(
            f"{path}: cannot be written ({error}). Check the room and the limits of its disk, and run it again"
        ) from error


def write_dictionary(directory: Path, entries: Iterable[Entry], chained: bool = False) -> dict[str, Any]:
    """Write the data files of a dictionary.

    Args:
        directory: Scratch directory of `replacing.writing`.
        entries: What to write; contexts are unique.
        chained: Whether a proposal goes on after its first continuation.

    Returns:
        Statistics for the manifest: entries, symbols, continuations, max_context, max_continuation, chained.
    """
    rows = list(entries)
    frequency = Counter(chain.from_iterable(chain(row.context, row.continuation) for row in rows))
    alphabet = sorted(frequency, key=lambda token: (-frequency[token], token))
    symbols = {token: symbol(rank) for rank, token in enumerate(alphabet)}
    keys = ["".join(map(symbols.__getitem__, reversed(row.context))) for row in rows]
    tails = ["".join(map(symbols.__getitem__, row.continuation)) for row in rows]
    contexts = marisa_trie.Trie(keys, num_tries=_CONTEXT_TRIES)
    continuations = marisa_trie.Trie(set(tails))
    place = np.fromiter(map(contexts.key_id, keys), np.int64, len(rows))
    columns = {
        "continuation": (
            np.fromiter(map(continuations.key_id, tails), np.int64, len(rows)),
            _id_type(len(continuations)),
        ),
        "probability": (np.clip(np.rint([row.probability * 256 for row in rows]) - 1, 0, 255), pa.uint8()),
        "count": (np.clip(np.rint(8 * np.log2([max(1, row.count) for row in rows])), 0, 255), pa.uint8()),
    }
    _save(contexts, directory / "contexts.marisa")
    _save(continuations, directory / "continuations.marisa")
    write_columns(directory / "alphabet.arrow", {"token": pa.array(alphabet, type=pa.uint32())})
    by_place = np.argsort(place)
    write_columns(
        directory / "entries.arrow",
        {name: pa.array(values[by_place].astype(str(kind))) for name, (values, kind) in columns.items()},
    )
    return {
        "entries": len(rows),
        "symbols": len(alphabet),
        "continuations": len(continuations),
        "max_context": max((len(row.context) for row in rows), default=0),
        "max_continuation": max((len(row.continuation) for row in rows), default=0),
        "chained": chained,
    }


def symbol(rank: int) -> str:
    """Code point of the token with this frequency rank (0 = most frequent); no NUL, no surrogate.

    >>> symbol(0), symbol(0xD7FE), symbol(0xD7FF)
    ('\\x01', '\\ud7ff', '\\ue000')
    """
    code = rank + 1
    return chr(code if code < _FIRST_SURROGATE else code + _SURROGATES)


def _ranks(symbols: str) -> NDArray[np.int64]:
    """Return the rank of each symbol; the inverse of `symbol`."""
    codes = np.frombuffer(symbols.encode("utf-32-le"), dtype="<u4").astype(np.int64)
    return codes - 1 - np.where(codes >= _FIRST_SURROGATE, _SURROGATES, 0)


def _id_type(continuations: int) -> pa.DataType:
    return pa.uint16() if continuations <= 1 << 16 else pa.uint32()


def _symbols(trie: Any) -> set[str]:
    return set().union(*trie.iterkeys())


def _expect_files(path: Path, manifest: Manifest) -> None:
    missing = {"alphabet.arrow", "contexts.marisa", "entries.arrow", "continuations.marisa"} - set(manifest.files)
    if missing:
        raise ArtifactError(f"{path}: the manifest does not name {min(missing)}. Build the dictionary again")


def _max_context(path: Path, manifest: Manifest) -> int:
    value = manifest.statistics.get("max_context")
    if not isinstance(value, int) or value < 1:
        raise ArtifactError(f"{path / MANIFEST}: max_context is {value!r}, expected tokens. Build the dictionary again")
    return value


def _open_trie(path: Path, manifest: Manifest, name: str) -> Any:
    verify_file(path, manifest, name)
    try:
        return marisa_trie.Trie().mmap(str(path / name))
    except (RuntimeError, OSError, ValueError) as error:
        raise ArtifactError(
            f"{path / name}: not a readable marisa-trie file ({error}). Build the dictionary again"
        ) from error
