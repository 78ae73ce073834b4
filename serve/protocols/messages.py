"""Anthropic's messages, which Claude Code speaks."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from spectool.serve.answers import Answer
from spectool.serve.errors import MESSAGES, quoted, wrong_field
from spectool.serve.protocols.common import Block, BlockWriter, Event, as_chat, called, counts, metrics, own_tools
from spectool.serve.request_parts import joined, noted
from spectool.serve.requests import ChatRequest

_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "abort": "pause_turn"}
# What another server has thought or searched for earlier in a conversation; what came of it stands in its texts.
_OTHERS_SIDE = ("redacted_thinking", "server_tool_use", "mcp_tool_use")
# A line of Claude Code's to Anthropic alone. It differs from request to request, so nothing after it would be cached.
_FOR_ANTHROPIC = re.compile(r"x-anthropic-billing-header:.*\n*")
# Of reasoning. Clients take reasoning without any for a text of the user's.
_SIGNATURE = "spectool"


def chat_of(body: dict[str, Any]) -> ChatRequest:
    """A body of this protocol as a request to a chat."""
    names = ("system", "messages", "tools", "tool_choice", "output_config")
    sent = noted({name: body[name] for name in names if body.get(name) is not None})
    body = {name: value for name, value in body.items() if name not in names}
    chat: dict[str, Any] = {"messages": []}
    system = sent.get("system", "")
    texts = [joined(block, "system") for block in (system if isinstance(system, list) else [system])]
    if system := "".join(text[found.end() if (found := _FOR_ANTHROPIC.match(text)) else 0 :] for text in texts):
        chat["messages"].append({"role": "system", "content": system})
    messages = sent.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise wrong_field("messages", f"expected a list of messages, got {quoted(messages)}")
    for message in messages:
        chat["messages"] += _messages(message)
    chat["stop"] = body.pop("stop_sequences", None)
    chat["tools"] = own_tools(sent.get("tools", []), ("custom", None), "input_schema")
    choice = chat["tool_choice"] = sent.get("tool_choice")
    if isinstance(choice, dict):
        kind, alone = choice.get("type"), choice.get("disable_parallel_tool_use")
        chat["parallel_tool_calls"] = None if alone is None else not alone
        if kind is not None and kind != "tool":  # which has a name
            chat["tool_choice"] = "required" if kind == "any" else kind
    config, form = sent.get("output_config"), body.pop("output_format", None)  # as it was called before
    if isinstance(config, dict):
        form, chat["reasoning_effort"] = config.get("format") or form, config.get("effort")
    elif config is not None:
        raise wrong_field("output_config", f"expected an object, got {quoted(config)}")
    chat["response_format"] = form
    return as_chat(body, chat, sent)


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


class MessageWriter(BlockWriter):
    """Writes a ``message``."""

    path, prefix = MESSAGES, "msg_"
    read = staticmethod(chat_of)

    def begin(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The message without its content."""
        yield {"type": "message_start", "message": {**self._message(), "usage": _usage(answers)}}

    def waiting(self) -> Iterator[Event]:
        """What Anthropic's server sends from time to time."""
        yield {"type": "ping"}

    def finish(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The reason of the end, and the figures."""
        message = self._message()
        delta = {name: message[name] for name in ("stop_reason", "stop_sequence")}
        yield {"type": "message_delta", "delta": delta, "usage": _usage(answers), "metrics": metrics(answers)}
        yield {"type": "message_stop"}

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole message."""
        content = [_content(block) for block in self.blocks]
        return {**self._message(), "content": content, "usage": _usage(answers), "metrics": metrics(answers)}

    def open(self, block: Block) -> Iterator[Event]:
        """A block begins empty."""
        empty: dict[str, Any] = {"call": {"input": {}}, "reasoning": {"thinking": "", "signature": ""}}
        content = {**_content(block), **empty.get(block.kind, {"text": ""})}
        yield {"type": "content_block_start", "index": block.index, "content_block": content}

    def grow(self, block: Block, text: str) -> Iterator[Event]:
        """More of a text or of reasoning, or the input of a call."""
        kinds = {"call": ("input_json", "partial_json"), "reasoning": ("thinking", "thinking")}
        kind, field = kinds.get(block.kind, ("text", "text"))
        yield {"type": "content_block_delta", "index": block.index, "delta": {"type": f"{kind}_delta", field: text}}

    def close(self, block: Block) -> Iterator[Event]:
        """The end of a block, after the signature of one of reasoning."""
        if block.kind == "reasoning":
            delta = {"type": "signature_delta", "signature": _SIGNATURE}
            yield {"type": "content_block_delta", "index": block.index, "delta": delta}
        yield {"type": "content_block_stop", "index": block.index}

    def _message(self) -> dict[str, Any]:
        reason = "stop_sequence" if self.stopped_by and self.end == "stop" else _REASONS[self.end]
        begun = bool(self.blocks) or self.end != "abort"
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": [],
            "stop_reason": reason if begun else None,
            "stop_sequence": self.stopped_by if reason == "stop_sequence" else None,
        }


def _content(block: Block) -> dict[str, Any]:
    if block.call:
        arguments = json.loads(block.call.arguments)
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": arguments}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": block.text, "signature": _SIGNATURE}
    return {"type": "text", "text": block.text}


def _usage(answers: Sequence[Answer]) -> dict[str, Any]:
    prompt, written, cached = counts(answers)
    if cached is None:
        return {"input_tokens": prompt, "output_tokens": written}
    return {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": written}
