"""What a chat model writes, taken apart: text, reasoning, and calls of tools.

A call stands between markers, in a form of `call_forms`, and the end marker says whether it is whole. Some models leave
out the markers, so an answer that is nothing but calls in JSON, one after the other and perhaps in a code fence, is
calls too. What cannot be read as it was written, or calls something that the request does not offer, is text like any
other, markers included.
"""

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from spectool.runtime.decoding.stop_strings import overlap
from spectool.serve.call_forms import JSON, Form, Written, forms_of, is_harmony

CUSTOM: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "What the tool is given"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters of the function that stands for a custom tool of responses, which takes one text."""

_BARE = Form("", "", *(fence + '{{"name":"{}"' for fence in ("", "```", "```json")))
_FENCE = re.compile(r"\A\s*```(?:json)?|```\s*\Z")  # around JSON in Markdown
_HARMONY = ("<|channel|>analysis", "<|end|>")  # around reasoning, and what stands between messages
_BETWEEN = ("<|start|>assistant", "<|channel|>commentary", "<|channel|>final", "<|message|>", "<|end|>", "<|call|>")
_ESCAPED = re.compile(r"\\.", re.DOTALL)  # character in a string of JSON


class Call(NamedTuple):
    """A call of a tool."""

    id: str
    name: str
    arguments: str  # a JSON object


class TokenLogprob(NamedTuple):
    """A token and its probability."""

    token: bytes
    logprob: float


class TokenLogprobs(NamedTuple):
    """A token that was generated, and what could have been there instead."""

    chosen: TokenLogprob
    best: tuple[TokenLogprob, ...]  # the most probable ones, the best first


@dataclass(slots=True)
class Delta:
    """What one of the answers to a request gained; ``end`` says why it ends here."""

    index: int = 0
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    places: list[TokenLogprobs] = field(default_factory=list)
    end: str | None = None  # stop, length, tool_calls or abort
    stopped_by: str | None = None  # the stop text, where one ended it

    def extend(self, gained: "Delta") -> None:
        """Add what follows, so that this is the answer up to there."""
        self.text += gained.text
        self.reasoning += gained.reasoning
        self.calls += gained.calls
        self.places += gained.places
        self.end = gained.end or self.end


class Splitter:
    """Takes one answer apart as it is written, holding back what may turn out to be part of a marker or a call."""

    def __init__(
        self, tokenizer: Any, tools: Sequence[Mapping[str, Any]], *, reasoning: bool, thinks: bool, bare: bool = True
    ) -> None:
        """Begin an answer to a request that offers ``tools``; without any, there are no calls.

        ``reasoning`` is told apart from text if that is wanted. An answer that ``thinks`` begins with it, because the
        prompt ends in its marker. ``bare`` calls, without markers, are read unless the answer is to be JSON itself.
        """
        self._tools = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
        self._bare = bool(tools) and bare
        self._forms = {form.start: form for form in forms_of(tokenizer)} if tools else {}
        names = ["".join(json.dumps(name, ensure_ascii=False)[1:-1].split()) for name in self._tools]
        self._begins = {
            form: [each.format(name) for each in form.begins for name in names]
            for form in (_BARE, *self._forms.values())
        }
        harmony = is_harmony(tokenizer)
        think = _HARMONY if harmony else (tokenizer.think_start or "", tokenizer.think_end or "")
        self._think = think if reasoning else ("", "")
        between = _BETWEEN if harmony else getattr(tokenizer, "structural_markers", ())
        self._between = between if reasoning else ()  # markers that are no text
        self.thinks = thinks and reasoning  # whether what comes next is reasoning
        self._held = ""
        self._ids = set[str]()
        self._space: str | None = None  # written since a call; None unless a call was the last thing written
        self._parts = self._take_apart()

    def add(self, text: str, last: bool = False, *, cut: bool = False) -> Delta:
        """What of the answer so far is certain; with ``last``, nothing is held back.

        A call that is not finished because the answer was ``cut`` there is left out.
        """
        self._held += text
        self._last, self._cut, self._gained = last, cut, Delta()
        next(self._parts, None)
        return self._gained

    def _take_apart(self) -> Iterator[None]:
        """Write the text that is held back, and yield wherever that needs more of it."""
        opening, closing = self._think
        if opening and not self.thinks:
            while len(begun := self._held.lstrip()) < len(opening) and opening.startswith(begun) and not self._last:
                yield
            if begun.startswith(opening):
                self._held, self.thinks = begun[len(opening) :], True
                yield from self._skip_line_ends()
        if self.thinks:
            yield from self._write_reasoning(closing)
        if self._bare:
            while self._is_begun(_BARE, self._held) and not self._last:
                yield
            calls, rest = self._parsed(_BARE, _FENCE.sub("", self._held))
            if calls and not rest.strip():
                self._deliver(calls, "")
                return
        again = [opening] if self._between else []
        while True:
            marker = yield from self._write_up_to(*self._forms, *self._between, *again)
            if marker in self._forms:
                yield from self._read_block(self._forms[marker])
            elif marker in again:
                self.thinks = True
                yield from self._write_reasoning(closing)

    def _write_reasoning(self, closing: str) -> Iterator[None]:
        """Write reasoning up to its end or, if it has none, up to a call."""
        while (marker := (yield from self._write_up_to(closing, *self._forms, *self._between))) != closing:
            if marker not in self._forms:
                continue
            form = self._forms[marker]
            while (begun := self._is_begun(form, self._held)) and closing not in self._held and not self._last:
                yield
            if begun and closing not in self._held and not self._cut:
                self._held, self.thinks = marker + self._held, False
                return
            self._write(marker)
        self.thinks = False
        yield from self._skip_line_ends()

    def _write_up_to(self, *markers: str) -> Generator[None, None, str]:
        """Write what precedes the first of the markers, which is dropped, and return it.

        What may be the beginning of one is held back.
        """
        while not (found := [(place, each) for each in markers if (place := self._held.find(each)) >= 0]):
            # Where an answer is cut after a call, another one may have begun.
            held_back = not self._last or (self._cut and (self._space is not None or self._between))
            certain = len(self._held) - max((overlap(self._held, each) for each in markers if held_back), default=0)
            self._write(self._held[:certain])
            self._held = self._held[certain:]
            yield
        place, marker = min(found)
        self._write(self._held[:place])
        self._held = self._held[place + len(marker) :]
        return marker

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

    def _is_begun(self, form: Form, text: str, surely: bool = False) -> bool:
        """Whether a text after a start is the beginning of calls, or may become it unless that has to be sure."""
        begins = self._begins[form]
        # Only the beginning is compared, because this is done for every token.
        begun = "".join((form.kept + text.lstrip()[: 2 * max(map(len, begins))]).split())
        return any(begun.startswith(each) or (each.startswith(begun) and not surely) for each in begins)

    def _read_block(self, form: Form) -> Iterator[None]:
        """Read calls after a start, or write it as text; what cannot be read is text up to its end."""
        tags, found = -1, (False, list[Call](), "", -1)
        while begun := self._is_begun(form, self._held):
            count = self._held.count(form.start) + self._held.count(form.end or form.start)
            if self._last or count != tags:
                tags, found = count, self._calls_in(form)
            if self._last or found[0]:
                break
            yield
        sure, calls, rest, first = found
        after = rest.lstrip()
        if calls and (sure or not self._cut or form.start.startswith(after) or after.startswith(form.start)):
            self._deliver(calls, rest)
            return
        if begun and (first < 0 or not self._cut):
            calls, rest = self._parsed(form, self._held)
            goes_on = self._is_begun(form, rest.removeprefix(form.kept), surely=bool(form.end))
            if self._cut:  # calls before the one that was cut are whole
                self._deliver(calls if goes_on or not form.verbatim else [], "" if goes_on or form.end else rest)
                return
            if calls and form.closes and not (rest.strip() and form.end):
                self._deliver(calls, rest)
                return
        length = 0 if not begun else first if first >= 0 and not self._cut else len(self._held)
        self._write(form.start + self._held[:length])
        self._held = self._held[length:]

    def _calls_in(self, form: Form) -> tuple[bool, list[Call], str, int]:
        """Whether it is sure where calls end, these calls, what follows them, and the place after the first end; or -1.

        That is the first end at which they are whole. If it may stand in a string, it is the last one before others
        begin, and an end that belongs to a start in a string is none.
        """
        calls, rest, first, depth = list[Call](), "", -1, 0
        for tag in re.finditer(form.tags, self._held):
            after = self._held[tag.end() :]
            if tag["start"]:
                if calls and self._is_begun(form, after, surely=True):
                    return True, calls, rest, first
                depth += 1
                continue
            body = self._held[: tag.start()]
            if first < 0 and not depth and not (self._cut and not form.verbatim and _is_inside_string(body)):
                first = tag.end()
            if not (depth and form.verbatim):
                found, left = self._parsed(form, body)
                if found and not (left.strip() and form.end):
                    calls, rest = found, left + after
                    if not form.verbatim:
                        return True, calls, rest, first
            depth = max(0, depth - 1)
        return False, calls, rest, first

    def _deliver(self, calls: Sequence[Call], rest: str) -> None:
        """Write calls, each with an identifier of its own, and go on with what follows them."""
        for call in calls:
            # Templates of Mistral's refuse other identifiers than of nine letters and digits.
            call_id = call.id if call.id and call.id not in self._ids else uuid4().hex[:9]
            self._ids.add(call_id)
            self._gained.calls.append(call._replace(id=call_id))
            self._space = ""
        self._held = rest

    def _parsed(self, form: Form, text: str) -> tuple[list[Call], str]:
        """The calls at the beginning of a text, and what follows; none if one of them is of nothing that is offered."""
        try:
            calls, rest = form.read(text, self._tools)
            return [self._checked(call) for call in calls], rest
        except Exception:  # models write anything
            return [], text

    def _checked(self, call: Written) -> Call:
        arguments = (_input_of if self._tools[call.name] == CUSTOM else _object_of)(call.arguments)
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        # JSON can escape half of a surrogate pair, which UTF-8 does not have.
        written = written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return Call(call.id or "", call.name, written)


def _object_of(arguments: Any) -> dict[str, Any]:
    """The arguments of a call, which may be an object, JSON of one, or left out."""
    if isinstance(arguments, str):
        arguments = JSON.decode(arguments) if arguments.strip() else {}
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, dict):
        raise ValueError
    return arguments


def _input_of(arguments: Any) -> dict[str, str]:
    """The arguments of a custom tool's call: its text, which models also give by itself or under another name."""
    try:
        given = _object_of(arguments)
    except ValueError:
        given = {"input": arguments}
    (text,) = [given["input"]] if isinstance(given.get("input"), str) else given.values()
    if not isinstance(text, str):
        raise ValueError
    return {"input": text}


def _is_inside_string(text: str) -> bool:
    """Whether a text that ends like this is in the middle of a string of JSON."""
    return _ESCAPED.sub("", text[text.find("{") :]).count('"') % 2 == 1
