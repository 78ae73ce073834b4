"""Texts that end a generation, found as it is written."""

from collections.abc import Iterable, Sequence

from spectool import RuntimeUnsupported


class StopStrings:
    """Lets text through up to the first stop string, holding back what may be the beginning of one.

    >>> stops = StopStrings(["END"])
    >>> stops.add("one E"), stops.add("N"), stops.add("T two END three")
    (('one ', ''), ('', ''), ('ENT two ', 'END'))
    """

    def __init__(self, strings: Sequence[str], *, reasoning: tuple[str, str] = ("", ""), thinks: bool = False) -> None:
        """End at any of ``strings``, or at a single one.

        What stands between the markers of ``reasoning`` before an answer ends nothing, nor do line ends after them.
        The text begins with the first marker, or without it if it ``thinks`` already.

        Raises:
            RuntimeUnsupported: They are no texts.
        """
        each = [strings] if isinstance(strings, str) else list(strings) if isinstance(strings, Iterable) else [strings]
        if wrong := [string for string in each if not isinstance(string, str)]:
            raise RuntimeUnsupported(f"stop_strings: expected a text or texts, got {wrong[0]!r}")
        self._strings = [string for string in each if string]
        begin, end = reasoning if self._strings else ("", "")
        self._begin, self._up_to, self._end = ("", end, end) if thinks else (begin, "", end)
        self._skips = False
        self._held = ""

    def add(self, text: str, last: bool = False) -> tuple[str, str]:
        """What of the text so far is certain to stand before any stop string, and the one that was reached, if any.

        That is the one that ends first and, of several that end there, begins first, however the text is cut.
        ``text`` is what was written since the latest call. If it is the ``last``, nothing is held back.
        """
        text = self._held + text
        self._held = ""
        if self._begin:
            begun = text.lstrip()
            if len(begun) < len(self._begin) and self._begin.startswith(begun) and not last:
                self._held = text
                return "", ""
            self._up_to = self._end if begun.startswith(self._begin) else ""
            self._begin = ""
        if self._up_to and (place := text.find(self._up_to)) < 0:
            kept = len(text) - (0 if last else overlap(text, self._up_to))
            self._held = text[kept:]
            return text[:kept], ""
        free = ""
        if self._up_to:
            free, text = text[: place + len(self._up_to)], text[place + len(self._up_to) :]
            self._up_to, self._skips = "", True
        if self._skips:
            answer = text.lstrip("\n")
            free, text, self._skips = free + text[: len(text) - len(answer)], answer, not answer
        certain, string = self._up_to_string(text, last)
        return free + certain, string

    def _up_to_string(self, text: str, last: bool) -> tuple[str, str]:
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
