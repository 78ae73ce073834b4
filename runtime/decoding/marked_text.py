"""Text taken apart at markers as it is written, such as the stop strings that end a generation."""

from collections.abc import Generator, Iterator


class MarkedText:
    """A text that is taken apart at markers, holding back what may be the beginning of one.

    `_take_apart` consumes ``_held`` and yields where it needs more text. After ``_last`` is set, no more will come.
    """

    def __init__(self) -> None:
        self._held, self._last = "", False
        self._parts = self._take_apart()

    def _extend(self, text: str, last: bool) -> None:
        self._held, self._last = self._held + text, last
        next(self._parts, None)

    def _take_apart(self) -> Iterator[None]:
        raise NotImplementedError

    def _write(self, text: str) -> None:
        raise NotImplementedError

    def _holds_back(self) -> bool:
        """Whether the end of the text may be the beginning of a marker."""
        return not self._last

    def _begins_with(self, marker: str) -> Generator[None, None, bool]:
        """Whether the text begins with a marker, after white space."""
        while len(begun := self._held.lstrip()) < len(marker) and marker.startswith(begun) and not self._last:
            yield
        return begun.startswith(marker)

    def _line_ends(self) -> Generator[None, None, str]:
        """Take off the line ends that the text begins with."""
        while not self._held.strip("\n") and not self._last:
            yield
        rest = self._held.lstrip("\n")
        ends, self._held = self._held[: len(self._held) - len(rest)], rest
        return ends

    def _write_up_to(self, *markers: str) -> Generator[None, None, str]:
        """Write what precedes the marker that ends first, of several the longest; it is dropped and returned."""
        while not (found := [(place, each) for each in markers if (place := self._held.find(each)) >= 0]):
            # A space at the end of a text that is cut there is text, though markers can begin with one.
            looked_for = [each.lstrip() if self._last else each for each in markers if self._holds_back()]
            certain = len(self._held) - max((_overlap(self._held, each) for each in looked_for), default=0)
            self._write(self._held[:certain])
            self._held = self._held[certain:]
            yield
        place, marker = min(found, key=lambda each: (each[0] + len(each[1]), each[0]))
        self._write(self._held[:place])
        self._held = self._held[place + len(marker) :]
        return marker


def _overlap(text: str, string: str) -> int:
    """Length of the longest end of ``text`` that ``string`` begins with and goes beyond."""
    most = min(len(text), len(string) - 1)
    return next((length for length in range(most, 0, -1) if text.endswith(string[:length])), 0)
