"""What the protocols have in common: a writer turns the pieces of all answers to a request into a document or a stream.

Anthropic's and OpenAI's newer protocol are translated into a `ChatRequest`, and its pieces into a list of blocks of
text, reasoning and calls, of which the last one may be open.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from spectool.serve.answers import Answer
from spectool.serve.deltas import Call, Delta
from spectool.serve.errors import OWN_NAMES, RequestRefused, checked, error_document, quoted, wrong_field
from spectool.serve.request_parts import Noted, noted, unread
from spectool.serve.requests import ChatRequest, GenerationRequest

# Characters that end a line for httpx and Python, and so for LiteLLM, but not in a stream of events.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}

Event = dict[str, Any]
"""An event of a stream."""


def event_bytes(events: Iterable[Event]) -> bytes:
    """The bytes of events; one that has a type, as in OpenAI's responses and Anthropic's messages, is named by it."""
    return "".join(
        f"event: {event['type']}\ndata: {as_json(event)}\n\n" if "type" in event else f"data: {as_json(event)}\n\n"
        for event in events
    ).encode()


@dataclass(slots=True)
class Block:
    """A part of an answer: ``text``, ``reasoning``, or a ``call``, which is complete when it comes."""

    kind: str
    index: int
    text: str = ""  # of a call, its arguments
    call: Call | None = None
    cut: bool = False  # whether the answer ended in the middle of it
    id: str = ""  # where the protocol has one


class Writer:
    """What every writer has: the request, and what its document begins with."""

    path = prefix = ""  # its address, and of its identifier
    done = b""  # after the last event
    codes_in_stream: tuple[str, ...] = ()  # of errors that clients expect in a stream, also in its place

    def __init__(self, request: GenerationRequest) -> None:
        self.request, self.id, self.created = request, f"{self.prefix}{uuid4().hex}", int(time.time())

    def error(self, refusal: RequestRefused) -> Event:
        """The error as outside of streams."""
        return error_document(self.path, refusal)


class BlockWriter(Writer):
    """Collects the blocks of the one answer to a request; subclasses write them down as events and as one document."""

    request: ChatRequest

    def __init__(self, request: ChatRequest) -> None:
        super().__init__(request)
        self.blocks: list[Block] = []
        self._length = 0  # of the answer's text
        self.end, self.stopped_by = "abort", ""

    def gained(self, piece: Delta) -> Iterator[tuple[Literal["open", "grow", "close"], Block, str]]:
        """What a piece does to the blocks: one opens empty, grows by a text, and closes; a call grows once."""
        self.end, self.stopped_by = piece.end or self.end, piece.stopped_by or self.stopped_by
        gains: list[tuple[str, str, Call | None]] = [("reasoning", piece.reasoning, None)]
        place = 0
        for call in piece.calls:
            begins = call.begins - self._length
            gains += [("text", piece.text[place:begins], None), ("call", call.arguments, call)]
            place = begins
        gains.append(("text", piece.text[place:], None))
        self._length += len(piece.text)
        for kind, text, made in gains:
            if not text:
                continue
            if made or not self.blocks or self.blocks[-1].kind != kind:
                if self.blocks:
                    yield "close", self.blocks[-1], ""
                self.blocks.append(Block(kind, len(self.blocks), call=made))
                yield "open", self.blocks[-1], ""
            self.blocks[-1].text += text
            yield "grow", self.blocks[-1], text
        if piece.end and self.blocks:
            self.blocks[-1].cut = piece.end in ("length", "abort") and self.blocks[-1].call is None
            yield "close", self.blocks[-1], ""


def as_json(content: Any) -> str:
    """JSON as all answers are written."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_LINE_ENDS)


def counts(answers: Sequence[Answer]) -> tuple[int, int, int]:
    """Numbers of prompt tokens, of answer tokens, and of prompt tokens that were cached; the last is 0 without keys.

    Without keys, all clients share the prompt caches, and the count would tell one of them what another has asked.
    """
    first = answers[:: answers[0].request.n]  # to each prompt
    cached = sum(answer.cached for answer in first) if answers[0].client else 0
    return sum(len(each.prompt.tokens) for each in first), sum(len(each.tokens) for each in answers), cached


def metrics(answers: Sequence[Answer]) -> dict[str, Any]:
    """What drafting did for a request, by vLLM's names."""
    drafting = [answer.drafting for answer in answers]
    counted = {
        "num_spec_steps": sum(each.drafted_passes for each in drafting),
        "num_draft_tokens": sum(each.proposed for each in drafting),
        "num_accepted_draft_tokens": sum(each.accepted for each in drafting),
    }
    return {"speculative_decoding": counted}


def own_fields(path: str, body: dict[str, Any], *others: str) -> tuple[Noted, dict[str, Any]]:
    """The fields of a body that its protocol calls otherwise than a chat, and ``others``; and those of the chat."""
    places = {name: own.split(".") for name, own in OWN_NAMES[path].items()}
    chat = {name: value for name, value in body.items() if value is not None}
    names = {*others, *(outer for outer, *_ in places.values())} & chat.keys()
    sent: Noted = noted({name: chat.pop(name) for name in names})
    for name, steps in places.items():
        value: Any = sent
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else value
        if value is not None:
            chat[name] = value
    return sent, chat


def objects(field: str, value: Any) -> list[dict[str, Any]]:
    """The list of objects that a field has to be."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise wrong_field(field, f"expected a list of objects, got {quoted(value)}")
    return value


def as_chat(sent: Noted, chat: dict[str, Any]) -> ChatRequest:
    """The request for a chat; it notes what nothing has read of what was ``sent`` in the protocol's own form."""
    # There is one answer, without probabilities.
    without_effect = [name for name in ("n", "logprobs", "top_logprobs") if chat.pop(name, None)]
    request = checked(ChatRequest, chat)
    request.without_effect.update(unread(sent), without_effect)
    return request


def called(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call of a tool in the form of a chat's."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
