"""OpenAI's responses, which Codex speaks. Nothing is stored, so every request brings the whole conversation."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from spectool.serve.answers import Answer
from spectool.serve.errors import RESPONSES, RequestRefused, checked, quoted, wrong_field
from spectool.serve.protocols.common import (
    Block,
    BlockWriter,
    Event,
    called,
    counts,
    metrics,
    new_id,
    own_tools,
    unused,
)
from spectool.serve.requests import ChatRequest, joined
from spectool.serve.tool_calls import CUSTOM

# What a server has thought or searched for earlier in a conversation; what came of it stands in its messages.
_OTHERS_SIDE = ("reasoning", "web_search_call", "file_search_call")
_PARTS = {"text": "output_text", "reasoning": "reasoning_text"}  # of an item's content, by the kind of its block


def chat_of(body: dict[str, Any]) -> ChatRequest:
    """A body of this protocol as a request to a chat."""
    body = {name: value for name, value in body.items() if value is not None}
    chat: dict[str, Any] = {}
    for name in {"previous_response_id", "conversation", "prompt"} & body.keys():
        raise wrong_field(name, "expected none, because nothing is stored. Send the whole conversation")
    text = body.pop("text", None) or {}
    chat["response_format"] = text.get("format") if isinstance(text, dict) else text
    chat |= unused("text", text, "format") if isinstance(text, dict) else {}
    chat["max_completion_tokens"] = body.pop("max_output_tokens", None)
    given, instructions = body.pop("input", None), body.pop("instructions", None)
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise wrong_field("input", f"expected a text or a list of items, got {quoted(given)}")
    first = [{"role": "system", "content": joined(instructions, "instructions")}] if instructions else []
    chat["messages"] = first + _messages(items)
    tools = body.pop("tools", [])
    if isinstance(tools, list):
        tools = [each for tool in tools for each in _flattened(tool)]
        tools = [{**tool, "parameters": CUSTOM} if _is(tool, "custom") else tool for tool in tools]
    chat |= own_tools(tools, lambda tool: tool.get("type") in ("function", "custom"), "parameters")
    return checked(ChatRequest, body | {name: value for name, value in chat.items() if value is not None})


def _flattened(tool: Any) -> list[Any]:
    """A tool, or those of a namespace under their full names; Codex has a namespace for each MCP server."""
    if not _is(tool, "namespace") or not isinstance(tool.get("tools"), list):
        return [tool]
    places = [(each, (tool.get("name"), each.get("name"))) for each in tool["tools"] if isinstance(each, dict)]
    return [{**each, "name": _full_name(*place), "in_namespace": place} for each, place in places]


def _full_name(namespace: Any, name: Any) -> Any:
    return f"{namespace}".rstrip("_") + "__" + f"{name}".lstrip("_") if namespace else name


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, dict) and value.get("type") == kind


def _messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that a list of items stands for; calls that follow one another are of one message."""
    messages: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind in ("function_call", "custom_tool_call"):
            # A custom tool takes one text instead of arguments.
            arguments = item.get("arguments") if kind == "function_call" else json.dumps({"input": item.get("input")})
            name = _full_name(item.get("namespace"), item.get("name"))
            call = called(item.get("call_id"), name, arguments)
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            result = joined(item.get("output") or "", "input")
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": result})
        elif kind == "message":
            messages.append({"role": item.get("role"), "content": joined(item.get("content") or "", "input")})
        elif kind not in _OTHERS_SIDE:
            problem = "expected messages, calls of functions and custom tools, their outputs and reasoning"
            raise wrong_field("input", f"{problem}, all of them whole (store: false), got {quoted(kind)}")
    return messages


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
        """An item begins; a call gets its arguments at once."""
        block.id = new_id({"text": "msg_", "call": "fc_"}.get(block.kind, "rs_"))
        item = {**self._item(block), "status": "in_progress"}
        if block.call:
            field = "arguments" if "arguments" in item else "input"
            name = "function_call_arguments" if field == "arguments" else "custom_tool_call_input"
            yield self._event("output_item.added", output_index=block.index, item={**item, field: ""})
            yield self._event(f"{name}.delta", block, delta=item[field])
            yield self._event(f"{name}.done", block, **{field: item[field]})
            return
        yield self._event("output_item.added", output_index=block.index, item={**item, "content": []})
        yield self._event("content_part.added", block, content_index=0, part=_part(block))

    def grow(self, block: Block, text: str) -> Iterator[Event]:
        """More of a text or of reasoning."""
        yield self._text("delta", block, delta=text)

    def close(self, block: Block) -> Iterator[Event]:
        """The end of an item."""
        if not block.call:
            yield self._text("done", block, text=block.text)
            yield self._event("content_part.done", block, content_index=0, part=_part(block))
        yield self._event("output_item.done", output_index=block.index, item=self._item(block))

    def _event(self, name: str, block: Block | None = None, **content: Any) -> Event:
        self._number += 1
        place = {"item_id": block.id, "output_index": block.index} if block else {}
        return {"type": f"response.{name}", "sequence_number": self._number - 1, **place, **content}

    def _text(self, name: str, block: Block, **content: Any) -> Event:
        logprobs: dict[str, Any] = {"logprobs": []} if block.kind == "text" else {}  # which clients require
        return self._event(f"{_PARTS[block.kind]}.{name}", block, content_index=0, **content, **logprobs)

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
