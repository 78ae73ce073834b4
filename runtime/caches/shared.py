"""Caches of several texts in one array for each layer; every row ends where its text ends.

mlx-lm's own batch caches end at one place for all rows, so rows that accept different numbers of drafts have to be
rolled into line, a copy of the cache in every cycle. Here each row has its own length. A pass writes at the end of each
row, and what a row rejects is hidden by the mask until it is written over:

    row 0   a b c d e f . .    length 4, pass over e f: both right, length 6
    row 1   p q r x . . . .    length 2, pass over r x: x is wrong, length 3

In a layer with a window, a row is a ring: the token at position p lies in slot p modulo the number of slots. There are
more slots than the window has tokens, so that rejected drafts overwrite nothing that later tokens see.

A recurrent layer has no positions. It keeps the states of a *mark*, before the pass or before the first of several, and
a row with a wrong token gets its old state again. All layers of this row then stand where they stood at the mark, and
the next pass feeds its right tokens again.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from spectool.runtime.caches.leaves import flatten
from spectool.runtime.groups.mirrored import Spread, mirrored
from spectool.runtime.groups.rank_0 import forward
from spectool.runtime.mlx_lm_compat import ArraysCache, CacheList, KVCache, RotatingKVCache, windows
from spectool.runtime.mlx_lm_compat.pass_size import exact_until
from spectool.runtime.per_model import once_per_model

_TRIED = 11  # rows
_ROUNDING = 0.02  # of the largest number in a state
STEP = 256  # tokens by which arrays grow, as in mlx-lm


def kind_of(model: Any, cache: Sequence[Any]) -> tuple[Any, ...] | None:
    """What the caches of rows that share passes have in common; None where ``cache`` cannot share any.

    Quantised and chunked caches cannot, nor can models that need the position of a token as a single number, or whose
    recurrent layers take the padding of a row for tokens.
    """
    leaves = flatten(cache)
    if exact_until(model) is not None:
        return None  # drafts of one row would change what another one reads
    if not all(type(leaf) in (KVCache, RotatingKVCache, ArraysCache) for leaf in leaves):
        return None
    kind = tuple((type(leaf), getattr(leaf, "max_size", 0), getattr(leaf, "keep", 0)) for leaf in leaves)
    known = _known_kinds(model)
    if kind not in known:
        try:
            known[kind] = _reads_rows_apart(model, cache)
        except Exception:  # models raise all kinds of errors at caches that they do not know
            known[kind] = False
    return kind if known[kind] else None


_known_kinds = once_per_model(lambda model: dict[tuple[Any, ...], bool]())
"""By what caches of a model have in common, whether it reads rows apart; filled as it is asked."""


def _reads_rows_apart(model: Any, cache: Sequence[Any]) -> bool:
    """Whether the first recurrent layer, if there is one, has the same states with padding as without.

    Other layers are built and not computed. There are more rows than a model has groups of heads, so that positions and
    masks in the wrong place do not fit by accident.
    """
    tokens = mx.arange(3 * _TRIED).reshape(_TRIED, 3) % 8
    found = list[list[mx.array]]()
    for width in (3, 1):
        caches = BatchCache(cache, 3, list(range(1, _TRIED + 1)))
        caches.begin([width] + [1] * (_TRIED - 1))
        forward(model, tokens[:, :width], caches)
        found.append([state for states in caches.recurrent[:1] for state in states.arrays()])
    return all(
        bool(mx.abs(one[1:] - other[1:]).max() <= _ROUNDING * mx.abs(other[1:]).max())
        for one, other in zip(*found, strict=True)
    )


class BatchCache(Spread):
    """The caches of a model for the rows of a batch; ``entries`` are what the model takes as its cache."""

    @mirrored
    def __init__(self, like: Sequence[Any], width: int, lengths: Sequence[int] = ()) -> None:
        """Make caches ``like`` those of one text, for passes over at most ``width`` tokens of a row.

        There are no rows, or empty ones that say that they have these ``lengths``.
        """
        self.lengths = list(lengths)  # tokens of each row, with those of a pass that has begun
        self.least = [0] * len(lengths)  # to which each row can be taken back, for its windows to be whole
        self._marked = list(lengths)  # at the mark
        self._layouts: dict[tuple[int, int], _Layout] = {}
        self.recurrent: list[_RecurrentRows] = []

        def rows_like(entry: Any) -> Any:
            if hasattr(entry, "caches"):
                return CacheList(*map(rows_like, entry.caches))
            if type(entry) is ArraysCache:
                self.recurrent.append(_RecurrentRows(len(entry.cache)))
                return self.recurrent[-1]
            window, keep = getattr(entry, "max_size", 0), getattr(entry, "keep", 0)
            layout = self._layouts.setdefault((window, keep), _Layout(window, keep, width))
            return _AttentionRows(layout)

        self.entries = [rows_like(entry) for entry in like]
        self._leaves = flatten(self.entries)

    @mirrored
    def join(self, cache: Sequence[Any], length: int) -> None:
        """Add a row that holds what ``cache`` of one text holds, ``length`` tokens."""
        longest, row = max(*self.lengths, length, 0), len(self.lengths)
        leaves = zip(self._leaves, flatten(cache), strict=True)
        self.least.append(max([leaf.join(row, single, longest) for leaf, single in leaves]))
        self.lengths.append(length)
        self._marked.append(length)

    @mirrored
    def leave(self, row: int, cache: Sequence[Any], length: int, spare: int = 0) -> int | None:
        """Take a row out and put its first ``length`` tokens, or fewer, into ``cache``; return how many.

        The last row takes its place. Windows come with up to ``spare`` tokens more than they need, so that as many can
        be trimmed. None means that a window misses something, and ``cache`` is of no use.
        """
        last = len(self.lengths) - 1
        self._take_back({row: length})
        length, extra = self.lengths[row], self.lengths[row] - self.least[row]
        for leaf, single in zip(self._leaves, flatten(cache), strict=True):
            leaf.leave(row, last, single, length, max(0, min(spare, extra)))
        for each in (self.lengths, self._marked, self.least):
            each[row] = each[last]
            each.pop()
        return length if extra >= 0 else None

    @mirrored
    def mark(self, rows: Sequence[int] | None = None) -> None:
        """Mark the place to which recurrent layers can be taken back, of all rows or of some."""
        marked = [rows is None or row in rows for row in range(len(self.lengths))]
        self._marked = [
            now if at else before for at, now, before in zip(marked, self.lengths, self._marked, strict=True)
        ]
        for states in self.recurrent:
            states.mark(marked)

    def returnable(self, row: int) -> int:
        """The most tokens to which a row can be taken back that rejects some of the latest ones."""
        return self._marked[row] if self.recurrent else self.lengths[row]

    @mirrored
    def begin(self, counts: Sequence[int]) -> None:
        """Prepare for a pass in which each row feeds as many tokens as ``counts`` says, and padding after them."""
        ends = [length + max(counts) for length in self.lengths]
        for layout in self._layouts.values():
            layout.begin(self.lengths, max(counts))
            self.least = list(map(max, self.least, map(layout.least, ends)))
        for states in self.recurrent:
            states.begin(counts)
        self.lengths = [length + count for length, count in zip(self.lengths, counts, strict=True)]

    @mirrored
    def take_back(self, lengths: Sequence[int]) -> None:
        """Take each row back to this many tokens, where it has more; with recurrent layers, to those at the mark."""
        self._take_back(dict(enumerate(lengths)))

    def _take_back(self, lengths: Mapping[int, int]) -> None:
        longer = {row: length for row, length in lengths.items() if length < self.lengths[row]}
        if longer and self.recurrent:
            longer = {row: self._marked[row] for row in longer}
            for states in self.recurrent:
                states.restore([row in longer for row in range(len(self.lengths))])
        for row, length in longer.items():
            self.lengths[row] = length

    def arrays(self) -> list[mx.array]:
        """All arrays, to be evaluated together with a pass."""
        return [array for leaf in self._leaves for array in leaf.arrays()]


class _Layout:
    """Where the tokens of each row lie in layers with the same window; 0 for none."""

    def __init__(self, window: int, keep: int, width: int) -> None:
        self._window, self.keep = window, keep
        # A pass may be rejected, and the one after it be under way, when a row leaves.
        self.slots = window + 2 * width if window else 0

    def begin(self, lengths: Sequence[int], width: int) -> None:
        """Place ``width`` tokens after each row."""
        self.offset = mx.array(list(lengths), dtype=mx.int32)
        self.rows = mx.arange(len(lengths))[:, None]
        self._queries = self.offset[:, None] + mx.arange(width, dtype=mx.int32)
        self.places = self.slots_of(self._queries)
        self.extent = max(lengths) + width
        if self._window:
            self.extent = min(self.extent, self.slots)
        self._masks: dict[int, mx.array] = {}

    def least(self, end: int) -> int:
        """The fewest tokens with a whole window in a row that has been written up to ``end``."""
        return end - self.slots + self._window if 0 < self.slots < end else 0

    def slots_of(self, positions: mx.array) -> mx.array:
        """The slots in which tokens at these positions lie."""
        if not self._window:
            return positions
        ring = self.slots - self.keep
        return mx.where(positions < self.slots, positions, self.keep + (positions - self.keep) % ring)

    def mask(self, window: int) -> mx.array:
        """What each token sees, bool [rows, 1, tokens, extent]; ``window`` is the model's own limit, 0 for none."""
        if window not in self._masks:
            windows.require_known_mask(self.keep, self._window, window)
            queries, slots = self._queries[:, None, :, None], mx.arange(self.extent, dtype=mx.int32)
            limits = [limit for limit in (self._window - self.keep, window) if limit > 0]
            if self._window:
                last = self._queries[:, None, None, -1:]
                position = last - (last - slots) % (self.slots - self.keep)
                seen = (position >= self.keep) & (position <= queries)
            else:
                position = slots
                seen = position <= queries
            for limit in limits:
                seen = seen & (queries - position < limit)
            if self.keep:
                seen = mx.where(slots < self.keep, slots <= queries, seen)
            self._masks[window] = seen
        return self._masks[window]


