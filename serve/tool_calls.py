"""The calls of tools in what a model writes: where they begin and end, and which of them a request can take.

A call stands between markers, in a form of `call_forms`. Some models leave out the markers, so an answer that is
nothing but calls in JSON, one after the other and perhaps in a code fence, is calls too. What cannot be read as it was
written, or calls something that the request does not offer, is text like any other, markers included.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from spectool.serve.call_forms import BARE, JSON, Form, forms_of, in_string
from spectool.serve.deltas import Call
from spectool.serve.request_parts import CUSTOM

_FENCE = re.compile(r"\A\s*```(?:json)?|```\s*\Z")  # around JSON in Markdown


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

    def begins(self, form: Form, text: str) -> bool | None:
        """Whether a text after a start is the beginning of calls; None if it is too short to tell."""
        begins = self._begins[form]
        # Only the beginning is compared, because this is done for every token.
        begun = "".join(text.lstrip()[: 2 * max(map(len, begins))].split())
        if any(begun.startswith(each) for each in begins):
            return True
        return None if any(each.startswith(begun) for each in begins) else False

    def bare(self, text: str, cut: bool) -> list[Call] | None:
        """The calls in an answer that is nothing else, without the one in which it was ``cut``; None if it is text."""
        calls, rest = self._parsed(BARE, _FENCE.sub("", text))
        if rest.strip() and not (cut and self._may_go_on(rest, bool(calls))):
            return None
        return self._identified(calls) if calls or rest.strip() else None

    def _may_go_on(self, rest: str, after_calls: bool) -> bool:
        """Whether the end of an answer is the beginning of a bare call; after others, little shows it."""
        begun = self.begins(BARE, rest)
        if not begun:
            return begun is None and after_calls
        try:
            JSON.raw_decode(rest.lstrip())
        except (ValueError, RecursionError):
            return True
        return False  # it is whole, and nothing that can be called

    def read(self, form: Form, text: str, tried: int, last: bool, cut: bool) -> tuple[str | None, list[Call], str, int]:
        """What stands after a start: calls or text, once no later text can change that, and what follows.

        Quotes show whether an end stands in a string; without them, the beginning of the next calls shows it. What has
        been ``tried`` of the text need not be looked at again; the number says how much that is now. Where ``last`` is
        not set, None instead of a text says that more is needed; the end may be where the answer was ``cut``.
        """
        while (place := text.find(form.mark, tried)) >= 0:
            after, end = place + len(form.mark), place + form.skipped
            certain = self.begins(form, text[after:]) if form.verbatim else True
            if certain is None:
                break
            calls, rest = self._whole(form, text[:end]) if certain else ([], "")
            if calls:
                return "", self._identified(calls), rest + text[end:], after
            if not form.verbatim and not in_string(text[:place]):
                return form.start + text[:end], [], text[end:], after
            tried = after
        if not last:
            return None, [], text, tried
        calls, rest = self._whole(form, text)
        follows = rest.lstrip()[: len(form.start)]
        if calls and (not cut or (form.start.startswith(follows) if form.end else self.begins(form, rest) is False)):
            return "", self._identified(calls), rest, tried
        if cut:
            calls, rest = self._parsed(form, text)
            if form.verbatim and not self.begins(form, rest):  # the latest may go on
                calls = calls[:-1]
            if calls or not form.end or form.end not in text:
                return "", self._identified(calls), "", tried
        place = -1 if form.verbatim else text.find(form.mark)
        length = len(text) if place < 0 else place + form.skipped
        return form.start + text[:length], [], text[length:], tried

    def _whole(self, form: Form, text: str) -> tuple[list[Call], str]:
        """The calls that a text consists of up to the end of its form, and what follows; none if more stands there."""
        has_end = form.end and (form.end in text if form.verbatim else text.endswith(form.end))
        body, _, after = text.rpartition(form.end) if has_end else (text, "", "")
        calls, rest = self._parsed(form, body) if has_end or form.closes else ([], "")
        return ([], text) if form.end and rest.strip() else (calls, rest + after)

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
