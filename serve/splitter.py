"""What a chat model writes, taken apart: text, reasoning, and calls of tools.

Reasoning stands between the markers of the model, before the answer or, as GPT-OSS writes it, in a channel of its own.
Calls stand between markers, in a form of `call_forms`. Some models leave out the markers, so an answer that is nothing
but calls in JSON, one after the other and perhaps in a code fence, is calls too. What cannot be read as it was written,
or calls something that the request does not offer, is text like any other, markers included.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from spectool.runtime.chat_template import has_channels
from spectool.runtime.decoding.marked_text import MarkedText
from spectool.serve.call_forms import BARE, JSON, CallReader, Form, in_string
from spectool.serve.deltas import Call, Delta

_FENCE = re.compile(r"\A\s*```(?:json)?|```\s*\Z")  # around JSON in Markdown
_ANALYSIS = ("<|channel|>analysis", "<|end|>")  # around reasoning in a channel, and what stands between messages
_BETWEEN: tuple[str, ...] = ("<|start|>assistant", "<|message|>", "<|end|>", "<|call|>")
_BETWEEN += ("<|channel|>commentary", "<|channel|>final", " <|constrain|>json")


class Splitter(MarkedText):
    """Takes one answer apart as it is written, holding back what may turn out to be part of a marker or a call."""

    def __init__(
        self, tokenizer: Any, tools: Sequence[Mapping[str, Any]], *, reasoning: bool | None, bare: bool = True
    ) -> None:
        """Begin an answer to a request that offers ``tools``; without any, there are no calls.

        ``reasoning`` is that of `Grammar`; with None, it is text. ``bare`` calls, without markers, are read unless the
        answer is to be JSON itself.
        """
        super().__init__()
        self._reader = CallReader(tokenizer, tools)
        self._starts = self._reader.forms.keys()
        self._bare = bool(tools) and bare
        channels = has_channels(tokenizer)
        think = _ANALYSIS if channels else (tokenizer.think_start or "", tokenizer.think_end or "")
        self._think = ("", "") if reasoning is None else think
        between = _BETWEEN if channels else getattr(tokenizer, "structural_markers", ())
        self._between = () if reasoning is None else between  # markers that are no text
        self.thinks = bool(reasoning)  # whether what comes next is reasoning
        self._space: str | None = None  # written since a call; None unless a call was the last thing written
        self._length = 0  # of the text so far
        self.ids = set[str]()  # of the calls so far

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
            yield from self._line_ends()
        if self.thinks:
            yield from self._write_reasoning(closing)
        if self._bare:
            yield from self._write_bare_calls()
        again = [opening] if opening and self._between else []
        while True:
            marker = yield from self._write_up_to(*self._starts, *self._between, *again)
            if marker in self._starts:
                yield from self._write_calls(self._reader.forms[marker])
            elif marker in again:
                self.thinks = True
                yield from self._write_reasoning(closing)

    def _write_bare_calls(self) -> Iterator[None]:
        """Write an answer that is nothing but calls in JSON, without the one in which it was cut."""
        begins = self._reader.begins
        while begins(BARE, self._held) is not False and not self._last:
            yield
        calls, rest = self._reader.parsed(BARE, _FENCE.sub("", self._held))
        begun = begins(BARE, rest) if self._cut or not rest.strip() else False
        if begun:
            with suppress(ValueError, RecursionError):
                JSON.raw_decode(rest.lstrip())
                begun = False  # it is whole, and nothing that can be called
        if begun or (begun is None and calls):
            self._gain(calls, "")

    def _write_calls(self, form: Form) -> Iterator[None]:
        """Write the calls after a start, or text where there are none that can be read, once that is certain.

        Quotes show whether an end stands in a string; without them, the beginning of the next calls shows it.
        """
        reader, tried = self._reader, 0  # what has been tried need not be looked at again
        while (begun := reader.begins(form, self._held)) is not False:
            while (place := self._held.find(form.mark, tried)) >= 0:
                after, end = place + len(form.mark), place + form.skipped
                certain = reader.begins(form, self._held[after:]) if form.verbatim else True
                if certain is None:
                    break
                calls, rest = reader.whole(form, self._held[:end]) if certain else ([], "")
                if calls:
                    return self._gain(calls, rest + self._held[end:])
                if not form.verbatim and not in_string(self._held[:place]):
                    return self._write_back(form, end)
                tried = after
            if self._last:
                break
            yield
        if begun is False:
            return self._write_back(form, 0)
        calls, rest = reader.whole(form, self._held)
        follows = rest.lstrip()[: len(form.start)]
        if calls and (
            not self._cut or (form.start.startswith(follows) if form.end else reader.begins(form, rest) is False)
        ):
            return self._gain(calls, rest)
        if self._cut:
            calls, rest = reader.parsed(form, self._held)
            if form.verbatim and not reader.begins(form, rest):  # the latest may go on
                calls = calls[:-1]
            if calls or not form.end or form.end not in self._held:
                return self._gain(calls, "")
        place = -1 if form.verbatim else self._held.find(form.mark)
        self._write_back(form, len(self._held) if place < 0 else place + form.skipped)

    def _write_back(self, form: Form, length: int) -> None:
        """Write a start that begins no calls, and this much of what follows."""
        self._write(form.start + self._held[:length])
        self._held = self._held[length:]

    def _gain(self, calls: Sequence[Call], rest: str) -> None:
        """Add calls, each with an identifier of its own, and go on with the ``rest``."""
        for call in calls:
            # The model's, unless it repeats one. Templates of Mistral's refuse others than of nine letters and digits.
            call_id = call.id if call.id and call.id not in self.ids else uuid4().hex[:9]
            self.ids.add(call_id)
            self._gained.calls.append(call._replace(id=call_id, begins=self._length))
            self._space = ""
        self._held = rest

    def _write_reasoning(self, closing: str) -> Iterator[None]:
        """Write reasoning up to its end or, if it has none, up to a call."""
        while (marker := (yield from self._write_up_to(closing, *self._starts, *self._between))) != closing:
            if (form := self._reader.forms.get(marker)) is None:
                continue
            while closing not in self._held and not self._last and self._reader.begins(form, self._held) is not False:
                yield
            called = closing not in self._held and self._reader.begins(form, self._held) is not False
            if called and not self._cut:
                self._held, self.thinks = marker + self._held, False
                return
            self._write(marker)
        self.thinks = False
        yield from self._line_ends()

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
            self._length += len(text)
