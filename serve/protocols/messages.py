"""Anthropic's messages, which Claude Code speaks."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from spectool.serve.answers import Answer
from spectool.serve.deltas import Delta
from spectool.serve.errors import MESSAGES, quoted, wrong_field
from spectool.serve.protocols import common
from spectool.serve.protocols.common import Block, Event, called
from spectool.serve.request_parts import joined
from spectool.serve.requests import ChatRequest

_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "abort": "pause_turn"}
# The kind of a block's deltas, and the field with what it gains.
_DELTAS = {"text": ("text", "text"), "reasoning": ("thinking", "thinking"), "call": ("input_json", "partial_json")}
# What another server has thought or searched for earlier in a conversation; what came of it stands in its texts.
_OTHERS_SIDE = ("redacted_thinking", "server_tool_use", "mcp_tool_use")
# A line of Claude Code's to Anthropic alone. It differs from request to request, so nothing after it would be cached.
_FOR_ANTHROPIC = re.compile(r"\Ax-anthropic-billing-header:.*\n*")
# Of reasoning. Clients take reasoning without any for a text of the user's.
_SIGNATURE = "spectool"


def chat_of(body: dict[str, Any]) -> ChatRequest:
    """A body of this protocol as a request to a chat."""
    sent, chat = common.own_fields(MESSAGES, body, "system", "messages", "tools", "tool_choice")
    chat.setdefault("response_format", chat.pop("output_format", None))  # as it was called before
    system = sent.get("system", "")
    blocks = system if isinstance(system, list) else [system]
    system = "".join(_FOR_ANTHROPIC.sub("", joined(block, "system")) for block in blocks)
    turns = [each for message in common.objects("messages", sent.get("messages")) for each in _messages(message)]
    chat["messages"] = [{"role": "system", "content": system}, *turns] if system else turns
    # Others would be run by Anthropic. Clients always offer some, so they are no reason to refuse.
    tools = common.objects("tools", sent.get("tools", []))
    chat["tools"] = [tool for tool in tools if tool.get("type") in ("custom", None)]
    choice = chat["tool_choice"] = sent.get("tool_choice")
    if isinstance(choice, dict):
        kind, alone = choice.get("type"), choice.get("disable_parallel_tool_use")
        if not isinstance(alone, bool | None):
            raise wrong_field("tool_choice.disable_parallel_tool_use", f"expected true or false, got {quoted(alone)}")
        chat["parallel_tool_calls"] = None if alone is None else not alone
        if kind is not None and kind != "tool":  # which has a name
            chat["tool_choice"] = "required" if kind == "any" else kind
    return common.as_chat(sent, chat)


def _messages(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of a chat that one of Anthropic's stands for: results of tools are messages of their own."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(content, list):
        yield {"role": role, "content": content}
        return
    texts: list[Any] = []
    own: dict[str, Any] = {}  # fields of the assistant's
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "thinking":
            if thought := str(block.get("thinking") or ""):
                own["reasoning_content"] = own.get("reasoning_content", "") + thought
        elif kind == "tool_use":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            own.setdefault("tool_calls", []).append(called(block.get("id"), block.get("name"), arguments))
        elif kind == "tool_result":
            result = joined(block.get("content") or "", "messages", of_tool=True)
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": result}
        elif kind not in _OTHERS_SIDE and not str(kind).endswith("_tool_result"):
            texts.append(block)
    if texts or own:
        yield {"role": role, "content": joined(texts, "messages"), **own}


class MessageWriter(common.BlockWriter):
    """Writes a ``message``."""

    path, prefix = MESSAGES, "msg_"
    read = staticmethod(chat_of)

    def begin(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The message without its content."""
        yield {"type": "message_start", "message": {**self._message(), "usage": _usage(answers)}}

    def add(self, piece: Delta) -> Iterator[Event]:
        """The events of what a piece does to the blocks."""
        for step, block, text in self.gained(piece):
            place = {"index": block.index}
            kind, field = _DELTAS[block.kind]
            if step == "open":
                yield {"type": "content_block_start", **place, "content_block": _content(block)}
            elif step == "grow":
                yield {"type": "content_block_delta", **place, "delta": {"type": f"{kind}_delta", field: text}}
            else:
                if block.kind == "reasoning":
                    delta = {"type": "signature_delta", "signature": _SIGNATURE}
                    yield {"type": "content_block_delta", **place, "delta": delta}
                yield {"type": "content_block_stop", **place}

    def waiting(self) -> Iterator[Event]:
        """What Anthropic's server sends from time to time."""
        yield {"type": "ping"}

    def finish(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The reason of the end, and the figures."""
        figures = {"usage": _usage(answers), "metrics": common.metrics(answers)}
        yield {"type": "message_delta", "delta": self._ends(), **figures}
        yield {"type": "message_stop"}

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole message."""
        content = [_content(block) for block in self.blocks]
        return {**self._message(), "content": content, "usage": _usage(answers), "metrics": common.metrics(answers)}

    def _message(self) -> dict[str, Any]:
        base = {"id": self.id, "type": "message", "role": "assistant", "model": self.request.model}
        return {**base, "content": [], **self._ends()}

    def _ends(self) -> dict[str, Any]:
        reason = "stop_sequence" if self.stopped_by and self.end == "stop" else _REASONS[self.end]
        begun = bool(self.blocks) or self.end != "abort"
        sequence = self.stopped_by if reason == "stop_sequence" else None
        return {"stop_reason": reason if begun else None, "stop_sequence": sequence}


def _content(block: Block) -> dict[str, Any]:
    if block.call:
        arguments = json.loads(block.text or "{}")
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": arguments}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": block.text, "signature": _SIGNATURE if block.text else ""}
    return {"type": "text", "text": block.text}


def _usage(answers: Sequence[Answer]) -> dict[str, Any]:
    prompt, written, cached = common.counts(answers)
    return {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": written}
