"""What the protocols have in common: a writer turns the pieces of all answers to a request into a document or a stream.

Anthropic's and OpenAI's newer protocol are translated into a `ChatRequest`, and its pieces into a list of blocks of
text, reasoning and calls, of which the last one may be open.
"""

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from spectool.serve.answers import Answer
from spectool.serve.deltas import Call, Delta
from spectool.serve.errors import RequestRefused, checked, error_document, quoted, wrong_field
from spectool.serve.request_parts import unread
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
    text: str = ""
    call: Call | None = None
    cut: bool = False  # whether the answer ended in the middle of it
    id: str = ""  # where the protocol has one


class Writer:
    """What every writer has: the request, and what its document begins with."""

    path = prefix = ""  # its address, and of its identifier
    done = b""  # after the last event
    codes_in_stream: tuple[str, ...] = ()  # of errors that clients expect in a stream, also in its place

    def __init__(self, request: GenerationRequest) -> None:
        self.request, self.id, self.created = request, new_id(self.prefix), int(time.time())

    def error(self, refusal: RequestRefused) -> Event:
        """The error as outside of streams."""
        return error_document(self.path, refusal)


class BlockWriter(Writer, ABC):
    """Collects the blocks of the one answer to a request; subclasses write them down as events and as one document."""

    request: ChatRequest

    def __init__(self, request: ChatRequest) -> None:
        if request.n > 1:
            raise wrong_field("n", f"expected 1, because there is one answer, got {request.n}")
        super().__init__(request)
        self.blocks: list[Block] = []
        self.end, self.stopped_by = "abort", ""
        self._open = False

    def add(self, piece: Delta) -> Iterator[Event]:
        """The events of a piece."""
        self.end, self.stopped_by = piece.end or self.end, piece.stopped_by or self.stopped_by
        for kind, text in (("reasoning", piece.reasoning), ("text", piece.text)):
            if text:
                if not self._open or self.blocks[-1].kind != kind:
                    yield from self._begin(kind)
                self.blocks[-1].text += text
                yield from self.grow(self.blocks[-1], text)
        for call in piece.calls:
            yield from self._begin("call", call)
            yield from self.grow(self.blocks[-1], call.arguments)
        if piece.end:
            yield from self._end(cut=piece.end in ("length", "abort"))

    def _begin(self, kind: str, call: Call | None = None) -> Iterator[Event]:
        yield from self._end()
        self.blocks.append(Block(kind, len(self.blocks), call=call))
        self._open = True
        yield from self.open(self.blocks[-1])

    def _end(self, cut: bool = False) -> Iterator[Event]:
        if self._open:
            self._open = False
            self.blocks[-1].cut = cut and not self.blocks[-1].call
            yield from self.close(self.blocks[-1])

    @abstractmethod
    def open(self, block: Block) -> Iterator[Event]:
        """The events of a block that begins, without what it is going to have."""

    @abstractmethod
    def grow(self, block: Block, text: str) -> Iterator[Event]:
        """The events of a block that gains ``text``; a call gets its arguments at once."""

    @abstractmethod
    def close(self, block: Block) -> Iterator[Event]:
        """The events of a block that ends."""


def as_json(content: Any) -> str:
    """JSON as all answers are written."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_LINE_ENDS)


def new_id(prefix: str) -> str:
    """An identifier that nothing else has."""
    return f"{prefix}{uuid4().hex[:24]}"


def counts(answers: Sequence[Answer]) -> tuple[int, int, int | None]:
    """Tokens of the prompts, of the answers, and of the prompts that were cached; None where that is not told.

    Without keys, all clients share the prompt caches, and the count would tell one of them what another has asked.
    """
    first = answers[:: answers[0].request.n]  # to each prompt
    cached = sum(answer.cached for answer in first) if answers[0].client else None
    return sum(len(each.prompt.tokens) for each in first), sum(len(each.tokens) for each in answers), cached


def metrics(answers: Sequence[Answer]) -> dict[str, Any]:
    """What drafting did for a request, in vLLM's form; with drafts of several lengths, of the longest."""
    drafts = [draft for answer in answers for draft in answer.drafts]
    lengths, accepted = [length for length, _ in drafts], [count for _, count in drafts]
    histogram, longest = Counter(accepted), max(lengths, default=0)
    return {
        "speculative_decoding": {
            "mean_acceptance_length": 1 + sum(accepted) / max(1, len(drafts)),
            "draft_acceptance_rate": sum(accepted) / max(1, sum(lengths)),
            "acceptance_histogram": [histogram[count] for count in range(longest + 1)],
            "num_spec_steps": len(drafts),
            "num_accepted_draft_tokens": sum(accepted),
            "num_draft_tokens": sum(lengths),
            "num_spec_tokens": longest,
        }
    }


def own_tools(tools: Any, kinds: Sequence[str | None], schema: str) -> list[dict[str, Any]]:
    """The tools of a chat that the client runs itself, by their ``kinds``; their parameters stand in ``schema``.

    OpenAI or Anthropic would run the others. Clients always offer some, so they are no reason to refuse.
    """
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise wrong_field("tools", f"expected a list of tools, got {quoted(tools)}")
    fields = {"name": "name", "description": "description", schema: "parameters", "strict": "strict"}
    found = []
    for tool in tools:
        if tool.get("type") in kinds:
            given = {name: tool.get(field) for field, name in fields.items()}
            function = {name: value for name, value in given.items() if value not in (None, False)}
            found.append({"type": "function", "function": function, "in_namespace": tool.get("in_namespace")})
    return found


def as_chat(body: dict[str, Any], chat: Mapping[str, Any], sent: Mapping[str, Any]) -> ChatRequest:
    """The ``chat`` that a request stands for, with the fields of its ``body`` that a chat has, too.

    It notes what nothing has read of the fields that were ``sent`` in the protocol's own form, and probabilities of
    tokens, which such answers do not have.
    """
    without_effect = [name for name in ("logprobs", "top_logprobs") if body.pop(name, None)]
    request = checked(ChatRequest, {**body, **{name: value for name, value in chat.items() if value is not None}})
    request.without_effect.update(unread(sent), without_effect)
    return request


def called(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call of a tool in the form of a chat's."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
