"""The calls of tools in what a model writes: where they begin and end, and which of them a request can take.

A call stands between markers, in a form of `call_forms`, and the end marker says whether it is whole. Some models leave
out the markers, so an answer that is nothing but calls in JSON, one after the other and perhaps in a code fence, is
calls too. What cannot be read as it was written, or calls something that the request does not offer, is text like any
other, markers included.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from spectool.serve.call_forms import BARE, Form, forms_of
from spectool.serve.deltas import Call
from spectool.serve.requests import CUSTOM
from spectool.serve.schema_values import JSON

_FENCE = re.compile(r"\A\s*```(?:json)?|```\s*\Z")  # around JSON in Markdown
_ESCAPED = re.compile(r"\\.", re.DOTALL)  # character in a string of JSON


class _Found(NamedTuple):
    """Calls in a text, and what follows them."""

    calls: list[Call]
    rest: str
    first_end: int = -1  # the place after the first end in the text, where there is one
    sure: bool = False  # whether nothing that is written later changes this


class CallReader:
    """Reads the calls in one answer."""

    def __init__(self, tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> None:
        """Begin an answer to a request that offers ``tools``; ``forms`` has those of its calls by their starts."""
        self.forms = {form.start: form for form in forms_of(tokenizer)} if tools else {}
        self._tools = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
        names = ["".join(json.dumps(name, ensure_ascii=False)[1:-1].split()) for name in self._tools]
        self._begins = {
            form: [each.format(name) for each in form.begins for name in names] for form in (BARE, *self.forms.values())
        }
        self._ids = set[str]()
        self._tags, self._found = -1, _Found([], "")

    def may_begin(self, start: str, text: str) -> bool:
        """Whether a text after a start, which is none for bare calls, is the beginning of calls, or may become it."""
        return self._is_begun(self.forms.get(start, BARE), text)

    def bare(self, text: str) -> list[Call]:
        """The calls in an answer that is nothing else."""
        calls, rest = self._parsed(BARE, _FENCE.sub("", text))
        return [] if rest.strip() else self._identified(calls)

    def read(self, start: str, text: str, last: bool, cut: bool) -> tuple[str, list[Call], str] | None:
        """What stands after a start: text, or calls, and what follows; None if more is needed to tell.

        What cannot be read is text up to its end.
        """
        form = self.forms[start]
        if not self._is_begun(form, text):
            self._tags = -1
            return start, [], text
        tags = text.count(start) + text.count(form.end or start)
        if last or tags != self._tags:
            self._tags, self._found = tags, self._calls_in(form, text, cut)
        calls, rest, first_end, sure = self._found
        if not (last or sure):
            return None
        self._tags = -1
        after = rest.lstrip()
        if calls and (sure or not cut or start.startswith(after) or after.startswith(start)):
            return "", self._identified(calls), rest
        if first_end < 0 or not cut:
            calls, rest = self._parsed(form, text)
            goes_on = self._is_begun(form, rest.removeprefix(form.kept), surely=bool(form.end))
            if cut:  # calls before the one that was cut are whole
                calls = calls if goes_on or not form.verbatim else []
                return "", self._identified(calls), "" if goes_on or form.end else rest
            if calls and form.closes and not (rest.strip() and form.end):
                return "", self._identified(calls), rest
        length = first_end if first_end >= 0 and not cut else len(text)
        return start + text[:length], [], text[length:]

    def _is_begun(self, form: Form, text: str, surely: bool = False) -> bool:
        """Whether a text after a start is the beginning of calls, or may become it unless that has to be sure."""
        begins = self._begins[form]
        # Only the beginning is compared, because this is done for every token.
        begun = "".join((form.kept + text.lstrip()[: 2 * max(map(len, begins))]).split())
        return any(begun.startswith(each) or (each.startswith(begun) and not surely) for each in begins)

    def _calls_in(self, form: Form, text: str, cut: bool) -> _Found:
        """The calls up to the first end at which they are whole.

        If that may stand in a string, it is the last one before others begin, and an end that belongs to a start in a
        string is none.
        """
        found, first_end, depth = _Found([], ""), -1, 0
        for tag in re.finditer(form.tags, text):
            body, after = text[: tag.start()], text[tag.end() :]
            if tag["start"]:
                if found.calls and self._is_begun(form, after, surely=True):
                    return found._replace(first_end=first_end, sure=True)
                depth += 1
                continue
            in_json = body[max(0, body.find("{")) :] if cut and not form.verbatim else ""
            if first_end < 0 and not depth and _ESCAPED.sub("", in_json).count('"') % 2 == 0:  # not inside a string
                first_end = tag.end()
            if not (depth and form.verbatim):
                calls, left = self._parsed(form, body)
                if calls and not (left.strip() and form.end):
                    found = _Found(calls, left + after, first_end, sure=not form.verbatim)
                    if found.sure:
                        return found
            depth = max(0, depth - 1)
        return found._replace(first_end=first_end)

    def _parsed(self, form: Form, text: str) -> tuple[list[Call], str]:
        """The calls at the beginning of a text, and what follows; none if one of them is of nothing that is offered."""
        try:
            calls, rest = form.read(text, self._tools)
            return [Call(own_id or "", name, self._checked(name, given)) for name, given, own_id in calls], rest
        except Exception:  # models write anything
            return [], text

    def _checked(self, name: str, given: Any) -> str:
        arguments = (_input_of if self._tools[name] == CUSTOM else _object_of)(given)
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        # JSON can escape half of a surrogate pair, which UTF-8 does not have.
        return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _identified(self, calls: list[Call]) -> list[Call]:
        """Calls with an identifier of its own for each one: the model's unless it repeats one."""
        for place, call in enumerate(calls):
            # Templates of Mistral's refuse other identifiers than of nine letters and digits.
            call_id = call.id if call.id and call.id not in self._ids else uuid4().hex[:9]
            self._ids.add(call_id)
            calls[place] = call._replace(id=call_id)
        return calls


def _object_of(arguments: Any) -> dict[str, Any]:
    """The arguments of a call, which may be an object, JSON of one, or left out."""
    if isinstance(arguments, str):
        arguments = JSON.decode(arguments) if arguments.strip() else None
    if not isinstance(arguments, dict | None):
        raise ValueError
    return arguments or {}


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