class _AttentionRows:
    """Keys and values of one layer, each [rows or more, heads, slots or fewer, size], as a model takes a cache."""

    def __init__(self, layout: _Layout) -> None:
        self._layout = layout
        self.keys: Any = None  # which a model that is spread layer by layer sets to make them wait for what it sends
        self.values: Any = None

    @property
    def offset(self) -> mx.array:
        """Tokens that each row holds before the pass, int32 [rows]."""
        return self._layout.offset

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """What each of the ``N`` tokens of a row sees, bool [rows, 1, N, slots]."""
        return self._layout.mask(window_size or 0)

    def update_and_fetch(self, *new: mx.array) -> tuple[mx.array, ...]:
        """Write the new keys and values at the end of each row, and return those of all rows."""
        layout, rows = self._layout, new[0].shape[0]
        self._make_room(new, rows, layout.extent)
        both = self.keys, self.values
        for held, each in zip(both, new, strict=True):
            held[layout.rows, :, layout.places] = each.transpose(0, 2, 1, 3)
        return tuple(held[:rows, :, : layout.extent] for held in both)

    def join(self, row: int, single: Any, longest: int) -> int:
        """Copy what the cache of one text holds into a row; return the fewest tokens with a whole window in it.

        The longest row then has ``longest`` tokens.
        """
        if single.keys is None or not single.offset:
            return 0
        both, positions = windows.held_in_order(single, self._layout.slots)
        self._make_room(both, row + 1, longest)
        places = self._layout.slots_of(positions)
        for held, each in zip(self.arrays(), both, strict=True):
            held[row, :, places] = each[0]
        mx.eval(self.arrays())
        single.keys = single.values = None  # which nothing needs any more
        return single.offset - positions.size + single.max_size if positions.size < single.offset else 0

    def leave(self, row: int, last: int, single: Any, length: int, spare: int) -> None:
        """Copy a row into the cache of one text, and the last row into its place."""
        window, keep = getattr(single, "max_size", 0), self._layout.keep
        entries = min(length, window + spare) if window else length
        first = mx.arange(min(keep, entries))
        places = self._layout.slots_of(mx.concatenate([first, mx.arange(length - entries + first.size, length)]))
        # Copied at once: a view would keep the arrays of the whole batch, and make the next pass copy them.
        room = entries if window else -(-entries // STEP) * STEP
        both = self.arrays()
        taken = [mx.zeros((1, each.shape[1], room, each.shape[3]), each.dtype) for each in both]
        for each, rows in zip(taken, both, strict=True):
            each[0, :, :entries] = rows[row][:, places]
        mx.eval(taken)
        # A layer without attention writes nothing.
        windows.fill(single, taken, length if taken else 0, entries)
        if row != last:
            for each in both:
                each[row] = each[last]
            mx.eval(both)

    def arrays(self) -> list[mx.array]:
        return [] if self.keys is None else [self.keys, self.values]

    def _make_room(self, like: Sequence[mx.array], rows: int, slots: int) -> None:
        """Have room for this many rows and slots, which the texts need now; where there is not, for no more."""
        slots = min(-(-slots // STEP) * STEP, self._layout.slots or sys.maxsize)
        have = (0, 0, 0, 0) if self.keys is None else self.keys.shape
        if have[0] >= rows and have[2] >= slots:
            return
        made = [mx.zeros((rows, each.shape[1], slots, each.shape[3]), each.dtype) for each in like]
        for each, before in zip(made, self.arrays(), strict=self.keys is not None):
            kept = before[:rows, :, :slots]
            each[: kept.shape[0], :, : kept.shape[2]] = kept
        self.keys, self.values = made


class _RecurrentRows(ArraysCache):  # type: ignore[misc]  # mlx-lm has no types
    """The states of one recurrent layer, each [rows, ...]."""

    cache: list[mx.array | None]
    lengths: mx.array | None

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._marked: list[mx.array | None] = list(self.cache)

    def join(self, row: int, single: Any, longest: int) -> int:
        """Add the states of one text."""
        self.cache = [_joined(all_, one, row) for all_, one in zip(self.cache, single.cache, strict=True)]
        self._marked = [_joined(all_, one, row) for all_, one in zip(self._marked, single.cache, strict=True)]
        mx.eval(self.arrays())
        single.cache = [None for _ in single.cache]
        return 0

    def leave(self, row: int, last: int, single: Any, length: int, spare: int) -> None:
        """Copy the states of a row into the cache of one text, and those of the last row into their place."""
        order = mx.array([last if at == row else at for at in range(last)], dtype=mx.int32)
        single.cache = [None if each is None else mx.contiguous(each[row : row + 1]) for each in self.cache]
        mx.eval([each for each in single.cache if each is not None])
        self.cache, self._marked = (
            [None if each is None else each[order] for each in states] for states in (self.cache, self._marked)
        )
        self.lengths = None

    def mark(self, rows: Sequence[bool]) -> None:
        """Remember the states of these rows."""
        self._marked = list(self.cache) if all(rows) else _mixed(self._marked, self.cache, rows)

    def begin(self, counts: Sequence[int]) -> None:
        """Say where each row's tokens end."""
        self.lengths = mx.array(list(counts), dtype=mx.int32) if min(counts) < max(counts) else None

    def restore(self, rows: Sequence[bool]) -> None:
        """Give these rows the states that were marked."""
        self.cache = _mixed(self.cache, self._marked, rows)

    def arrays(self) -> list[mx.array]:
        return [each for each in self.cache if each is not None]


def _mixed(
    states: Sequence[mx.array | None], others: Sequence[mx.array | None], rows: Sequence[bool]
) -> list[mx.array | None]:
    """``states``, those of ``rows`` from ``others``; a state that nothing has been fed to yet is zero."""
    from_others = mx.array(list(rows))

    def mixed(one: mx.array | None, other: mx.array | None) -> mx.array | None:
        if (known := other if one is None else one) is None:
            return None
        chosen = from_others.reshape(-1, *[1] * (known.ndim - 1))
        return mx.where(chosen, 0 if other is None else other, 0 if one is None else one)

    return [mixed(one, other) for one, other in zip(states, others, strict=True)]


def _joined(all_: mx.array | None, one: mx.array | None, rows: int) -> mx.array | None:
    """The states of ``rows`` rows and one more, with zeros for what was never fed; None if nothing was."""
    if (known := one if all_ is None else all_) is None:
        return None
    zeros = mx.zeros((rows + 1, *known.shape[1:]), known.dtype)
    return mx.concatenate([zeros[:rows] if all_ is None else all_, zeros[:1] if one is None else one])
