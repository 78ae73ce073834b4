"""OpenAI's responses, which Codex speaks. A request brings the whole conversation, or items of it by their ids."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from spectool.serve.answers import Answer
from spectool.serve.errors import RESPONSES, RequestRefused, quoted, wrong_field
from spectool.serve.protocols.common import (
    Block,
    BlockWriter,
    Event,
    as_chat,
    called,
    counts,
    metrics,
    new_id,
    own_tools,
)
from spectool.serve.request_parts import CUSTOM, joined, noted
from spectool.serve.requests import ChatRequest

_THOUGHTS = "summary_text", "reasoning_text", "text"  # parts of reasoning
_OTHERS_SIDE = ("web_search_call", "file_search_call")  # what came of it stands in messages
_PARTS = {"text": "output_text", "reasoning": "reasoning_text"}  # of an item's content, by the kind of its block


class KeptItems:
    """The latest items that this server has given out, by their ids; clients may name them instead of sending them."""

    def __init__(self, most: int = 10_000, most_bytes: int = 64 << 20) -> None:
        """Keep at most ``most`` items, and at most ``most_bytes`` of JSON."""
        self._most, self._most_bytes, self._nbytes = most, most_bytes, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()  # the latest used last

    def keep(self, items: Iterable[dict[str, Any]]) -> None:
        """Keep items, and let go of the oldest ones."""
        for item in items:  # which are written on one thread, and read on several
            self._nbytes -= len(self._kept.pop(item["id"], b""))
            self._kept[item["id"]] = written = json.dumps(item).encode()
            self._nbytes += len(written)
        while self._kept and (len(self._kept) > self._most or self._nbytes > self._most_bytes):
            self._nbytes -= len(self._kept.popitem(last=False)[1])

    def get(self, item_id: Any) -> dict[str, Any] | None:
        """The item with this id; None if it is not here, or not any more."""
        try:
            self._kept.move_to_end(item_id)
            item: dict[str, Any] = json.loads(self._kept[item_id])
        except (KeyError, TypeError):  # no text
            return None
        return item


_KEPT = KeptItems()  # of all clients, by ids that nobody can guess


def chat_of(body: dict[str, Any]) -> ChatRequest:
    """A body of this protocol as a request to a chat, which may name items that were given out."""
    body = {name: value for name, value in body.items() if value is not None}
    chat: dict[str, Any] = {}
    for name in {"previous_response_id", "conversation", "prompt"} & body.keys():
        raise wrong_field(name, "not supported: nothing is stored. Send the whole conversation")
    names = {"text", "reasoning", "input", "instructions", "tools"}
    sent = noted({name: body.pop(name) for name in names & body.keys()})
    text, reasoning, given = sent.get("text", {}), sent.get("reasoning", {}), sent.get("input")
    chat["response_format"] = text.get("format") if isinstance(text, dict) else text
    chat["reasoning_effort"] = reasoning.get("effort") if isinstance(reasoning, dict) else reasoning
    chat["max_completion_tokens"] = body.pop("max_output_tokens", None)
    instructions = sent.get("instructions")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise wrong_field("input", f"expected a text or a list of items, got {quoted(given)}")
    first = [{"role": "system", "content": joined(instructions, "instructions")}] if instructions else []
    chat["messages"] = first + _messages(list(map(_whole, items)))
    tools = sent.get("tools", [])
    if isinstance(tools, list):
        tools = [each for tool in tools for each in _flattened(tool)]
    chat["tools"] = own_tools(tools, ("function", "custom"), "parameters")
    return as_chat(body, chat, sent)


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    """An item, or the stored one that an `item_reference` names."""
    if item.get("type") != "item_reference" and item.keys() != {"id"}:
        return item
    if (found := _KEPT.get(item.get("id"))) is None:
        problem = "expected items of the latest responses of this server, or whole ones (store: false)"
        raise wrong_field("input", f"{problem}, got a reference to {quoted(item.get('id'))}")
    return found


def _flattened(tool: Any) -> list[Any]:
    """A tool, or those of a namespace under their full names; Codex has a namespace for each MCP server."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind == "custom":
        tool["parameters"] = CUSTOM
    if kind != "namespace" or not isinstance(tool.get("tools"), list):
        return [tool]
    for each in tool["tools"]:
        if isinstance(each, dict) and each.get("type") in ("function", "custom"):
            each["in_namespace"] = (tool.get("name"), each.get("name"))
            each["name"] = _full_name(*each["in_namespace"])
    return [one for each in tool["tools"] for one in _flattened(each)]


