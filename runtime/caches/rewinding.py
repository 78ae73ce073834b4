"""Taking a prompt cache of any kind back: by trimming, or to a mark before an earlier pass.

Keys and values of a token can be cut off the end of a cache. A recurrent state cannot: it is the sum of all tokens so
far. So before a pass, a mark remembers the caches that cannot be trimmed afterwards. Going back means going to the
nearest mark before the wanted place, and feeding the tokens between the two again, together with the next ones. All
layers then stand at the mark, also those that could have been trimmed, since a pass feeds every layer the same tokens.

    fed     a b c | f d1 d2 d3        | mark, then a pass over f d1 d2 d3
    wanted  a b c   f d1              d2 is wrong
    held    a b c                     f d1 is fed again before what comes next

Nothing is copied. MLX arrays are values, and assigning to a slice changes the Python object only, so a second object
for the same array still sees the old content.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool.runtime.caches.leaves import flatten, is_unused, trim
from spectool.runtime.groups.mirrored import Spread, mirrored
from spectool.runtime.mlx_lm_compat import KVCache, QuantizedKVCache, windows

_ALWAYS_TRIMMABLE = (KVCache, QuantizedKVCache)  # exactly these classes: any number of tokens can be cut off


class _Mark(NamedTuple):
    """The caches before a pass."""

    length: int  # tokens held
    saved: dict[int, dict[str, Any]]  # attributes of the leaves that cannot be trimmed, by place


class Checkpoints(Spread):
    """How many tokens a prompt cache holds, and its way back."""

    @mirrored
    def __init__(
        self, cache: Sequence[Any], length: int = 0, keep: int = 1, original: "Checkpoints | None" = None
    ) -> None:
        """Follow ``cache``, one entry for each layer, of which some may be replaced (quantised) later.

        It may be taken back by its last ``length`` tokens. Then ``keep`` marks stay: 1 for going back within the latest
        pass. Those of the ``original`` that it is a copy of serve here as well.
        """
        self.length = length  # with the tokens of a pass that has been marked and perhaps not run
        self._cache = cache
        self._keep = keep
        positions = [getattr(leaf, "offset", None) for leaf in flatten(cache)]  # which some do not count
        self._origin: list[Any] = [at - length if isinstance(at, int) else None for at in positions]
        self._marks: list[_Mark] = [] if original is None else list(original._marks)
        self._entries: list[Any] | None = None
        self._look_up()

    @mirrored
    def mark(self, count: int, *, windows_too: bool = False) -> None:
        """Mark the place before a pass over ``count`` tokens; to be called before every pass.

        ``windows_too`` also saves windows that will drop tokens, which is needed to go back by more than one pass, or
        when the tokens are fed in several. The next single token then costs a copy of the window.
        """
        self._look_up()
        marked = bool(self._marks) and self._marks[-1].length == self.length
        # A mark at this place still serves, since it saves the same except for windows.
        if windows_too or not marked:
            if marked:
                self._marks.pop()
            leaves = self._leaves
            saved = [place for place in self._others if not leaves[place].is_trimmable()]
            if windows_too:
                saved += [place for place in self._windows if not windows.keeps_all(leaves[place], count)]
            self._marks.append(self._marked(saved))
        self.length += count

    @mirrored
    def hold(self, length: int, *, for_good: bool = False) -> None:
        """Note that the cache holds ``length`` tokens now, by passes that were not marked here.

        With ``for_good``, the cache can be taken back to this place whatever is fed afterwards. When there are too many
        such places, the second oldest is given up.
        """
        self._look_up()
        self._forget_beyond(length)
        self.length = length
        untrimmable = self._windows + self._others
        if for_good and untrimmable and not (self._marks and self._marks[-1].length == length):
            self._marks.append(self._marked(untrimmable))
            if len(self._marks) > self._keep:
                del self._marks[1]

    @property
    def nbytes(self) -> int:
        """Bytes that the marks hold."""
        parts: Any = tree_flatten([list(mark.saved.values()) for mark in self._marks])
        return sum(part.nbytes for _, part in parts if isinstance(part, mx.array))

    def rewinds_one_token_only(self) -> bool:
        """Whether only the next token could be taken out, and not the pass before it as well.

        This is so in windows that have wrapped: each of the two would have overwritten something.
        """
        self._look_up()
        return not all(windows.keeps_all(self._leaves[place], 1) for place in self._windows)

    @mirrored
    def rewind(self, length: int) -> int | None:
        """Take the caches back to ``length`` tokens, or to the nearest place before; return how many they hold then.

        The missing tokens have to be fed again. None means that there is no way back, and the caches are of no further
        use. Also works after a pass that broke off, since what it has fed is measured layer by layer.

        Raises:
            RuntimeUnsupported: A cache gave up fewer tokens than it should.
        """
        self._look_up()
        while self.length > length and not self._trim(length):
            if not self._marks:
                return None
            # Newest first: a leaf without saved attributes can only give up what came after its own mark.
            self._restore(self._marks[-1])
            if self.length > length:
                self._marks.pop()
        del self._marks[: -self._keep]
        return self.length

    def _look_up(self) -> None:
        """Find the leaves again where entries of the cache have been replaced."""
        if self._entries != self._cache:
            self._entries = list(self._cache)
            self._leaves = flatten(self._entries)
            places = [place for place, leaf in enumerate(self._leaves) if type(leaf) not in _ALWAYS_TRIMMABLE]
            # Those that drop tokens, and others that may not be trimmable.
            self._windows = [place for place in places if isinstance(self._leaves[place], windows.WINDOWS)]
            self._others = [place for place in places if place not in self._windows]

    def _marked(self, places: Sequence[int]) -> _Mark:
        """A mark here that saves the leaves at some places."""
        return _Mark(self.length, {place: _handles(vars(self._leaves[place])) for place in places})

    def _trim(self, length: int) -> bool:
        """Trim every leaf to ``length`` tokens; where one of them cannot, leave all and return False."""
        if None in self._origin:
            return False
        leaves = zip(self._leaves, self._origin, strict=True)
        surpluses = [leaf.offset - at - length if leaf.offset or not is_unused(leaf) else 0 for leaf, at in leaves]
        if min(surpluses, default=0) < 0:
            return False
        if not all(self._leaves[place].is_trimmable() for place in self._others if surpluses[place]):
            return False
        for place in self._windows:
            if surpluses[place] and surpluses[place] > windows.trimmable(self._leaves[place]):
                return False
        for leaf, surplus in zip(self._leaves, surpluses, strict=True):
            if type(leaf) in _ALWAYS_TRIMMABLE:
                leaf.offset -= surplus  # all that its own method does
            elif surplus:
                trim(leaf, surplus)
        self.length = length
        self._forget_beyond(length)
        return True

    def _forget_beyond(self, length: int) -> None:
        while self._marks and self._marks[-1].length > length:
            self._marks.pop()

    def _restore(self, mark: _Mark) -> None:
        """Put every leaf where it was at ``mark``."""
        for place, (leaf, origin) in enumerate(zip(self._leaves, self._origin, strict=True)):
            if place in mark.saved:
                vars(leaf).update(_handles(mark.saved[place]))
            elif type(leaf) in _ALWAYS_TRIMMABLE:
                leaf.offset = min(leaf.offset, origin + mark.length)  # 0 where a layer never uses it
            else:
                trim(leaf, leaf.offset - origin - mark.length)
        self.length = mark.length


def trims_freely(cache: Sequence[Any]) -> bool:
    """Whether any number of tokens can be cut off ``cache`` at any time, so that it needs no marks."""
    return all(type(leaf) in _ALWAYS_TRIMMABLE for leaf in flatten(cache))


def _handle(value: Any) -> Any:
    """``value`` with new objects for its arrays, lists and tuples; the data is shared."""
    kind = type(value)
    if kind is mx.array:
        return value[...]
    if kind is list:
        return [part[...] if type(part) is mx.array else _handle(part) for part in value]
    return tuple(map(_handle, value)) if kind is tuple else value


def _handles(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else _handle(value) for name, value in attributes.items()}
