"""What a chat model writes, taken apart: text, reasoning, and calls of tools.

A call stands between markers. In most models it is JSON, which is read here, and mlx-lm has parsers of the other forms.
Some models leave out the markers, so an answer that is nothing but calls in JSON, one after the other and perhaps in a
code fence, is calls as well. What cannot be read, or calls something that the request does not offer, is text like any
other, markers included.
"""

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from spectool.runtime.decoding.stop_strings import overlap

CUSTOM: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "What the tool is given"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters of the function that stands for a custom tool of responses, which takes one text."""
_BEGINNINGS = ("{", "[", "<", "call:", "functions.")  # of calls between markers, in the forms of mlx-lm's parsers
_BESIDE_ARGUMENTS = {"name", "arguments", "parameters", "id", "type"}  # in the JSON of a call
_FENCE = re.compile(r"```(?:json)?\s*")  # around JSON in Markdown
_JSON = json.JSONDecoder(strict=False)  # models write line ends into strings
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
        self._tools = list(tools)
        self._parameters = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
        names = [json.dumps(name, ensure_ascii=False) for name in self._parameters if bare]
        self._openings = ["".join(f'{{"name":{name}'.split()) for name in names]  # of calls, without white space
        self._parser = tokenizer.tool_parser
        self._call = (tokenizer.tool_call_start or "", tokenizer.tool_call_end or "") if tools else ("", "")
        self._think = (tokenizer.think_start or "", tokenizer.think_end or "") if reasoning else ("", "")
        self.thinks = thinks and reasoning  # whether what comes next is reasoning
        self._held = ""
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
            yield from self._write_up_to(closing)
            self.thinks = False
            yield from self._skip_line_ends()
        if self._openings:
            while (bare := self._bare_calls()) is not None and not self._last:
                yield
            if bare:
                self._gained.calls = bare
                return
        start, end = self._call
        while True:
            yield from self._write_up_to(start)
            place = yield from self._end_of_call(end)
            body, rest = (self._held, "") if place < 0 else (self._held[:place], self._held[place + len(end) :])
            if calls := self._parsed(body):
                self._gained.calls += calls
                self._held, self._space = rest, ""
            elif place < 0 and self._cut and (not body.strip() or body.lstrip().startswith(_BEGINNINGS)):
                self._held = ""
            else:  # no call, so the marker is text
                self._write(start)

    def _write_up_to(self, marker: str) -> Iterator[None]:
        """Write what precedes ``marker``, which is dropped. What may be the beginning of it is held back."""
        while not marker or marker not in self._held:
            held_back = not self._last or (self._cut and self._space is not None)  # another call may begin there
            certain = len(self._held) - (overlap(self._held, marker) if held_back else 0)
            self._write(self._held[:certain])
            self._held = self._held[certain:]
            yield
        before, _, self._held = self._held.partition(marker)
        self._write(before)

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

    def _end_of_call(self, marker: str) -> Generator[None, None, int]:
        """Where the end marker of a call is, outside of its strings; -1 if the answer ends without one."""
        searched = 0
        while True:
            place = self._held.find(marker, searched) if marker else -1
            if place >= 0 and _is_inside_string(self._held[:place]):
                searched = place + len(marker)
            elif place >= 0 or self._last:
                return place
            else:
                yield

    def _bare_calls(self) -> list[Call] | None:
        """The calls that the answer so far consists of, perhaps in a code fence; None if it is not calls alone."""
        rest, calls = self._held.strip(), list[Call]()
        if "```json".startswith(rest):
            return calls
        if fence := _FENCE.match(rest):
            rest = rest[fence.end() :]
        while not "```".startswith(rest):
            # Only the beginning is compared, because this is done for every token.
            begun = "".join(rest[: 2 * max(map(len, self._openings))].split())
            if not any(begun.startswith(opening) or opening.startswith(begun) for opening in self._openings):
                return None
            try:
                call, end = _JSON.raw_decode(rest)
            except (ValueError, RecursionError):  # it goes on
                return None if self._last else calls
            try:
                calls.append(self._checked(call))
            except Exception:  # models write anything
                return None
            rest = rest[end:].strip()
        return calls

    def _parsed(self, body: str) -> list[Call]:
        """The calls that a text stands for; none where it is no call, or one of something that is not offered."""
        try:
            try:
                found = _JSON.decode(body)
            except ValueError:
                found = self._parser(body, self._tools)
            return [self._checked(call) for call in (found if isinstance(found, list) else [found])]
        except Exception:  # parsers raise all kinds of errors
            return []

    def _checked(self, call: Any) -> Call:
        given = (call.get(name) for name in ("arguments", "parameters"))
        arguments = next((each for each in given if each is not None), None)
        if arguments is None and call.keys() - _BESIDE_ARGUMENTS:
            raise ValueError  # arguments that stand somewhere else would be lost
        arguments = (_input_of if self._parameters[call["name"]] == CUSTOM else _object_of)(arguments)
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        # JSON can escape half of a surrogate pair, which UTF-8 does not have.
        written = written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        # Templates of Mistral's refuse other identifiers than of nine letters and digits.
        return Call(uuid4().hex[:9], call["name"], written)


def _object_of(arguments: Any) -> dict[str, Any]:
    """The arguments of a call, which may be an object, JSON of one, or left out."""
    if isinstance(arguments, str):
        arguments = json.loads(arguments, strict=False) if arguments.strip() else {}
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
    """Whether a JSON object that begins like this is in the middle of a string."""
    return text.lstrip().startswith("{") and _ESCAPED.sub("", text).count('"') % 2 == 1
