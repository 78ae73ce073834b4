"""What answers gain while they are written, as the engine hands it to the protocols."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call of a tool."""

    id: str
    name: str
    arguments: str  # a JSON object
    begins: int = 0  # characters of the answer's text before it


class Place(NamedTuple):
    """A token that was generated, with its probability and what could have been there instead."""

    begins: int  # characters of the answer before it
    shown: dict[str, Any]  # in the form of a chat's answers


@dataclass(slots=True)
class Delta:
    """What one of the answers to a request gained; ``end`` says why it ends here."""

    index: int = 0
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    end: str | None = None  # stop, length, tool_calls or abort
    stopped_by: str | None = None  # the stop text, where one ended it

    def extend(self, gained: "Delta") -> None:
        """Add what follows, so that this is the answer up to there."""
        self.text += gained.text
        self.reasoning += gained.reasoning
        self.calls += gained.calls
        self.places += gained.places
        self.end = gained.end or self.end
