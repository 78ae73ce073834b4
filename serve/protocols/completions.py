"""Answers in the form of OpenAI's completions, of a chat and of a text."""

from collections.abc import Iterator, Sequence
from typing import Any

from spectool.serve.answers import Delta, Job, TokenLogprob, TokenLogprobs
from spectool.serve.errors import RequestRefused
from spectool.serve.protocols.common import Event, called, counts, drafting_figures, new_id, now
from spectool.serve.requests import GenerationRequest

_REASONING = ("reasoning", "reasoning_content")  # vLLM's name and DeepSeek's; clients know one or the other


class CompletionWriter:
    """Writes ``text_completion`` documents and streams."""

    done = b"data: [DONE]\n\n"
    codes_in_stream: tuple[str, ...] = ()
    kind = chunk_kind = "text_completion"
    prefix = "cmpl-"

    def __init__(self, request: GenerationRequest) -> None:
        """Write the answers to ``request``."""
        self.request = request
        self.answers: dict[int, Delta] = {}
        self._base = {"id": new_id(self.prefix), "created": now(), "model": request.model}

    def begin(self, jobs: Sequence[Job]) -> Iterator[Event]:
        """Nothing precedes a text."""
        return iter(())

    def add(self, piece: Delta) -> Iterator[Event]:
        """A chunk, unless the piece has nothing to tell."""
        answer = self.answers.setdefault(piece.index, Delta(piece.index))
        offset = len(answer.text)
        answer.extend(piece)
        if piece.text or piece.places or piece.end:
            logprobs = _columns(piece.places, offset) if piece.places else None
            yield self._chunk(index=piece.index, text=piece.text, logprobs=logprobs, finish_reason=piece.end)

    def waiting(self) -> Iterator[Event]:
        """A chunk that adds nothing."""
        yield self._chunk(index=0, text="", logprobs=None, finish_reason=None)

    def finish(self, jobs: Sequence[Job]) -> Iterator[Event]:
        """The usage, if it is wanted."""
        if self.request.stream_options.include_usage:
            figures = {"usage": _usage(jobs), "metrics": drafting_figures(jobs)}
            yield {**self._base, "object": self.chunk_kind, "choices": [], **figures}

    def whole(self, jobs: Sequence[Job]) -> dict[str, Any]:
        """All answers."""
        choices = [self._choice(index, self.answers[index]) for index in sorted(self.answers)]
        figures = {"usage": _usage(jobs), "metrics": drafting_figures(jobs)}
        return {**self._base, "object": self.kind, "choices": choices, **figures}

    def error(self, refusal: RequestRefused) -> Event:
        """The error as outside of streams."""
        return refusal.body

    def _chunk(self, **choice: Any) -> Event:
        return {**self._base, "object": self.chunk_kind, "choices": [choice]}

    def _choice(self, index: int, answer: Delta) -> dict[str, Any]:
        logprobs = None if self.request.shown_logprobs is None else _columns(answer.places, 0)
        return {"index": index, "text": answer.text, "logprobs": logprobs, "finish_reason": answer.end or "abort"}


class ChatWriter(CompletionWriter):
    """Writes ``chat.completion`` documents and streams."""

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl-"

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
        logprobs = {"content": list(map(_token, piece.places))} if piece.places else None
        if delta or logprobs:
            yield self._chunk(index=piece.index, delta=delta, logprobs=logprobs, finish_reason=None)
        if piece.end:
            yield self._chunk(index=piece.index, delta={}, logprobs=None, finish_reason=piece.end)

    def waiting(self) -> Iterator[Event]:
        """A chunk that adds nothing."""
        yield self._chunk(index=0, delta={}, logprobs=None, finish_reason=None)

    def _choice(self, index: int, answer: Delta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.reasoning:
            message |= dict.fromkeys(_REASONING, answer.reasoning)
        if answer.calls:
            message |= {"content": answer.text or None, "tool_calls": [called(*call) for call in answer.calls]}
        logprobs = None if self.request.shown_logprobs is None else {"content": list(map(_token, answer.places))}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": answer.end or "abort"}


def _usage(jobs: Sequence[Job]) -> dict[str, Any]:
    prompt, written, cached = counts(jobs)
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if predictions := [job.prediction for job in jobs if job.prediction is not None]:
        accepted = sum(prediction.repeated for prediction in predictions)
        usage["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(len(prediction.tokens) for prediction in predictions) - accepted,
        }
    return usage


def _text(choice: TokenLogprob) -> str:
    return choice.token.decode(errors="replace")


def _token(place: TokenLogprobs) -> dict[str, Any]:
    """A place as chats show it."""

    def shown(choice: TokenLogprob) -> dict[str, Any]:
        return {"token": _text(choice), "logprob": choice.logprob, "bytes": list(choice.token)}

    return {**shown(place.chosen), "top_logprobs": list(map(shown, place.best))}


def _columns(places: Sequence[TokenLogprobs], offset: int) -> dict[str, Any]:
    """Places as texts show them: in columns, the first token ``offset`` characters into the answer."""
    texts = [_text(place.chosen) for place in places]
    offsets = [offset + sum(map(len, texts[:i])) for i in range(len(texts))]
    return {
        "tokens": texts,
        "token_logprobs": [place.chosen.logprob for place in places],
        "top_logprobs": [{_text(choice): choice.logprob for choice in reversed(place.best)} for place in places],
        "text_offset": offsets,
    }
