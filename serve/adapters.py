"""What Anthropic's and OpenAI's newer protocol have in common here: blocks of text, reasoning and calls, in order.

Both are translated into a `ChatRequest`, and its pieces into a list of blocks of which the last one may be open.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from spectool.serve.engine import Job
from spectool.serve.protocol import Event
from spectool.serve.requests import ChatRequest, wrong_field
from spectool.serve.texts import Piece
from spectool.serve.tool_calls import Call


@dataclass(slots=True)
class Block:
    """A part of an answer: ``text``, ``reasoning``, or a ``call``, which is complete when it comes."""

    kind: str
    index: int
    text: str = ""
    call: Call | None = None


class BlockWriter:
    """Collects the blocks of the one answer to a request; subclasses write them down."""

    done = b""

    def __init__(self, asked: ChatRequest) -> None:
        """Write the answer to ``asked``."""
        self.asked = asked
        self.blocks: list[Block] = []
        self.end, self.stopped_by = "abort", ""
        self._open = False

    def add(self, piece: Piece) -> Iterator[Event]:
        """The events of a piece."""
        self.end, self.stopped_by = piece.end or self.end, piece.stopped_by or self.stopped_by
        for kind, text in (("reasoning", piece.reasoning), ("text", piece.text)):
            if text:
                yield from self._extended(kind, text)
        for call in piece.calls:
            yield from self._closed()
            yield from self._opened(Block("call", len(self.blocks), call=call))
        if piece.end:
            yield from self._closed()

    def _extended(self, kind: str, text: str) -> Iterator[Event]:
        if not self._open or self.blocks[-1].kind != kind:
            yield from self._closed()
            yield from self._opened(Block(kind, len(self.blocks)))
        self.blocks[-1].text += text
        yield from self.grow(self.blocks[-1], text)

    def _opened(self, block: Block) -> Iterator[Event]:
        self.blocks.append(block)
        self._open = True
        yield from self.open(block)

    def _closed(self) -> Iterator[Event]:
        if self._open:
            self._open = False
            yield from self.close(self.blocks[-1])

    def open(self, block: Block) -> Iterator[Event]:
        """The events of a block that begins; a call is there already."""
        raise NotImplementedError

    def grow(self, block: Block, text: str) -> Iterator[Event]:
        """The events of a block that gains ``text``."""
        raise NotImplementedError

    def close(self, block: Block) -> Iterator[Event]:
        """The events of a block that ends."""
        raise NotImplementedError

    def whole(self, job: Job) -> dict[str, Any]:
        """The answer as one document."""
        raise NotImplementedError


def own_tools(tools: Any, is_own: Callable[[dict[str, Any]], bool]) -> tuple[list[dict[str, Any]], dict[str, bool]]:
    """The tools that the client runs itself, and fields that name the others.

    Those that OpenAI or Anthropic would run are not here. Clients always offer some, so they are no reason to refuse.

    Raises:
        RequestRefused: It is no list of tools.
    """
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise wrong_field("tools", "expected a list of tools")
    return [tool for tool in tools if is_own(tool)], {
        f"tools_{tool.get('type')}": True for tool in tools if not is_own(tool)
    }


def joined(content: Any, field: str) -> str:
    """The text of a content: a text, or a list of parts that have one.

    Raises:
        RequestRefused: A part is something else, such as an image.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    raise wrong_field(field, "expected a text, or parts of text alone, because nothing else can be read")