def _full_name(namespace: Any, name: Any) -> Any:
    return f"{namespace}".rstrip("_") + "__" + f"{name}".lstrip("_") if namespace else name


def _messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that items stand for; reasoning, a text and calls of the assistant's in a row are one message."""
    messages: list[dict[str, Any]] = []

    def own(*others: str) -> dict[str, Any]:
        """The message of the assistant's that goes on, unless it has one of these already."""
        if not messages or messages[-1]["role"] != "assistant" or any(messages[-1].get(name) for name in others):
            messages.append({"role": "assistant", "content": ""})
        return messages[-1]

    for item in items:
        kind = item.get("type") or "message"
        if kind in ("function_call", "custom_tool_call"):
            # A custom tool takes one text instead of arguments.
            arguments = item.get("arguments") if kind == "function_call" else json.dumps({"input": item.get("input")})
            name = _full_name(item.get("namespace"), item.get("name"))
            own().setdefault("tool_calls", []).append(called(item.get("call_id"), name, arguments))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            result = joined(item.get("output") or "", "input", of_tool=True)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": result})
        elif kind == "reasoning":
            if thought := _thought(item.get("content")) or _thought(item.get("summary")):
                message = own("content", "tool_calls")
                message["reasoning_content"] = message.get("reasoning_content", "") + thought
        elif kind == "message":
            content = joined(item.get("content") or "", "input")
            if item.get("role") == "assistant":
                own("content", "tool_calls")["content"] = content
            else:
                messages.append({"role": item.get("role"), "content": content})
        elif kind not in _OTHERS_SIDE:
            problem = "expected messages, reasoning, calls of functions and custom tools, and their outputs"
            raise wrong_field("input", f"{problem}, got {quoted(kind)}")
    return messages


def _thought(parts: Any) -> str:
    """The text of reasoning, of which what is no text is left out."""
    texts = []
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, dict):
            part = part.get("text") if part.get("type", "text") in _THOUGHTS else None
        texts += [part] if part and isinstance(part, str) else []
    return "\n".join(texts)


