"""Answers in the form of OpenAI's completions, of a chat and of a text."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from spectool.serve.answers import Answer
from spectool.serve.deltas import Delta, Place
from spectool.serve.errors import checked
from spectool.serve.protocols.common import Event, Writer, called, counts, metrics
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest


class CompletionWriter(Writer):
    """Writes ``text_completion`` documents and streams."""

    read: Callable[[dict[str, Any]], GenerationRequest] = partial(checked, CompletionRequest)
    done = b"data: [DONE]\n\n"
    kind = chunk_kind = "text_completion"
    prefix = "cmpl-"
    nothing: ClassVar[Event] = {"text": ""}  # in a chunk

    def __init__(self, request: GenerationRequest) -> None:
        super().__init__(request)
        self.answers: dict[int, Delta] = {}

    def begin(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """Nothing precedes a text."""
        return iter(())

    def add(self, piece: Delta) -> Iterator[Event]:
        """A chunk, unless the piece has nothing to tell."""
        self.answers.setdefault(piece.index, Delta(piece.index)).extend(piece)
        if piece.text or piece.places or piece.end:
            yield self._chunk(self._choice(piece, {"text": piece.text}, piece.end))

    def waiting(self) -> Iterator[Event]:
        """A chunk that adds nothing."""
        yield self._chunk(self._choice(Delta(), self.nothing))

    def finish(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The usage, if it is wanted."""
        if self.request.stream_options.include_usage:
            yield {**self._chunk(), **_figures(answers)}

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """All answers."""
        each = (self.answers[index] for index in sorted(self.answers))
        choices = [self._choice(answer, self._content(answer), answer.end or "abort") for answer in each]
        return {**self._chunk(*choices), "object": self.kind, **_figures(answers)}

    def _chunk(self, *choices: Event) -> Event:
        base = {"id": self.id, "created": self.created, "model": self.request.model}
        return {**base, "object": self.chunk_kind, "choices": list(choices)}

    def _choice(self, answer: Delta, content: Event, end: str | None = None) -> Event:
        logprobs = self._logprobs(answer.places) if answer.places else None
        return {"index": answer.index, **content, "logprobs": logprobs, "finish_reason": end}

    def _content(self, answer: Delta) -> dict[str, Any]:
        return {"text": answer.text}

    def _logprobs(self, places: Sequence[Place]) -> dict[str, Any]:
        tokens = [place.shown for place in places]
        return {
            "tokens": [each["token"] for each in tokens],
            "token_logprobs": [each["logprob"] for each in tokens],
            "top_logprobs": [{it["token"]: it["logprob"] for it in reversed(each["top_logprobs"])} for each in tokens],
            "text_offset": [place.begins for place in places],
        }


class ChatWriter(CompletionWriter):
    """Writes ``chat.completion`` documents and streams."""

    read = partial(checked, ChatRequest)
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl-"
    nothing: ClassVar[Event] = {"delta": {}}

    def add(self, piece: Delta) -> Iterator[Event]:
        """A chunk, with the role in the first one of an answer, and one for the end."""
        delta: dict[str, Any] = {} if piece.index in self.answers else {"role": "assistant"}
        answer = self.answers.setdefault(piece.index, Delta(piece.index))
        if piece.text or "role" in delta:
            delta["content"] = piece.text
        delta |= _said(piece)
        for number, call in enumerate(delta.get("tool_calls", ()), len(answer.calls)):
            call["index"] = number
        answer.extend(piece)
        if delta or piece.places:
            yield self._chunk(self._choice(piece, {"delta": delta}))
        if piece.end:
            yield self._chunk(self._choice(Delta(piece.index), self.nothing, piece.end))

    def _content(self, answer: Delta) -> dict[str, Any]:
        text = answer.text or (None if answer.calls else "")
        return {"message": {"role": "assistant", "content": text, **_said(answer)}}

    def _logprobs(self, places: Sequence[Place]) -> dict[str, Any]:
        return {"content": [place.shown for place in places]}


def _said(answer: Delta) -> dict[str, Any]:
    """What an answer has besides its text. Reasoning has two names, vLLM's and DeepSeek's: clients know only one."""
    thought = dict.fromkeys(("reasoning", "reasoning_content"), answer.reasoning) if answer.reasoning else {}
    calls = [called(call.id, call.name, call.arguments) for call in answer.calls]
    return {**thought, "tool_calls": calls} if calls else thought


def _figures(answers: Sequence[Answer]) -> dict[str, Any]:
    prompt, written, cached = counts(answers)
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if predictions := [answer.prediction for answer in answers if answer.prediction is not None]:
        accepted = sum(prediction.repeated for prediction in predictions)
        usage["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(len(prediction.tokens) for prediction in predictions) - accepted,
        }
    return {"usage": usage, "metrics": metrics(answers)}
