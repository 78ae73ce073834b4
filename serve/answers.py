"""One answer, from the request for it to its end: what it continues, how its tokens are chosen, and where it ends."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.target import TargetRunner
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.grammar import Grammar
from spectool.runtime.sampling.samplers import LogitsProcessor, Sampling, make_logits_processors
from spectool.runtime.settings import PENALTIES, SAMPLER
from spectool.serve.models import LoadedModel
from spectool.serve.options import ServerOptions
from spectool.serve.requests import ChatRequest, GenerationRequest
from spectool.serve.tool_calls import Delta, Splitter, TokenLogprob, TokenLogprobs

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


class Answer:
    """One answer. It is made for a request, and the engine begins it and gives it its tokens.

    Attributes:
        index: Its place among the answers to the request.
        deliver: Gets its pieces, and in the end None or the error that it failed with.
        copies: Answers to the same prompt, which begin once this one has read it.
        tokens: Those generated so far, with the one that ended it.
        reasoning: Number of those that are reasoning.
        cache: What it is written into; set before it begins if it is a copy.
        cached: Tokens of the prompt that the cache held before.
        prediction: Follows the text that it is expected to repeat; None if there is none.
        statistics: What drafting did for it.
        drafts: How many drafts had this many tokens, of which this many were accepted.
        cancelled: Nobody waits for it any more. Set from any thread.
        came_at, began_at, first_at: When it was asked for, was begun, and had its first token.
    """

    target: TargetRunner
    seed: int | None
    max_tokens: int
    sampler: Sampling | None  # None takes the most probable tokens of all positions at once
    processors: Sequence[LogitsProcessor]

    def __init__(
        self,
        request: GenerationRequest,
        prompt: Prompt,
        client: str = "",
        deliver: Callable[[Delta | Exception | None], None] = lambda event: None,
        index: int = 0,
    ) -> None:
        """Answer ``request`` after ``prompt``, from the prompt caches of ``client``."""
        self.request, self.prompt, self.client, self.deliver, self.index = request, prompt, client, deliver, index
        self.copies: Sequence[Answer] = ()
        self.tokens: list[int] = []
        self.cache: list[Any] | None = None
        self.cached = self.reasoning = 0
        self.prediction = copy(prompt.prediction)
        self.statistics = DraftStatistics()
        self.drafts: Counter[tuple[int, int]] = Counter()
        self.cancelled = False
        self.came_at = time.perf_counter()

    def begin(self, model: LoadedModel, options: ServerOptions) -> None:
        """Find out how it is written; a setting that the request leaves out is the server's."""
        self.began_at = self.first_at = time.perf_counter()
        self._model, request, prompt = model, self.request, self.prompt
        chat = request if isinstance(request, ChatRequest) else None
        self.seed = None if request.seed is None else (request.seed + self.index) % 2**63  # answers draw differently
        room = (model.context or 0) - len(prompt.tokens)
        usual = options.max_tokens or (_TEXT_TOKENS if chat is None else MOST_TOKENS)
        self.max_tokens = min(usual if request.limit is None else request.limit, room if room > 0 else MOST_TOKENS)
        self._set_sampler(options)
        # Where the last message is the assistant's, the answer continues it.
        is_own = prompt.empty if chat is None else chat.messages[-1].role != "assistant"
        self._text = AnswerText(
            model.tokenizer,
            [request.stop] if isinstance(request.stop, str) else request.stop,
            stop_tokens=model.ends,
            max_tokens=self.max_tokens,
            own_text=is_own and prompt.grammar is None,
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

    def _set_sampler(self, options: ServerOptions) -> None:
        request = self.request
        asked = {name: getattr(request, "temperature" if name == "temp" else name, None) for name in SAMPLER}
        settings = {name: getattr(options, name, None) if value is None else value for name, value in asked.items()}
        given = {name: value for name, value in settings.items() if value is not None}
        sampling = Sampling(**given, xtc_special_tokens=self._model.kept_by_xtc)
        self.sampler = sampling if sampling.temp > 0 else None
        penalties = {name: getattr(request, name) or None for name in PENALTIES}
        sizes = [name.replace("penalty", "context_size") for name in PENALTIES]
        self.processors = make_logits_processors(
            {int(token): bias for token, bias in request.logit_bias.items()},
            **penalties,
            **{name: getattr(request, name) for name in sizes},
        )

    def add(self, token: int, logprobs: mx.array) -> Delta:
        """Add a token, given the log-probabilities [vocabulary] at its place; return what is certain to be written."""
        if not self.tokens:
            self.first_at = time.perf_counter()
        self.tokens.append(token)
        begins, certain = self._text.written, self._text.add(token)
        shown = self.request.shown_logprobs
        if shown is not None and token not in self._model.ends:
            self._waiting.append((begins, self._place(token, logprobs, shown)))
        return self._delta(certain, self._text.end)

    def abort(self) -> Delta:
        """End the answer where it is, and return what was held back of it."""
        return self._delta(self._text.finish(), "abort")

    def _delta(self, certain: str, end: str | None) -> Delta:
        last, stopped_by = end is not None, self._text.stopped_by
        thought = self._splitter.thinks
        gained = self._splitter.add(certain, last, cut=end in ("length", "abort"))
        if thought or self._splitter.thinks:  # which comes first
            self.reasoning = len(self.tokens)
        self._called = self._called or bool(gained.calls)
        if (end == "stop" and self._called) or (gained.calls and self._one_call):
            end = "tool_calls"
            gained.calls = gained.calls[:1] if self._one_call else gained.calls
        certain_to = math.inf if last and not stopped_by else self._text.certain
        gained.places = [place for begins, place in self._waiting if begins < certain_to]
        del self._waiting[: len(gained.places)]
        gained.index, gained.end, gained.stopped_by = self.index, end, stopped_by or None
        return gained

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
