"""One answer as it is written: what it continues, how its tokens are chosen, and where it ends."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.target import TargetRunner
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.grammar import Grammar
from spectool.runtime.sampling.samplers import LogitsProcessor, Sampling, make_logits_processors
from spectool.serve.models import LoadedModel
from spectool.serve.options import ServerOptions
from spectool.serve.requests import ChatRequest, GenerationRequest
from spectool.serve.tool_calls import Call, Splitter

MOST_TOKENS = 1 << 15  # of an answer, where no context limits it, or of a chat's, where nobody has said how many
_TEXT_TOKENS = 512  # of a text where nobody has, because a model may never end one
_IMPOSSIBLE = -9999.0  # stands for the logarithm of 0, which JSON does not have


class Prompt(NamedTuple):
    """What an answer continues."""

    tokens: list[int]
    thinks: bool = False  # whether it ends in the marker after which the model reasons
    grammar: Grammar | None = None  # of the answer
    empty: bool = False  # whether it has no text, so that the answer's first space is an artificial one
    prediction: PredictionDrafter | None = None  # of the answer


class TokenLogprob(NamedTuple):
    """A token and its probability."""

    token: bytes
    logprob: float


class TokenLogprobs(NamedTuple):
    """A token that was generated, and what could have been there instead."""

    chosen: TokenLogprob
    best: tuple[TokenLogprob, ...]  # the most probable ones, the best first


@dataclass(slots=True)
class Delta:
    """What one of the answers to a request gained; ``end`` says why it ends here."""

    index: int
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    places: list[TokenLogprobs] = field(default_factory=list)
    end: str | None = None  # stop, length, tool_calls or abort
    stopped_by: str | None = None  # the stop text, where one ended it

    def extend(self, gained: "Delta") -> None:
        """Add what follows, so that this is the answer up to there."""
        self.text += gained.text
        self.reasoning += gained.reasoning
        self.calls += gained.calls
        self.places += gained.places
        self.end = gained.end or self.end


class Job:
    """One answer on its way through the engine, and what came of it.

    Attributes:
        tokens: Those generated so far, with the one that ended it.
        reasoning: Number of those that are reasoning.
        cached: Tokens of the prompt that the prompt cache had.
        prediction: Follows the text that it is expected to repeat; None if there is none.
        statistics: What drafting did for it.
        drafts: How many drafts had this many tokens, of which this many were accepted.
        copies: Jobs that begin once this one has read the prompt that they share.
        read: The cache after that prompt, for those.
        cancelled: Nobody waits for it any more. Set from any thread.
    """

    def __init__(
        self,
        request: GenerationRequest,
        prompt: Prompt,
        client: str,
        deliver: Callable[[Delta | Exception | None], None],
        index: int = 0,
        first: "Job | None" = None,
    ) -> None:
        """Continue ``prompt`` from the prompt caches of ``client``, or from where the ``first`` job has read it.

        It is the answer with this ``index`` to the request. ``deliver`` gets its pieces, and in the end None or the
        error that it failed with.
        """
        if first is not None:
            first.copies.append(self)
        self.request, self.prompt, self.client, self.deliver = request, prompt, client, deliver
        self.index, self.first = index, first
        self.tokens: list[int] = []
        self.copies: list[Job] = []
        self.cached = self.reasoning = 0
        self.prediction = copy(prompt.prediction)
        self.statistics = DraftStatistics()
        self.drafts: Counter[tuple[int, int]] = Counter()
        self.read: list[Any] | None = None
        self.cancelled = False
        self.began = time.monotonic()


class Answer:
    """The answer to a job while it is written. The engine gives it its tokens; it shares nothing with other answers.

    Attributes:
        target: Writes it into ``cache``; set by the engine, like this.
        began: When that was; ``first`` is when it got its first token.
    """

    target: TargetRunner
    cache: list[Any]

    def __init__(self, job: Job, model: LoadedModel, options: ServerOptions) -> None:
        """Begin an answer; a setting that the request leaves out is the server's.

        Raises:
            WrongSetting: A setting of the sampler or of a penalty is out of range.
        """
        self.job, request, prompt = job, job.request, job.prompt
        self.seed = None if request.seed is None else (request.seed + job.index) % 2**63  # answers draw differently
        room = (model.context or 0) - len(prompt.tokens)
        room = room if room > 0 else MOST_TOKENS
        usual = options.max_tokens or (MOST_TOKENS if isinstance(request, ChatRequest) else _TEXT_TOKENS)
        self.max_tokens = min(usual if request.limit is None else request.limit, room)
        self.sampler = _sampler(request, model, options)
        self.processors = _processors(request)
        self.began = self.first = time.perf_counter()
        chat = request if isinstance(request, ChatRequest) else None
        self._model = model
        # Where the last message is the assistant's, the answer continues it.
        is_own = prompt.empty if chat is None else chat.messages[-1].role != "assistant"
        own_text = is_own and prompt.grammar is None
        stops = [request.stop] if isinstance(request.stop, str) else request.stop
        self._text = AnswerText(
            model.tokenizer, stops, stop_tokens=model.ends, max_tokens=self.max_tokens, own_text=own_text
        )
        self._splitter = Splitter(
            model.tokenizer,
            chat.offered if chat else (),
            reasoning=chat is not None,
            thinks=prompt.thinks,
            bare=prompt.grammar is None,
        )
        # tokens and where they begin, until their text is let through
        self._waiting: list[tuple[int, TokenLogprobs]] = []
        self._called = False
        self._one_call = chat is not None and not chat.parallel_tool_calls

    def add(self, token: int, logprobs: mx.array) -> Delta:
        """Add a token, given the log-probabilities [vocabulary] at its place; return what is certain to be written."""
        if not self.job.tokens:
            self.first = time.perf_counter()
        self.job.tokens.append(token)
        begins, certain = self._text.written, self._text.add(token)
        shown = self.job.request.shown_logprobs
        if shown is not None and token not in self._model.ends:
            self._waiting.append((begins, self._place(token, logprobs, shown)))
        return self._delta(certain, self._text.end)

    def abort(self) -> Delta:
        """End the answer where it is, and return what was held back of it."""
        return self._delta(self._text.finish(), "abort")

    def _delta(self, certain: str, end: str | None) -> Delta:
        last, stopped_by = end is not None, self._text.stopped_by
        thought = self._splitter.thinks
        parts = self._splitter.add(certain, last, cut=end in ("length", "abort"))
        if thought or self._splitter.thinks:  # which comes first
            self.job.reasoning = len(self.job.tokens)
        self._called = self._called or bool(parts.calls)
        certain_to = math.inf if last and not stopped_by else self._text.certain
        shown = [place for begins, place in self._waiting if begins < certain_to]
        del self._waiting[: len(shown)]
        if (end == "stop" and self._called) or (parts.calls and self._one_call):
            end = "tool_calls"
        calls = parts.calls[:1] if self._one_call else parts.calls
        return Delta(self.job.index, parts.text, parts.reasoning, list(calls), shown, end, stopped_by or None)

    def _place(self, token: int, logprobs: mx.array, count: int) -> TokenLogprobs:
        best: list[int] = []
        if count:
            best = mx.argpartition(-logprobs, min(count, logprobs.size - 1))[:count].tolist()  # type: ignore[assignment]
        values: list[float] = logprobs[mx.array([token, *best])].astype(mx.float32).tolist()  # type: ignore[assignment]
        choices = [
            TokenLogprob(self._model.tokens.shown_bytes_of(each), value if math.isfinite(value) else _IMPOSSIBLE)
            for each, value in zip([token, *best], values, strict=True)
        ]
        return TokenLogprobs(choices[0], tuple(sorted(choices[1:], key=lambda choice: -choice.logprob)))


def _sampler(request: GenerationRequest, model: LoadedModel, options: ServerOptions) -> Sampling | None:
    """The sampler of a request; None takes the most probable tokens of all positions at once."""

    def given(value: Any, default: Any) -> Any:
        return default if value is None else value

    sampling = Sampling(
        given(request.temperature, options.temp),
        top_p=given(request.top_p, options.top_p),
        top_k=given(request.top_k, options.top_k),
        min_p=given(request.min_p, options.min_p),
        xtc_probability=request.xtc_probability,
        xtc_threshold=request.xtc_threshold,
        xtc_special_tokens=model.kept_by_xtc,
    )
    return sampling if sampling.temp > 0 else None


def _processors(request: GenerationRequest) -> Sequence[LogitsProcessor]:
    return make_logits_processors(
        {int(token): bias for token, bias in request.logit_bias.items()},
        repetition_penalty=request.repetition_penalty or None,
        repetition_context_size=request.repetition_context_size,
        presence_penalty=request.presence_penalty or None,
        presence_context_size=request.presence_context_size,
        frequency_penalty=request.frequency_penalty or None,
        frequency_context_size=request.frequency_context_size,
    )
