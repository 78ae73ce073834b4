"""Answers in the form of OpenAI's completions, of a chat and of a text."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from spectool.serve.answers import Answer
from spectool.serve.deltas import Delta, TokenLogprob, TokenLogprobs
from spectool.serve.errors import checked
from spectool.serve.protocols.common import Event, Writer, called, counts, metrics
from spectool.serve.requests import ChatRequest, CompletionRequest, GenerationRequest

_REASONING = ("reasoning", "reasoning_content")  # vLLM's name and DeepSeek's; clients know one or the other


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
        self._base = {"id": self.id, "created": self.created, "model": request.model}

    def begin(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """Nothing precedes a text."""
        return iter(())

    def add(self, piece: Delta) -> Iterator[Event]:
        """A chunk, unless the piece has nothing to tell."""
        answer = self.answers.setdefault(piece.index, Delta(piece.index))
        answer.extend(piece)
        if piece.text or piece.places or piece.end:
            logprobs = self._logprobs(piece.places) if piece.places else None
            yield self._chunk(piece.index, {"text": piece.text}, logprobs, piece.end)

    def waiting(self) -> Iterator[Event]:
        """A chunk that adds nothing."""
        yield self._chunk(0, self.nothing)

    def finish(self, answers: Sequence[Answer]) -> Iterator[Event]:
        """The usage, if it is wanted."""
        if self.request.stream_options.include_usage:
            yield {**self._base, "object": self.chunk_kind, "choices": [], **_figures(answers)}

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """All answers."""
        choices = []
        for index, answer in sorted(self.answers.items()):
            logprobs = None if self.request.shown_logprobs is None else self._logprobs(answer.places)
            ends = {"logprobs": logprobs, "finish_reason": answer.end or "abort"}
            choices.append({"index": index, **self._content(answer), **ends})
        return {**self._base, "object": self.kind, "choices": choices, **_figures(answers)}

    def _chunk(self, index: int, content: Event, logprobs: Any = None, end: str | None = None) -> Event:
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": end}
        return {**self._base, "object": self.chunk_kind, "choices": [choice]}

    def _content(self, answer: Delta) -> dict[str, Any]:
        return {"text": answer.text}

    def _logprobs(self, places: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Places in columns."""
        return {
            "tokens": [_text(place.chosen) for place in places],
            "token_logprobs": [place.chosen.logprob for place in places],
            "top_logprobs": [{_text(choice): choice.logprob for choice in reversed(place.best)} for place in places],
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
        if piece.reasoning:
            delta |= dict.fromkeys(_REASONING, piece.reasoning)
        if piece.calls:
            first = len(answer.calls)
            delta["tool_calls"] = [{"index": first + i, **called(*call)} for i, call in enumerate(piece.calls)]
        answer.extend(piece)
        logprobs = self._logprobs(piece.places) if piece.places else None
        if delta or logprobs:
            yield self._chunk(piece.index, {"delta": delta}, logprobs)
        if piece.end:
            yield self._chunk(piece.index, self.nothing, end=piece.end)

    def _content(self, answer: Delta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.reasoning:
            message |= dict.fromkeys(_REASONING, answer.reasoning)
        if answer.calls:
            message |= {"content": answer.text or None, "tool_calls": [called(*call) for call in answer.calls]}
        return {"message": message}

    def _logprobs(self, places: Sequence[TokenLogprobs]) -> dict[str, Any]:
        def shown(choice: TokenLogprob) -> dict[str, Any]:
            return {"token": _text(choice), "logprob": choice.logprob, "bytes": list(choice.token)}

        return {"content": [{**shown(each.chosen), "top_logprobs": list(map(shown, each.best))} for each in places]}


def _figures(answers: Sequence[Answer]) -> dict[str, Any]:
    prompt, written, cached = counts(answers)
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if predictions := [answer.prediction for answer in answers if answer.prediction is not None]:
        accepted = sum(prediction.repeated for prediction in predictions)
        usage["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(len(prediction.tokens) for prediction in predictions) - accepted,
        }
    return {"usage": usage, "metrics": metrics(answers)}


def _text(choice: TokenLogprob) -> str:
    return choice.token.decode(errors="replace")
