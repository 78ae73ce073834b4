"""Canonical ids of a growing text, on ids: join what is there with what comes, repair where they meet.

Almost every boundary of a BPE text is decided by a look into a cache of pairs:

    keep    the boundary holds: the pre-tokenizer splits there, or the pair is compatible
    merge   inside one pre-token the pair would merge: un-merge both sides, merge again
    look    the pre-tokenizer needs more context: ask it about representatives, back to a sure split
    encode  an added token may span the boundary, or merging does not reach a token: encode text

Each of them looks back a bounded number of tokens, so the time for a text is proportional to its length. Where no sure
split is near, or a merge keeps spreading, the end of the text is encoded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from spectool.tokenization.added_tokens import AddedTokens
from spectool.tokenization.incremental.boundaries import Boundaries
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.incremental.merges import SYMBOL, Merges, MergeTable
from spectool.tokenization.incremental.pretokens import LOOK, SPLIT, BoundaryTable, PreTokens
from spectool.tokenization.surfaces import text_of
from spectool.tokenization.tokenizer import Tokenizer

Change = tuple[int, Sequence[int]]  # ids[:start] stay, and these follow
_KEEP, _MERGE, _LOOK, _ENCODE = range(4)
_REMEMBERED = 1_000_000  # entries of a cache, about 150 bytes each, before it begins anew
_DEEPEST = 3  # last ids that a remembered join may depend on
_NEAR = 32  # tokens that are looked through for a sure split, or merged again, before text is encoded
_BACK = 8  # tokens of left context that encoding starts from, doubled until it fits
_FARTHEST = 128  # tokens of left context from which on an encoding is taken as it is
_MUCH = 512  # bytes of context for which that holds too, and of new text that is encoded once, from that far back
_CHARACTER = 4  # bytes of the longest character


@dataclass(eq=False, slots=True)
class TokenRun:
    """Ids that are appended as one, and what is known so far of the boundaries before them."""

    ids: tuple[int, ...]  # canonical by themselves
    holds_after: set[int] = field(default_factory=set)  # last ids after which the boundary always holds
    # The last two or three ids, and how many of them may change -> how many are replaced, and by what.
    cached_joins: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = field(default_factory=dict)


class CanonicalIds:
    """Joins ids of one BPE tokenizer. Holds caches only; texts belong to the caller.

    Attributes:
        surfaces: Bytes of each id.
        merges: The tokenizer's merges.
        string_calls: How often text was encoded.
    """

    def __init__(self, tokenizer: Tokenizer, table: MergeTable, boundaries: BoundaryTable) -> None:
        """Prepare for a BPE tokenizer, with its merges and its `boundary_table`."""
        self.string_calls = 0
        self.surfaces = tokenizer.spelled
        byte_tokens = {token: self.surfaces[token][0] for token in tokenizer.byte_tokens}
        found = np.flatnonzero(table.left == SYMBOL).tolist()
        symbols = {self.surfaces[token]: token for token in reversed(found) if token not in byte_tokens}
        self.merges = Merges(table, symbols, byte_tokens)
        self._pre_tokens = PreTokens(tokenizer, boundaries.alphabet)
        self._tokenizer = tokenizer
        self._added = AddedTokens(tokenizer)
        self._adds = self._added.longest > 0
        self._boundaries = Boundaries(self.surfaces, boundaries, self._added)
        # What merging gives -> the token that `ignore_merges` makes of the whole pre-token, where merging does not.
        unmerged = np.flatnonzero(table.left < SYMBOL).tolist() if tokenizer.spec["model"].get("ignore_merges") else []
        spelled = {token: self.merges.spell(self.surfaces[token]) for token in unmerged}
        # Tokens without a surface, or with bytes that have no symbols, cannot come of merging.
        self._whole = {tuple(self.merges.merge(symbols)): token for token, symbols in spelled.items() if symbols}
        self._whole_pairs = {pair for ids in self._whole for pair in pairwise(ids)}
        self._verdicts: dict[tuple[int, int, int], int] = {}
        self._remerged: dict[tuple[int, ...], list[int]] = {}
        self._token_runs: dict[tuple[int, ...], TokenRun] = {}
        self._remembered = 0

    def token_run(self, ids: tuple[int, ...]) -> TokenRun:
        """Return the one `TokenRun` of these ids."""
        found = self._token_runs.get(ids)
        if found is None:
            found = self._token_runs[ids] = TokenRun(ids)
        return found

    def join(self, ids: Sequence[int], run: tuple[int, ...], floor: int = 0, begin: int = 0) -> Change:
        """Append ``run`` to ``ids``.

        Args:
            ids: Canonical ids of the text so far (committed ones, whatever they are, up to ``floor``).
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
        spans = self._adds and self._added.may_span(ids, n, begin)
        if n > begin + 1 and not spans:
            known = run.cached_joins.get((ids[-2], ids[-1], room if room < 2 else 2))
            if known is None and n > begin + 2:
                known = run.cached_joins.get((ids[-3], ids[-2], ids[-1], room if room < 3 else 3))
            if known is not None:
                return n - known[0], known[1]
        calls = self.string_calls
        verdict = self._verdict(ids, n, run.ids[0], begin)
        change: Change = (n, run.ids)
        if verdict != _KEEP:
            change = self._repair(verdict, ids, run.ids, max(floor, begin), begin)
        if calls == self.string_calls and not spans:
            self._remember(ids, run, verdict, change, room, begin)
        return change

    def extend(self, ids: list[int], runs: Iterable[TokenRun], floor: int = 0, begin: int = 0) -> None:
        """Append several token runs to ``ids`` in place: `append` again and again."""
        for run in runs:
            if len(ids) > begin and ids[-1] in run.holds_after:
                ids += run.ids
            else:
                start, tail = self.append(ids, run, floor, begin)
                ids[start:] = tail

    def _remember(self, ids: Sequence[int], run: TokenRun, verdict: int, change: Change, room: int, begin: int) -> None:
        """Remember a join if it depended on nothing but the last few ids, for all texts."""
        n = len(ids)
        start, tail = change
        depth = max(2, n - start + 1)
        if verdict == _KEEP and self._boundaries.settled(ids[-1], run.ids[0]) and not self._added.touches(ids[-1]):
            run.holds_after.add(ids[-1])
        elif depth <= _DEEPEST and n >= begin + depth and self._decided(ids, start, tail):
            run.cached_joins[(*ids[-depth:], min(room, depth))] = n - start, tuple(tail)
        else:
            return
        self._remembered += 1
        if self._remembered >= _REMEMBERED:
            self._remembered = 0
            for known in self._token_runs.values():
                known.holds_after.clear()
                known.cached_joins.clear()

    def _decided(self, ids: Sequence[int], start: int, tail: Sequence[int]) -> bool:
        """Return whether a change from ``start`` on depended on nothing before the id that precedes it."""
        shape = self._boundaries.shape
        if not self._boundaries.splits:
            return True
        if start < len(ids):
            return all(map(shape, ids[start:])) and self._boundaries.settled(ids[start - 1], tail[0])
        if not shape(ids[-1]):  # the end of a character: enough if the last two ids are two or more
            return len(text_of(self._data(ids[-2:]))) > 1
        return bool(shape(ids[-2]))

    def join_bytes(self, ids: Sequence[int], data: bytes, floor: int = 0, begin: int = 0) -> Change:
        """Append bytes that need not be whole tokens, but end no character half-way; as `join`."""
        symbols = self.merges.spell(data)
        if self._added.end_in(ids, data, begin):
            merged = tuple(self.merges.merge(symbols))
            return self._encode(ids, self._data(symbols), max(floor, begin), begin) or (len(ids), merged)
        if self._boundaries.splits:
            return self._look(ids, symbols, max(floor, begin), begin)
        merged = tuple(self.merges.merge(symbols))
        return self.append(ids, TokenRun(merged), floor, begin) if merged else (len(ids), merged)

    def join_text(self, ids: Sequence[int], data: bytes, begin: int = 0) -> Change:
        """Append the bytes of many tokens, encoded at once where they are text; as `join_bytes`."""
        return self._encode(ids, data, begin, begin) or self.join_bytes(ids, data, begin=begin)

    def spell(self, data: bytes) -> tuple[int, ...]:
        """Return the canonical ids of bytes as they are spelled inside a text."""
        return tuple(self.join_bytes((), data)[1])

    def boundary_holds(self, ids: Sequence[int], run: Sequence[int], begin: int = 0) -> bool:
        """Return whether the boundary between ``ids[begin:]`` and ``run`` is one of the joined text as well."""
        if len(ids) == begin or not run:
            return True
        verdict = self._verdict(ids, len(ids), run[0], begin)
        if verdict == _KEEP:
            return True
        if verdict == _MERGE and not self.merges.is_byte(run[0]):  # bytes may stay bytes
            return False
        start, tail = self._repair(verdict, ids, run, begin, begin)
        return len(self._data(ids[start:])) in self._ends(tail)

    def _verdict(self, ids: Sequence[int], at: int, after: int, begin: int) -> int:
        """Judge the boundary before ``after`` when ``ids[begin:at]`` come before it."""
        if self._added.span(ids, at, after, begin):
            return _ENCODE
        key = ids[at - 1], after, self._boundaries.tail(ids, at, begin)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._judge(*key)
        return verdict

    def _judge(self, before: int, after: int, tail: int) -> int:
        merges = self.merges
        if before in self._added or after in self._added:
            return _KEEP
        if merges.is_byte(before) and merges.is_byte(after) and self.surfaces[after][0] & 0xC0 == 0x80:
            return _MERGE  # together they may be a character that has a token
        kind = self._boundaries.kind(tail, after)
        if kind == SPLIT:
            return _KEEP
        if kind == LOOK or (before, after) in self._whole_pairs:
            return _LOOK
        if not (merges.reachable(before) and merges.reachable(after)):
            return _LOOK if self._boundaries.splits else _ENCODE
        return _MERGE if merges.would_merge(before, after) else _KEEP

    def _repair(self, verdict: int, ids: Sequence[int], run: Sequence[int], floor: int, begin: int) -> Change:
        if verdict == _MERGE:
            return self._remerge(ids, run, floor, begin)
        if verdict == _LOOK:
            return self._look(ids, run, floor, begin)
        return self._encode(ids, self._data(run), floor, begin) or (len(ids), run)

    def _remerge(self, ids: Sequence[int], run: Sequence[int], floor: int, begin: int) -> Change:
        """Un-merge both sides of a merge site and merge again; widen until both ends hold."""
        n = len(ids)
        if n == floor:
            return n, list(run)
        low, high, size = n - 1, 1, len(self.surfaces[ids[-1]])
        while n - low + high <= _NEAR and size <= _MUCH:
            key = (*ids[low:n], *run[:high])
            window = self._remerged.get(key)
            if window is None:
                if len(self._remerged) >= _REMEMBERED:
                    self._remerged.clear()
                window = self._remerged[key] = self.merges.merge(self.merges.symbols(key))
            verdict = self._verdict(ids, low, window[0], begin) if low > floor else _KEEP
            if verdict == _MERGE:
                low -= 1
                size += len(self.surfaces[ids[low]])
                continue
            if verdict == _KEEP and high < len(run):
                before = (*ids[max(begin, low - 1) : low], *window)
                verdict = self._verdict(before, len(before), run[high], 0)
                if verdict == _MERGE:
                    high += 1
                    continue
            if verdict == _KEEP and any(pair in self._whole_pairs for pair in pairwise(window)):
                verdict = _LOOK
            if verdict != _KEEP:
                return self._repair(verdict, ids, run, floor, begin)
            return low, window + list(run[high:])
        return self._encode(ids, self._data(run), floor, begin, _FARTHEST) or (n, run)

    def _look(self, ids: Sequence[int], run: Sequence[int], floor: int, begin: int) -> Change:
        """Ask the pre-tokenizer where it splits, from the last sure split on, and merge in between."""
        start, near, size = len(ids), max(begin, len(ids) - _NEAR), 0
        while start > begin and not self._stands_alone(ids, start):
            if start == near or size > _MUCH:
                if change := self._encode(ids, self._data(run), floor, begin, _FARTHEST):
                    return change
                break
            start -= 1
            size += len(self.surfaces[ids[start]])
        added = next((place for place, token in enumerate(run) if token in self._added), len(run))
        run, rest = run[:added], run[added:]
        tokens = [*ids[start:], *run]
        data = self._data(tokens)
        places = [place for place, byte in enumerate(data) if byte & 0xC0 != 0x80]
        shapes = list(map(self._boundaries.shape, tokens))
        # Where characters are split over tokens, their classes are those of all bytes.
        seen = b"".join(shapes) if all(shapes) else self._boundaries.classes(data)
        if not seen:  # no text: nothing that a pre-tokenizer could say
            return start, [*ids[start:], *self.merges.merge(self.merges.symbols(run)), *rest]
        splits = self._pre_tokens.starts(seen)
        cuts = [places[split] for split in splits] + [len(data)]
        kept = list(ids[start : max(start, floor)])
        fixed = len(self._data(kept))
        ends = {end: count for count, end in enumerate(self._ends(tokens))}
        for low, high in pairwise(cuts):
            if high > fixed:
                inside = self._merged(tokens, data, ends, max(low, fixed), high)
                whole = self._whole.get(tuple(inside)) if low >= fixed else None
                kept += inside if whole is None else [whole]
        return start, kept + list(rest)

    def _merged(self, tokens: list[int], data: bytes, ends: dict[int, int], low: int, high: int) -> list[int]:
        """Return the ids of bytes inside one pre-token: the given ones where canonical, else merged from symbols."""
        merges = self.merges
        if low in ends and high in ends:
            ids = tokens[ends[low] : ends[high]]
            if all(map(merges.reachable, ids)) and not any(map(merges.would_merge, ids, ids[1:])):
                return ids
        return merges.merge(merges.spell(data[low:high]))

    def _stands_alone(self, ids: Sequence[int], at: int) -> bool:
        """Return whether text is split before ``ids[at]`` whatever stands around; added tokens stand alone."""
        if ids[at - 1] in self._added or (at < len(ids) and ids[at] in self._added):
            return True
        return at < len(ids) and self._boundaries.surely_split(ids[at - 1], ids[at])

    def _encode(self, ids: Sequence[int], data: bytes, floor: int, begin: int, back: int = _BACK) -> Change | None:
        """Append bytes by encoding text, from far enough back that the ids there come out as they are.

        It begins ``back`` tokens back. In a run of one character, a few ids come out the same wherever the encoding
        begins, so their agreement is no evidence there.

        Returns:
            None where the bytes are no text.
        """
        n, back = len(ids), back if len(data) < _MUCH else _FARTHEST
        while True:
            start, size = n, 0
            while start > max(begin, n - back) and size < _MUCH:
                start -= 1
                size += len(self.surfaces[ids[start]])
            for _ in range(_CHARACTER):
                start -= start > begin and b"\x80" <= self.surfaces[ids[start]][:1] < b"\xc0"  # inside a character
            before = self._data(ids[start:])
            text = before + data if start > begin else self._added.at_start(before + data)
            try:
                found = self._encode_text(text.decode())
            except UnicodeDecodeError:
                return None
            if start == begin or back >= _FARTHEST or len(before) >= _MUCH:
                break
            same = common_prefix(ids[start:], found)
            if same >= back // 2 and len(before) > self._added.longest:
                break
            back *= 2
        if start >= floor:
            return start, found
        fixed = len(self._data(ids[start:floor]))
        ends = self._ends(found)
        if fixed in ends:
            return floor, found[ends.index(fixed) :]
        rest = (before + data)[fixed:]
        half = next((place for place, byte in enumerate(rest) if byte & 0xC0 != 0x80), len(rest))
        return floor, self.merges.merge(self.merges.spell(rest[:half])) + self._encode_text(rest[half:].decode())

    def _encode_text(self, text: str) -> list[int]:
        self.string_calls += 1
        ids = self._tokenizer.text_backend.encode(text, add_special_tokens=False).ids
        return list(filter(self.surfaces.__getitem__, ids))  # what has no token is left out, as `Merges.spell` does

    def _data(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of tokens."""
        return b"".join(map(self.surfaces.__getitem__, tokens))

    def _ends(self, tokens: Iterable[int]) -> list[int]:
        """Return 0 and the byte at which each token ends."""
        return list(accumulate((len(self.surfaces[token]) for token in tokens), initial=0))
