"""OpenAI's responses, which Codex speaks. A request brings the whole conversation, or items of it by their ids."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from spectool.serve.answers import Answer
from spectool.serve.deltas import Delta
from spectool.serve.errors import RESPONSES, RequestRefused, quoted, wrong_field
from spectool.serve.protocols import common
from spectool.serve.protocols.common import Block, Event, called
from spectool.serve.request_parts import CUSTOM, joined
from spectool.serve.requests import ChatRequest

_OTHERS_SIDE = ("web_search_call", "file_search_call")  # what came of it stands in messages
# By the types of items: what their ids begin with, what the events of their content are called, and its field.
_ITEMS = {
    "message": ("msg", "output_text", "text"),
    "reasoning": ("rs", "reasoning_text", "text"),
    "function_call": ("fc", "function_call_arguments", "arguments"),
    "custom_tool_call": ("ctc", "custom_tool_call_input", "input"),
}
_MOST_KEPT, _MOST_BYTES = 10_000, 64 << 20
_kept: dict[str, bytes] = {}  # the latest items of all clients, as JSON, by ids that nobody can guess


def keep(items: Iterable[dict[str, Any]]) -> None:
    """Keep items, which clients may name instead of sending them, and let go of the oldest ones."""
    _kept.update((item["id"], json.dumps(item).encode()) for item in items)
    while len(_kept) > _MOST_KEPT or sum(map(len, _kept.values())) > _MOST_BYTES:
        del _kept[next(iter(_kept))]


def chat_of(body: dict[str, Any]) -> ChatRequest:
    """A body of this protocol as a request to a chat, which may name items that were given out."""
    sent, chat = common.own_fields(RESPONSES, body, "instructions", "tools")
    given, instructions = sent.get("input"), sent.get("instructions")
    items = common.objects("input", [{"role": "user", "content": given}] if isinstance(given, str) else given)
    first = [{"role": "system", "content": joined(instructions, "instructions")}] if instructions else []
    chat["messages"] = first + _messages(list(map(_whole, items)))
    # Others would be run by OpenAI. Clients always offer some, so they are no reason to refuse.
    chat["tools"] = [tool for tool in _flattened(sent.get("tools", [])) if tool.get("type") in ("function", "custom")]
    return common.as_chat(sent, chat)


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    """An item, or the stored one that an `item_reference` names."""
    if item.get("type") != "item_reference" and item.keys() != {"id"}:
        return item
    if (found := _kept.get(str(item.get("id")))) is None:
        problem = "expected items of the latest responses of this server, or whole ones (store: false)"
        raise wrong_field("input", f"{problem}, got a reference to {quoted(item.get('id'))}")
    return dict(json.loads(found))


def _flattened(tools: Any, namespace: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Tools, and those in namespaces under their full names; Codex has a namespace for each MCP server."""
    for tool in common.objects("tools", tools):
        kind = tool.get("type")
        if kind == "namespace":
            yield from _flattened(tool.get("tools"), tool)
        elif kind == "custom":
            tool["parameters"] = CUSTOM
        if namespace and kind in ("function", "custom"):
            tool["in_namespace"] = (namespace.get("name"), tool.get("name"))
            tool["name"] = _full_name(*tool["in_namespace"])
        yield tool


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
            if thought := joined(item.get("content") or item.get("summary") or "", "input", of_tool=True):
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


class ResponseWriter(common.BlockWriter):
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
        self._custom = {tool.function.name for tool in request.tools if tool.function.parameters == CUSTOM}

    def begin(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The response without its output."""
        yield self._event("created", response=self._response("in_progress"))
        yield from self.waiting()

    def add(self, piece: Delta) -> Iterator[Event]:
        """The events of what a piece does to the blocks, which are items here."""
        for step, block, text in self.gained(piece):
            item = self._item(block)
            _, name, field = _ITEMS[item["type"]]
            parts, written = item.get("content", []), item.get(field, block.text)
            if step == "open":
                begun = {**item, "content": []} if parts else item
                yield self._event("output_item.added", output_index=block.index, item=begun)
                for part in parts:
                    yield self._event("content_part.added", block, part=part)
            elif step == "grow":
                yield self._event(f"{name}.delta", block, delta=text if parts else written)
            else:
                yield self._event(f"{name}.done", block, **{field: written})
                for part in parts:
                    yield self._event("content_part.done", block, part=part)
                yield self._event("output_item.done", output_index=block.index, item=item)

    def waiting(self) -> Iterator[Event]:
        """The response as it was at the beginning."""
        yield self._event("in_progress", response=self._response("in_progress"))

    def finish(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The response with its output."""
        whole = self.whole(answers)
        yield self._event(whole["status"], response=whole)

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole response."""
        prompt, written, cached = common.counts(answers)
        usage: dict[str, Any] = {"input_tokens": prompt, "output_tokens": written, "total_tokens": prompt + written}
        usage["input_tokens_details"] = {"cached_tokens": cached, "cache_write_tokens": 0}
        usage["output_tokens_details"] = {"reasoning_tokens": sum(answer.reasoning for answer in answers)}
        status = "completed" if self.end in ("stop", "tool_calls") else "incomplete"
        why = "max_output_tokens" if self.end == "length" else self.end
        reason = {"incomplete_details": {"reason": why}} if status == "incomplete" else {}
        output = [self._item(block) for block in self.blocks]
        keep(output)
        figures = {"usage": usage, "metrics": common.metrics(answers)}
        return {**self._response(status), **reason, "output": output, **figures}

    def error(self, refusal: RequestRefused) -> Event:
        """The end of a response that failed."""
        told = super().error(refusal)["error"]
        usual = {429: "rate_limit_exceeded"}.get(refusal.status, "invalid_prompt")
        code = told["code"] or ("server_error" if refusal.status >= 500 else usual)
        problem = {"code": code, "message": told["message"]}
        return self._event("failed", response={**self._response("failed"), "error": problem})

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
        status = "completed" if block.text else "in_progress"
        item: dict[str, Any] = {"status": "incomplete" if block.cut else status}
        if block.call:
            name = block.call.name
            item |= {"call_id": block.call.id, "name": name}
            if name in self._custom:
                item |= {"type": "custom_tool_call", "input": json.loads(block.text)["input"] if block.text else ""}
            else:
                item |= {"type": "function_call", "arguments": block.text}
            if name in self._in_namespace:
                item["namespace"], item["name"] = self._in_namespace[name]
        elif block.kind == "reasoning":
            item |= {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": block.text}]}
        else:
            part = {"type": "output_text", "text": block.text, "annotations": []}
            item |= {"type": "message", "role": "assistant", "content": [part]}
        block.id = block.id or f"{_ITEMS[item['type']][0]}_{uuid4().hex}"
        return {"id": block.id, **item}
