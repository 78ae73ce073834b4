"""Texts that end a generation, found as it is written."""

from collections.abc import Iterable, Sequence

from spectool import RuntimeUnsupported


class StopStrings:
    """Lets text through up to the first stop string, holding back what may be the beginning of one.

    >>> stops = StopStrings(["END"])
    >>> stops.add("one E"), stops.add("N"), stops.add("T two END three")
    (('one ', ''), ('', ''), ('ENT two ', 'END'))
    """

    def __init__(self, strings: Sequence[str]) -> None:
        """End at any of ``strings``, or at a single one.

        Raises:
            RuntimeUnsupported: They are no texts.
        """
        each = [strings] if isinstance(strings, str) else list(strings) if isinstance(strings, Iterable) else [strings]
        if wrong := [string for string in each if not isinstance(string, str)]:
            raise RuntimeUnsupported(f"stop_strings: expected a text or texts, got {wrong[0]!r}")
        self._strings = [string for string in each if string]
        self._held = ""

    def add(self, text: str, last: bool = False) -> tuple[str, str]:
        """What of the text so far is certain to stand before any stop string, and the one that was reached, if any.

        That is the one that ends first and, of several that end there, begins first, however the text is cut.
        ``text`` is what was written since the latest call. If it is the ``last``, nothing is held back.
        """
        text = self._held + text
        self._held = ""
        found = [(place + len(each), place, each) for each in self._strings if (place := text.find(each)) >= 0]
        if found:
            _, place, string = min(found)
            return text[:place], string
        if last:
            return text, ""
        kept = len(text) - max((overlap(text, string) for string in self._strings), default=0)
        self._held = text[kept:]
        return text[:kept], ""


def overlap(text: str, string: str) -> int:
    """Length of the longest end of ``text`` that ``string`` begins with and goes beyond."""
    most = min(len(text), len(string) - 1)
    return next((length for length in range(most, 0, -1) if text.endswith(string[:length])), 0)
