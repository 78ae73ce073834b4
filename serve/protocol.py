"""What the protocols have in common: a writer turns the pieces of a job's answers into one document or a stream."""

import json
import time
from collections.abc import Iterator
from typing import Any, Protocol
from uuid import uuid4

from spectool.serve.engine import Job
from spectool.serve.requests import RequestRefused
from spectool.serve.texts import Piece


class Event(dict[str, Any]):
    """An event of a stream; a ``name`` is written on a line of its own."""

    name: str | None = None

    def encoded(self) -> bytes:
        """The bytes of the event."""
        line = f"event: {self.name}\n" if self.name else ""
        return f"{line}data: {as_json(self)}\n\n".encode()


def named(name: str, **content: Any) -> Event:
    """An event that has its name in its content too, as OpenAI's responses and Anthropic's messages do."""
    event = Event(type=name, **content)
    event.name = name
    return event


class Writer(Protocol):
    """A protocol's form of one job's answers."""

    done: bytes  # what ends a stream

    def begin(self, job: Job) -> Iterator[Event]:
        """The events before the first piece."""

    def add(self, piece: Piece) -> Iterator[Event]:
        """The events of a piece."""

    def finish(self, job: Job) -> Iterator[Event]:
        """The events after the last piece."""

    def whole(self, job: Job) -> dict[str, Any]:
        """The answer as one document, after all pieces were added."""

    def error(self, refusal: RequestRefused) -> Event:
        """An error in a stream."""


def as_json(content: Any) -> str:
    """JSON as all answers are written."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def new_id(prefix: str) -> str:
    """An identifier that nothing else has."""
    return f"{prefix}{uuid4().hex[:24]}"


def now() -> int:
    """The time in whole seconds."""
    return int(time.time())


def counts(job: Job) -> tuple[int, int, int | None]:
    """Tokens of the prompts, of the answers, and of the prompts that were cached; None where that is not told.

    Without keys, all clients share the prompt caches, and the count would tell one of them what another has asked.
    """
    prompts = sum(len(prompt.tokens) for prompt in job.prompts)
    cached = sum(text.cached for text in job.texts[:: job.asked.n]) if job.client else None
    return prompts, sum(len(text.tokens) for text in job.texts), cached


def drafting_figures(job: Job) -> dict[str, Any]:
    """What drafting did for a job, in the form that vLLM gives it; with drafts of several lengths, of the longest."""
    drafting = job.drafting
    steps = sum(drafting.histogram.values())
    accepted = sum(accepted * count for accepted, count in drafting.histogram.items())
    return {
        "speculative_decoding": {
            "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
            "draft_acceptance_rate": accepted / drafting.drafted if drafting.drafted else 0.0,
            "acceptance_histogram": [drafting.histogram[length] for length in range(drafting.longest + 1)],
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafting.drafted,
            "num_spec_tokens": drafting.longest,
        }
    }
