"""What a chat model writes, taken apart: text, reasoning, and calls of tools.

A call stands between markers, in a form that depends on the model, and mlx-lm has the parsers. What does not parse, or
calls something that the request does not offer, is text like any other, markers included.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

_ESCAPED = re.compile(r"\\.", re.DOTALL)  # character in a string of JSON


class Call(NamedTuple):
    """A call of a tool."""

    id: str
    name: str
    arguments: str  # a JSON object


@dataclass(slots=True)
class Parts:
    """What a piece of an answer consists of."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


class Splitter:
    """Takes one answer apart as it is written, holding back what may turn out to be part of a marker or a call.

    Attributes:
        thinks: Whether what comes next is reasoning.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Mapping[str, Any]], *, reasoning: bool, thinks: bool) -> None:
        """Begin an answer to a request that offers ``tools``; without any, there are no calls.

        ``reasoning`` is told apart from text if that is wanted. An answer that ``thinks`` begins with it, because the
        prompt ends in its marker.
        """
        self._tools = list(tools)
        self._names = {tool["function"]["name"] for tool in tools}
        self._parser = tokenizer.tool_parser
        self._call = (tokenizer.tool_call_start or "", tokenizer.tool_call_end or "") if tools else ("", "")
        self._think = (tokenizer.think_start or "", tokenizer.think_end or "") if reasoning else ("", "")
        self.thinks = thinks and reasoning
        self._began = self.thinks  # whether anything but white space has been written
        self._after_marker = False
        self._held = ""
        self._in_strings = 0  # characters of a call up to which its strings have been searched for the end marker
        self._space: str | None = None  # written since a call; None unless a call was the last thing written

    def add(self, text: str, last: bool = False) -> Parts:
        """What of the answer so far is certain; with ``last``, nothing is held back."""
        self._held += text
        parts = Parts()
        while self._held and self._step(parts, last):
            pass
        return parts

    def _step(self, parts: Parts, last: bool) -> bool:
        """Take the next part off what is held; return whether there may be another one."""
        if self._after_marker:  # of reasoning, where models put line ends
            self._held = self._held.lstrip("\n")
            self._after_marker = not self._held
        if self.thinks:
            before, found = self._up_to(self._think[1], last)
            parts.reasoning += before
            self.thinks = not found
            self._after_marker = found
            return found
        if self._think[0] and not self._began:
            bare = self._held.lstrip()
            if bare.startswith(self._think[0]):
                self._held = bare[len(self._think[0]) :]
                self.thinks = self._began = self._after_marker = True
                return True
            if self._think[0].startswith(bare) and not last:
                return False
        self._began = True
        before, found = self._up_to(self._call[0], last)
        self._write(before, parts)
        return found and self._take_call(parts, last)

    def _write(self, text: str, parts: Parts) -> None:
        """Add text; white space after a call waits for what follows it, because models put line ends around calls."""
        if self._space is not None:
            text = self._space + text
            self._space = None if text.strip() else text
        if self._space is None:
            parts.text += text

    def _take_call(self, parts: Parts, last: bool) -> bool:
        """Parse what follows the marker that was just passed; what is no call becomes text."""
        start, end = self._call
        place = self._held.find(end, self._in_strings) if end else -1
        while place >= 0 and _is_inside_string(self._held[:place]):
            self._in_strings = place + len(end)
            place = self._held.find(end, self._in_strings)
        if place < 0 and not last:
            self._held = start + self._held
            return False
        self._in_strings = 0
        body = self._held if place < 0 else self._held[:place]
        calls = self._parsed(body)
        if calls is None:
            self._write(start, parts)
            return True
        parts.calls += calls
        self._space = ""
        self._held = "" if place < 0 else self._held[place + len(end) :]
        return True

    def _up_to(self, marker: str, last: bool) -> tuple[str, bool]:
        """Take what precedes ``marker``, and the marker; without one, what cannot be the beginning of it."""
        before, found, after = self._held.partition(marker) if marker else (self._held, "", "")
        if found:
            self._held = after
            return before, True
        likely = 0 if last else next((n for n in range(len(marker) - 1, 0, -1) if before.endswith(marker[:n])), 0)
        kept = len(before) - likely
        self._held = before[kept:]
        return before[:kept], False

    def _parsed(self, body: str) -> tuple[Call, ...] | None:
        try:
            found = self._parser(body, self._tools)
            calls = [self._checked(call) for call in (found if isinstance(found, list) else [found])]
        except Exception:  # parsers raise all kinds of errors
            return None
        return tuple(calls) or None

    def _checked(self, call: Any) -> Call:
        arguments = call["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        if call["name"] not in self._names or not isinstance(arguments, dict):
            raise ValueError
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        # JSON can escape half of a surrogate pair, which UTF-8 does not have.
        written = written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        # Templates of Mistral's refuse other identifiers than of nine letters and digits.
        return Call(uuid4().hex[:9], call["name"], written)


def _is_inside_string(text: str) -> bool:
    """Whether a JSON object that begins like this is in the middle of a string."""
    return text.lstrip().startswith("{") and _ESCAPED.sub("", text).count('"') % 2 == 1
