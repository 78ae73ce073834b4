"""Incremental encoding of a growing text on ids: join what is there with what comes, repair where they meet.

Almost every boundary of a BPE text is decided by a look into a cache of pairs:

    keep    the boundary holds: the pre-tokenizer splits there, or the pair is compatible
    merge   inside one pre-token the pair would merge: un-merge both sides, merge again
    look    the pre-tokenizer needs more context: ask it about classes of characters, back to a sure split
    encode  an added token may span the boundary, no sure split is near, or a merge keeps spreading: encode text

Each of them looks back a bounded number of tokens, so the time for a text is proportional to its length.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from spectool.tokenization.added_tokens import AddedTokens
from spectool.tokenization.incremental.boundaries import LOOK, SPLIT, Boundaries, BoundaryTable
from spectool.tokenization.incremental.by_text import REACH, Change, TailReencoder
from spectool.tokenization.incremental.merges import SYMBOL, Merges, MergeTable
from spectool.tokenization.incremental.patterns import UNKNOWN
from spectool.tokenization.running_text import RunningText
from spectool.tokenization.token_bytes import text_of
from spectool.tokenization.tokenizer import Tokenizer

_KEEP, _MERGE, _LOOK, _ENCODE = range(4)
_REMEMBERED = 1_000_000  # joins, about 150 bytes each, before all are forgotten
_PIECES = 1 << 16  # pre-tokens, and pairs of ids, that are remembered
_DEEPEST = 3  # last ids that a remembered join may depend on
_NEAR = 32  # tokens that are looked through for a sure split, or merged again, before text is encoded
_MUCH = 512  # bytes likewise
_CUTS = 3  # places at which a text is cut until the tokenizer confirms one
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


@dataclass(eq=False, slots=True)
class TokenRun:
    """Ids that are appended as one, and what is known so far of the boundaries before them."""

    ids: tuple[int, ...]  # canonical by themselves
    holds_after: set[int] = field(default_factory=set)  # last ids after which the boundary always holds
    # The last ids, and how many of them may change -> how many are replaced, and by what.
    cached_joins: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = field(default_factory=dict)


class IncrementalBPE:
    """Joins ids of one BPE tokenizer. Holds caches only; texts belong to the caller.

    Attributes:
        token_bytes: Bytes of each id.
        merges: The tokenizer's merges.
    """

    def __init__(self, tokenizer: Tokenizer, table: MergeTable, boundaries: BoundaryTable) -> None:
        """Prepare for a BPE tokenizer with these tables."""
        running = RunningText(tokenizer)
        self.token_bytes = running.token_bytes
        byte_tokens = {token: self.token_bytes[token][0] for token in tokenizer.byte_tokens}
        found = np.flatnonzero(table.left == SYMBOL).tolist()
        symbols = {self.token_bytes[token]: token for token in reversed(found) if token not in byte_tokens}
        self.merges = Merges(table, symbols, byte_tokens)
        self._would_merge = lru_cache(_PIECES)(self.merges.would_merge)
        self._merged = lru_cache(_PIECES)(lambda data: tuple(self.merges.merge(self.merges.spell(data))))
        self._text = TailReencoder(tokenizer, running)
        self._added = AddedTokens(tokenizer, running)
        self._boundaries = Boundaries(tokenizer, self.token_bytes, boundaries)
        # What merging gives -> the token that `ignore_merges` makes of the whole pre-token, where merging does not.
        unmerged = np.flatnonzero(table.left < SYMBOL).tolist() if tokenizer.spec["model"].get("ignore_merges") else []
        whole = {self._merged(self.token_bytes[token]): token for token in unmerged}
        # Tokens without bytes, or with bytes that have no symbols, cannot come of merging.
        self._whole = {ids: token for ids, token in whole.items() if ids}
        self._whole_pairs = {pair for ids in self._whole for pair in pairwise(ids)}
        self._token_runs: dict[tuple[int, ...], TokenRun] = {}
        self._remembered = 0
        self._first = 0  # the first of the ids that the present join has depended on

    @property
    def string_calls(self) -> int:
        """How often text was encoded."""
        return self._text.string_calls

    def token_run(self, ids: tuple[int, ...]) -> TokenRun:
        """The one `TokenRun` of these ids."""
        found = self._token_runs.get(ids)
        if found is None:
            found = self._token_runs[ids] = TokenRun(ids)
        return found

    def join(self, ids: Sequence[int], run: tuple[int, ...], floor: int = 0, begin: int = 0) -> Change:
        """Append ``run`` to ``ids``.

        Args:
            ids: Canonical ids of the text so far (committed ones, whether canonical or not, up to ``floor``).
            run: Ids of what follows, canonical by themselves.
            floor: ``ids[:floor]`` are never changed.
            begin: ``ids[:begin]`` belong to an earlier text.

        Returns:
            ``start, tail`` such that ``ids[:start] + tail`` are the canonical ids of the whole text. Given a boundary
            at ``floor``, they are those of the text from there on.
        """
        return self.append(ids, self.token_run(run), floor, begin) if run else (len(ids), run)

    def append(self, ids: Sequence[int], run: TokenRun, floor: int = 0, begin: int = 0) -> Change:
        """As `join`: in most cases a look-up by the last one, two or three ids."""
        n = len(ids)
        if n == begin or not run.ids or ids[-1] in run.holds_after:
            return n, run.ids
        room = n - floor if floor > begin else n - begin
        spans = self._added.longest > 0 and self._added.may_span(ids, n, begin)
        if n > begin + 1 and not spans:  # the hottest lines of a generation, so the loop over `_DEEPEST` is unrolled
            known = run.cached_joins.get((ids[-2], ids[-1], room if room < 2 else 2))
            if known is None and n > begin + 2:
                known = run.cached_joins.get((ids[-3], ids[-2], ids[-1], room if room < 3 else 3))
            if known is not None:
                return n - known[0], known[1]
        self._first = n - 1
        verdict = self._verdict(ids, n, run.ids, begin)
        change: Change = (n, run.ids)
        if verdict != _KEEP:
            change = self._repair(verdict, ids, run.ids, max(floor, begin), begin)
        if not spans and self._first >= begin:
            self._remember(ids, run, verdict, change, room)
        return change

    def extend(self, ids: list[int], runs: Iterable[TokenRun], floor: int = 0, begin: int = 0) -> None:
        """Append several token runs to ``ids`` in place."""
        for run in runs:
            if len(ids) > begin and ids[-1] in run.holds_after:
                ids += run.ids
            else:
                start, tail = self.append(ids, run, floor, begin)
                ids[start:] = tail

    def _remember(self, ids: Sequence[int], run: TokenRun, verdict: int, change: Change, room: int) -> None:
        """Remember a join that depended on nothing but the last few ids, for all texts."""
        depth = max(2, len(ids) - self._first)
        if verdict == _KEEP and self._first == len(ids) - 1 and not self._added.touches(ids[-1]):
            run.holds_after.add(ids[-1])
        elif depth <= min(_DEEPEST, len(ids)):
            run.cached_joins[(*ids[-depth:], min(room, depth))] = len(ids) - change[0], tuple(change[1])
        self._remembered += 1
        if self._remembered >= _REMEMBERED:
            self._remembered = 0
            for known in self._token_runs.values():
                known.holds_after.clear()
                known.cached_joins.clear()

    def join_bytes(self, ids: Sequence[int], data: bytes, floor: int = 0, begin: int = 0) -> Change:
        """Append bytes, which need not be whole tokens but must not end inside a character; as `join`."""
        if self._added.end_in(ids, data, begin):
            return self._encode(ids, data, max(floor, begin), begin)
        rest = data.lstrip(_CONTINUATIONS)
        if len(rest) == len(data):
            return self.join(ids, self._spelled(data), floor, begin)
        # The end of a character comes first, because where text is split after it depends on that character.
        start, tail = self.join(ids, self._merged(data[: len(data) - len(rest)]), floor, begin)
        joined = [*ids[:start], *tail]
        again, end = self.join(joined, self._spelled(rest), floor, begin)
        return min(start, again), [*joined[start:again], *end]

    def join_text(self, ids: Sequence[int], data: bytes, begin: int = 0) -> Change:
        """Append the bytes of many tokens, encoded at once; as `join_bytes`."""
        return self._encode(ids, data, begin, begin)

    def spell(self, data: bytes) -> tuple[int, ...]:
        """The canonical ids of bytes inside a text."""
        return tuple(self.join_bytes((), data)[1])

    def boundary_holds(self, ids: Sequence[int], run: Sequence[int], begin: int = 0) -> bool:
        """Whether the boundary between ``ids[begin:]`` and ``run`` is one of the joined text as well."""
        if len(ids) == begin or not run:
            return True
        verdict = self._verdict(ids, len(ids), run, begin)
        if verdict == _KEEP:
            return True
        if verdict == _MERGE and not self.merges.is_byte(run[0]):  # bytes may stay bytes
            return False
        start, tail = self._repair(verdict, ids, run, begin, begin)
        return len(self._data(ids[start:])) in self._ends(tail)

    def may_hold(self, ids: Sequence[int], run: Sequence[int], begin: int = 0) -> bool:
        """As `boundary_holds`, but for a ``run`` of white space: where that is split depends on what follows it.

        Many patterns leave the last space to the next word, so a letter is looked at in its place.
        """
        if self.boundary_holds(ids, run, begin):
            return True
        data = self._data(run)
        return self._boundaries.splits and data.isspace() and self.boundary_holds(ids, self.spell(data + b"a"), begin)

    def _verdict(self, ids: Sequence[int], at: int, run: Sequence[int], begin: int) -> int:
        """What to do at the boundary between ``ids[begin:at]`` and ``run``."""
        before, after, merges = ids[at - 1], run[0], self.merges
        self._first = min(self._first, at - 1)
        if self._added.longest:
            if self._added.span(ids, at, after, begin):
                return _ENCODE
            if before in self._added or after in self._added:
                return _KEEP
            if at - 2 >= begin and ids[at - 2] in self._added:
                begin = at - 1  # a text of its own follows an added token
        kind, first = self._boundaries.kind(ids, at, run, begin)
        self._first = min(self._first, first)
        if kind == SPLIT:
            return _KEEP
        if kind == LOOK or (before, after) in self._whole_pairs:
            return _LOOK
        if merges.is_byte(before) and merges.is_byte(after) and self.token_bytes[after][0] & 0xC0 == 0x80:
            return _MERGE  # together they may be a character that has a token
        if not (merges.reachable(before) and merges.reachable(after)):
            return _LOOK if self._boundaries.splits else _ENCODE
        return _MERGE if self._would_merge(before, after) else _KEEP

    def _repair(self, verdict: int, ids: Sequence[int], run: Sequence[int], floor: int, begin: int) -> Change:
        if verdict == _MERGE:
            return self._remerge(ids, run, floor, begin)
        if verdict == _LOOK:
            return self._look(ids, run, floor, begin)
        return self._encode(ids, self._data(run), floor, begin)

    def _remerge(self, ids: Sequence[int], run: Sequence[int], floor: int, begin: int) -> Change:
        """Un-merge both sides of a merge site and merge again; widen until both ends hold."""
        n = len(ids)
        if n == floor:
            return n, list(run)
        low, high, size = n - 1, 1, len(self.token_bytes[ids[-1]])
        while n - low + high <= _NEAR and size <= _MUCH:
            self._first = min(self._first, low - (low == floor))
            window = self.merges.merge(self.merges.symbols((*ids[low:n], *run[:high])))
            verdict = self._verdict(ids, low, window, begin) if low > floor else _KEEP
            if verdict == _MERGE:
                low -= 1
                size += len(self.token_bytes[ids[low]])
                continue
            if verdict == _KEEP and high < len(run):
                near = max(begin, low - _DEEPEST)
                before = (*ids[near:low], *window)
                first, self._first = self._first, len(before)
                verdict = self._verdict(before, len(before), run[high:], 0)
                self._first = min(first, near + self._first)
                if verdict == _MERGE:
                    high += 1
                    continue
            if verdict == _KEEP and any(pair in self._whole_pairs for pair in pairwise(window)):
                verdict = _LOOK
            if verdict != _KEEP:
                return self._repair(verdict, ids, run, floor, begin)
            return low, window + list(run[high:])
        return self._encode(ids, self._data(run), floor, begin)

    def _look(self, ids: Sequence[int], run: Sequence[int], floor: int, begin: int) -> Change:
        """Ask the pre-tokenizer where it splits, from the last sure split on, and merge in between."""
        start, size = len(ids), 0
        while start > begin and not (start < len(ids) and self._stands_alone(ids, start)):
            if len(ids) - start >= _NEAR or size > _MUCH:
                return self._encode(ids, self._data(run), floor, begin)
            start -= 1
            size += len(self.token_bytes[ids[start]])
            if ids[start] in self._added:
                start += 1
                break
        self._first = min(self._first, start - 1)
        added = next((place for place, token in enumerate(run) if token in self._added), len(run))
        pieces = self._pieces(self._data([*ids[start:], *run[:added]]))
        if pieces is None:
            return self._encode(ids, self._data(run), floor, begin)
        kept = list(ids[start : max(start, floor)])
        fixed, end = len(self._data(kept)), 0
        for piece in pieces:
            end += len(piece)
            if end > fixed:
                kept += self._of_piece(piece) if end - len(piece) >= fixed else self._merged(piece[fixed - end :])
        return start, kept + list(run[added:])

    def _pieces(self, data: bytes) -> list[bytes] | None:
        """Pre-tokens of bytes; None where these are not text, or have characters of an unknown class."""
        if not self._boundaries.splits:
            return [data]
        text = text_of(data)
        classes = self._boundaries.classes(text)
        if UNKNOWN in classes or not text:
            return None
        starts = [*self._boundaries.starts(classes), len(text)]
        return [text[low:high].encode() for low, high in pairwise(starts)]

    def _of_piece(self, piece: bytes) -> Sequence[int]:
        """The ids of one whole pre-token."""
        merged = self._merged(piece)
        return (self._whole[merged],) if merged in self._whole else merged

    def _spelled(self, data: bytes) -> tuple[int, ...]:
        """The canonical ids of bytes that begin with a whole character."""
        pieces = self._pieces(data) if data else []
        if pieces is None:
            return tuple(self._encode((), data, 0, 0)[1])
        return tuple(token for piece in pieces for token in self._of_piece(piece))

    def _stands_alone(self, ids: Sequence[int], at: int) -> bool:
        """Whether text is split before ``ids[at]``, regardless of the text around it; added tokens stand alone."""
        if ids[at - 1] in self._added or ids[at] in self._added:
            return True
        return self._boundaries.surely_split(ids[at - 1], ids[at])

    def _encode(self, ids: Sequence[int], data: bytes, floor: int, begin: int) -> Change:
        """Append bytes by encoding text, from as far back as the tokenizer itself confirms."""
        n, self._first = len(ids), -1
        if floor > begin:
            rest = self._data(ids[floor:]) + data
            half = len(rest) - len(rest.lstrip(_CONTINUATIONS))
            if half or not text_of(rest):
                tail = self._text.inside(rest[half:]) if text_of(rest[half:]) else self._merged(rest[half:])
                return floor, [*self._merged(rest[:half]), *tail]
            before = self._data(ids[max(begin, floor - REACH // 4) : floor]).lstrip(_CONTINUATIONS)
            return floor, self._text.following(ids[begin:floor], before, rest)[0]
        first, size = n, 0
        while first > begin and size < REACH:
            first -= 1
            size += len(self.token_bytes[ids[first]])
        before = self._data(ids[first:n])
        short = first == begin and len(before) <= max(self._added.longest, _MUCH // 4)
        if short and text_of(text := self._added.at_start(before + data)):
            return begin, self._text.encode(text)
        # Inside a long run of digits a cut may fall within a group, and then no later id comes out as it was.
        for cut in range(first, max(begin, first - _CUTS) - 1, -1):
            before = self._data(ids[cut:n]).lstrip(_CONTINUATIONS)
            if cut == begin or self._text.holds(ids, before):
                break
        if not text_of(before + data):
            return n, self._merged(data)
        return self._text.join(ids, before, data, begin)

    def _data(self, tokens: Iterable[int]) -> bytes:
        """The bytes of tokens."""
        return b"".join(map(self.token_bytes.__getitem__, tokens))

    def _ends(self, tokens: Iterable[int]) -> list[int]:
        """0, and the byte at which each token ends."""
        return list(accumulate((len(self.token_bytes[token]) for token in tokens), initial=0))