class ResponseWriter(BlockWriter):
    """Writes a ``response``; its events are numbered."""

    path, prefix = RESPONSES, "resp_"
    read = staticmethod(chat_of)
    # Codex shortens a conversation only if a stream says so.
    codes_in_stream = ("context_length_exceeded",)

    def __init__(self, request: ChatRequest) -> None:
        super().__init__(request)
        self._base = {"id": self.id, "object": "response", "created_at": self.created, "model": request.model}
        self._number = 0
        self._in_namespace = {tool.function.name: tool.in_namespace for tool in request.tools if tool.in_namespace}
        functions = [tool["function"] for tool in request.offered]
        self._custom = {function["name"] for function in functions if function.get("parameters") == CUSTOM}

    def begin(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The response without its output."""
        yield self._event("created", response=self._response("in_progress"))
        yield from self.waiting()

    def waiting(self) -> Iterator[Event]:
        """The response as it was at the beginning."""
        yield self._event("in_progress", response=self._response("in_progress"))

    def finish(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The response with its output."""
        whole = self.whole(answers)
        yield self._event(whole["status"], response=whole)

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole response."""
        prompt, written, cached = counts(answers)
        usage: dict[str, Any] = {"input_tokens": prompt, "output_tokens": written, "total_tokens": prompt + written}
        usage["input_tokens_details"] = {"cached_tokens": cached or 0, "cache_write_tokens": 0}
        usage["output_tokens_details"] = {"reasoning_tokens": sum(answer.reasoning for answer in answers)}
        status = "completed" if self.end in ("stop", "tool_calls") else "incomplete"
        why = "max_output_tokens" if self.end == "length" else self.end
        reason = {"incomplete_details": {"reason": why}} if status == "incomplete" else {}
        output = [self._item(block) for block in self.blocks]
        _KEPT.keep(output)
        figures = {"usage": usage, "metrics": metrics(answers)}
        return {**self._response(status), **reason, "output": output, **figures}

    def error(self, refusal: RequestRefused) -> Event:
        """The end of a response that failed."""
        told = super().error(refusal)["error"]
        code = {429: "rate_limit_exceeded"}.get(refusal.status, "invalid_prompt")
        code = told["code"] or ("server_error" if refusal.status >= 500 else code)
        problem = {"code": code, "message": told["message"]}
        return self._event("failed", response={**self._response("failed"), "error": problem})

    def open(self, block: Block) -> Iterator[Event]:
        """An item begins."""
        block.id = new_id({"text": "msg_", "call": "fc_"}.get(block.kind, "rs_"))
        empty: dict[str, Any] = {self._names(block)[1]: ""} if block.call else {"content": []}
        item = {**self._item(block), "status": "in_progress", **empty}
        yield self._event("output_item.added", output_index=block.index, item=item)
        if not block.call:
            yield self._event("content_part.added", block, part=_part(block))

    def grow(self, block: Block, text: str) -> Iterator[Event]:
        """More of a text or of reasoning, or the arguments of a call."""
        name, field = self._names(block)
        yield self._event(f"{name}.delta", block, delta=self._item(block)[field] if block.call else text)

    def close(self, block: Block) -> Iterator[Event]:
        """The end of an item."""
        name, field = self._names(block)
        yield self._event(f"{name}.done", block, **{field: self._item(block)[field] if block.call else block.text})
        if not block.call:
            yield self._event("content_part.done", block, part=_part(block))
        yield self._event("output_item.done", output_index=block.index, item=self._item(block))

    def _names(self, block: Block) -> tuple[str, str]:
        """What the events of a block are called, and the field of what it has."""
        if not block.call:
            return _PARTS[block.kind], "text"
        is_custom = block.call.name in self._custom
        return ("custom_tool_call_input", "input") if is_custom else ("function_call_arguments", "arguments")

    def _event(self, name: str, block: Block | None = None, **content: Any) -> Event:
        self._number += 1
        place: dict[str, Any] = {"item_id": block.id, "output_index": block.index} if block else {}
        if block and not block.call:
            place["content_index"] = 0
            if name.startswith("output_text"):
                place["logprobs"] = []  # which clients require
        return {"type": f"response.{name}", "sequence_number": self._number - 1, **place, **content}

    def _response(self, status: str) -> dict[str, Any]:
        choice, names = self.request.tool_choice, self.request.callable_names or []
        named = choice if isinstance(choice, str) else {"type": self._kind(names[0]), "name": names[0]}
        choices = {"tool_choice": named, "parallel_tool_calls": self.request.parallel_tool_calls}
        functions = [tool["function"] for tool in self.request.offered]
        tools = [{"type": self._kind(function["name"]), "strict": False, **function} for function in functions]
        return {**self._base, "status": status, "error": None, "output": [], "store": False, "tools": tools, **choices}

    def _kind(self, tool: str) -> str:
        return "custom" if tool in self._custom else "function"

    def _item(self, block: Block) -> dict[str, Any]:
        base = {"id": block.id, "status": "incomplete" if block.cut else "completed"}
        if block.call:
            call_id, name, arguments = block.call
            call = {**base, "call_id": call_id, "name": name}
            if name in self._in_namespace:
                call["namespace"], call["name"] = self._in_namespace[name]
            if name in self._custom:
                return {**call, "type": "custom_tool_call", "input": json.loads(arguments)["input"]}
            return {**call, "type": "function_call", "arguments": arguments}
        if block.kind == "reasoning":
            return {**base, "type": "reasoning", "summary": [], "content": [_part(block)]}
        return {**base, "type": "message", "role": "assistant", "content": [_part(block)]}


def _part(block: Block) -> dict[str, Any]:
    part: dict[str, Any] = {"type": _PARTS[block.kind], "text": block.text}
    return {**part, "annotations": []} if block.kind == "text" else part
