"""One answer, from the request for it to its end: what it continues, how its tokens are chosen, and where it ends."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.grammar import Grammar
from spectool.runtime.sampling.samplers import Sampling, make_logits_processors
from spectool.runtime.settings import PENALTIES, SAMPLER
from spectool.serve.deltas import Delta, Place
from spectool.serve.models import LoadedModel
from spectool.serve.options import ServerOptions
from spectool.serve.requests import ChatRequest, GenerationRequest
from spectool.serve.splitter import Splitter

MOST_TOKENS = 1 << 15  # of an answer, where no context limits it, or of a chat's, where nobody has said how many
_TEXT_TOKENS = 512  # of a text where nobody has, because a model may never end one
_IN_ALL_OF_AN_ANSWER = {"presence_context_size": 0, "frequency_context_size": 0}  # OpenAI's penalties count there
_IMPOSSIBLE = -9999.0  # stands for the logarithm of 0, which JSON does not have


class Prompt(NamedTuple):
    """What an answer continues."""

    tokens: list[int]
    marks: Sequence[int] = ()  # numbers of its tokens, in order, that other prompts may go on from
    reasoning: bool | None = None  # whether it ends in the marker after which a chat's model reasons
    grammar: Grammar | None = None  # of the answer
    own_text: bool = False  # whether the answer continues no text, so that its first space is an artificial one
    prediction: PredictionDrafter | None = None  # of the answer


@dataclass(eq=False)
class Answer:
    """One answer to a request. The engine begins it and gives it its tokens."""

    request: GenerationRequest
    prompt: Prompt
    client: str = ""  # from whose prompt caches it continues
    deliver: Callable[[Delta | Exception | None], None] = lambda event: None  # gets pieces, then None or an error
    index: int = 0  # among the answers to the request
    copies: Sequence["Answer"] = ()  # to the same prompt, which begin once this one has read it
    tokens: list[int] = field(default_factory=list)  # generated so far, with the one that ended it
    reasoning: int = 0  # number of those that are reasoning
    held: TextCache | None = None  # what it is written into; a copy has it before it begins
    drafter: Drafter | DrafterSet | None = None  # of its own
    cached: int = 0  # tokens of the prompt that the cache held before
    drafting: DraftStatistics = field(default_factory=DraftStatistics)
    cancelled: bool = False  # nobody waits for it any more; set from any thread

    def __post_init__(self) -> None:
        self.prediction = copy(self.prompt.prediction)  # follows the text that this answer is expected to repeat

    def limit(self, model: LoadedModel, options: ServerOptions) -> int:
        """The most tokens that it may have; what the request leaves out is as ``options`` say."""
        room = (model.context or 0) - len(self.prompt.tokens)
        usual = options.max_tokens or (MOST_TOKENS if isinstance(self.request, ChatRequest) else _TEXT_TOKENS)
        limit = usual if self.request.limit is None else self.request.limit
        return min(limit, room if room > 0 else MOST_TOKENS)

    def begin(self, model: LoadedModel, options: ServerOptions) -> GenerationSettings:
        """Return how it is written, but for its drafts and cache; what the request leaves out is as ``options`` say."""
        self._model, request, prompt = model, self.request, self.prompt
        ends: dict[str, Any] = {"stop_tokens": model.ends, "max_tokens": self.limit(model, options)}
        own_text = prompt.own_text and not request.constrained
        self._text = AnswerText(model.tokenizer, request.stop, own_text=own_text, reasoning=prompt.reasoning, **ends)
        self._splitter = Splitter(
            model.tokenizer, request.offered, reasoning=prompt.reasoning, bare=not request.constrained
        )
        self._waiting: list[Place] = []  # until their text is let through
        self._one_call = isinstance(request, ChatRequest) and not request.parallel_tool_calls
        sampling = Sampling(**options.settings(SAMPLER, request.asked), xtc_special_tokens=model.kept_by_xtc)
        biases = {int(token): bias for token, bias in request.logit_bias.items()}
        penalties = _IN_ALL_OF_AN_ANSWER | options.settings(PENALTIES, request.asked)
        return GenerationSettings(
            **ends,
            prediction=self.prediction,
            sampler=sampling if sampling.temp > 0 else None,  # None takes the best tokens of all positions at once
            logits_processors=make_logits_processors(biases, skip=len(prompt.tokens), **penalties),
            grammar=prompt.grammar,
            statistics=self.drafting,
            seed=None if request.seed is None else (request.seed + self.index) % 2**63,  # answers draw differently
            prefill_step_size=options.prefill_step_size,
            kv_bits=options.kv_bits,
            quantized_kv_start=options.quantized_kv_start,
        )

    def add(self, token: int, logprobs: mx.array) -> Delta:
        """Add a token, given the log-probabilities [vocabulary] at its place; return what is certain to be written."""
        self.tokens.append(token)
        begins, certain = self._text.written, self._text.add(token)
        shown = self.request.shown_logprobs
        if shown is not None and token not in self._model.ends:
            self._waiting.append(self._place(token, logprobs, shown, begins))
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
        if (end == "stop" and self._splitter.ids) or (gained.calls and self._one_call):
            end = "tool_calls"
            gained.calls = gained.calls[:1] if self._one_call else gained.calls
        certain_to = math.inf if last and not stopped_by else self._text.certain
        gained.places = [place for place in self._waiting if place.begins < certain_to]
        del self._waiting[: len(gained.places)]
        gained.index, gained.end, gained.stopped_by = self.index, end, stopped_by or None
        return gained

    def _place(self, token: int, logprobs: mx.array, count: int, begins: int) -> Place:
        best: list[int] = []
        if count:
            best = mx.argpartition(-logprobs, min(count, logprobs.size - 1))[:count].tolist()  # type: ignore[assignment]
        values: list[float] = logprobs[mx.array([token, *best])].astype(mx.float32).tolist()  # type: ignore[assignment]
        chosen, *others = map(self._shown, [token, *best], values)
        return Place(begins, {**chosen, "top_logprobs": sorted(others, key=lambda other: -other["logprob"])})

    def _shown(self, token: int, logprob: float) -> dict[str, Any]:
        shown = self._model.tokens.shown_bytes_of(token)
        logprob = logprob if math.isfinite(logprob) else _IMPOSSIBLE
        return {"token": shown.decode(errors="replace"), "logprob": logprob, "bytes": list(shown)}
