"""What a chat model writes, taken apart: text, reasoning, and calls of tools, which `tool_calls` reads.

Reasoning stands between the markers of the model, before the answer or, as GPT-OSS writes it, in a channel of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spectool.runtime.chat_template import has_channels
from spectool.runtime.decoding.stop_strings import MarkedText
from spectool.serve.call_forms import BARE, Form
from spectool.serve.deltas import Call, Delta
from spectool.serve.tool_calls import CallReader

_ANALYSIS = ("<|channel|>analysis", "<|end|>")  # around reasoning in a channel, and what stands between messages
_BETWEEN: tuple[str, ...] = ("<|start|>assistant", "<|message|>", "<|end|>", "<|call|>")
_BETWEEN += ("<|channel|>commentary", "<|channel|>final", " <|constrain|>json")


class Splitter(MarkedText):
    """Takes one answer apart as it is written, holding back what may turn out to be part of a marker or a call."""

    def __init__(
        self, tokenizer: Any, tools: Sequence[Mapping[str, Any]], *, reasoning: bool, thinks: bool, bare: bool = True
    ) -> None:
        """Begin an answer to a request that offers ``tools``; without any, there are no calls.

        ``reasoning`` is told apart from text if that is wanted. An answer that ``thinks`` begins with it, because the
        prompt ends in its marker. ``bare`` calls, without markers, are read unless the answer is to be JSON itself.
        """
        super().__init__()
        self._reader = CallReader(tokenizer, tools)
        self._starts = self._reader.forms.keys()
        self._bare = bool(tools) and bare
        channels = has_channels(tokenizer)
        think = _ANALYSIS if channels else (tokenizer.think_start or "", tokenizer.think_end or "")
        self._think = think if reasoning else ("", "")
        between = _BETWEEN if channels else getattr(tokenizer, "structural_markers", ())
        self._between = between if reasoning else ()  # markers that are no text
        self.thinks = thinks and reasoning  # whether what comes next is reasoning
        self._space: str | None = None  # written since a call; None unless a call was the last thing written

    def add(self, text: str, last: bool = False, *, cut: bool = False) -> Delta:
        """What of the answer so far is certain; with ``last``, nothing is held back.

        A call that is not finished because the answer was ``cut`` there is left out.
        """
        self._cut, self._gained = cut, Delta()
        self._extend(text, last)
        return self._gained

    def _take_apart(self) -> Iterator[None]:
        """Write the text that is held back, and yield wherever that needs more of it."""
        opening, closing = self._think
        if opening and not self.thinks and (yield from self._begins_with(opening)):
            self._held, self.thinks = self._held.lstrip()[len(opening) :], True
            yield from self._skip_line_ends()
        if self.thinks:
            yield from self._write_reasoning(closing)
        if self._bare:
            while self._reader.begins(BARE, self._held) is not False and not self._last:
                yield
            if (calls := self._reader.bare(self._held, self._cut)) is not None:
                self._held = ""
                self._gained.calls += calls
                return
        again = [opening] if opening and self._between else []
        while True:
            marker = yield from self._write_up_to(*self._starts, *self._between, *again)
            if marker in self._starts:
                yield from self._write_calls(self._reader.forms[marker])
            elif marker in again:
                self.thinks = True
                yield from self._write_reasoning(closing)

    def _write_calls(self, form: Form) -> Iterator[None]:
        """Write the calls after a start, or text where there are none that can be read."""
        text, calls, tried = None, list[Call](), 0
        while text is None and self._reader.begins(form, self._held) is not False:
            text, calls, self._held, tried = self._reader.read(form, self._held, tried, self._last, self._cut)
            if text is None:
                yield
        self._write(form.start if text is None else text)
        self._gained.calls += calls
        self._space = "" if calls else self._space

    def _write_reasoning(self, closing: str) -> Iterator[None]:
        """Write reasoning up to its end or, if it has none, up to a call."""
        while (marker := (yield from self._write_up_to(closing, *self._starts, *self._between))) != closing:
            if marker not in self._starts:
                continue
            form = self._reader.forms[marker]
            while (
                called := closing not in self._held and self._reader.begins(form, self._held) is not False
            ) and not self._last:
                yield
            if called and not self._cut:
                self._held, self.thinks = marker + self._held, False
                return
            self._write(marker)
        self.thinks = False
        yield from self._skip_line_ends()

    def _holds_back(self) -> bool:
        # Where an answer is cut after a call, another one may have begun.
        return not self._last or (self._cut and (self._space is not None or bool(self._between)))

    def _write(self, text: str) -> None:
        """Add text or reasoning. White space after a call waits for what follows, as models put line ends there."""
        if self.thinks:
            self._gained.reasoning += text
            return
        if self._space is not None:
            text = self._space + text
            self._space = None if text.strip() else text
        if self._space is None:
            self._gained.text += text

    def _skip_line_ends(self) -> Iterator[None]:
        """Drop those that models put after a marker of reasoning."""
        while not self._held.strip("\n") and not self._last:
            yield
        self._held = self._held.lstrip("\n")
