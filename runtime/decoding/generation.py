"""The generation loop: one for every drafter, and for none.

    propose     drafter guesses d1 .. dk for the positions after the last committed token c
    verify      one target pass over  c d1 .. dk  gives the target's own choice at each position
                                      t0 t1 .. tk
    commit      the draft tokens that equal the target's choices, and the first choice that does not
                (or tk when all k are right); the rejected ones are taken out of the cache, and where
                that takes some accepted ones along, the next pass feeds these again before c

Every committed token is a choice that the target made after the true history, so a drafter can change the speed and
nothing else. With a sampler this is exact-match verification. Each position is sampled on its own, and its sample is
the committed token whether or not the draft had guessed it. Where the sampler's distribution is known, drafts are
verified by rejection sampling instead. It keeps the distribution too, and accepts more of those that were drawn
(docs/sampling.md).

Where no drafts will follow a pass without drafts, the next pass begins before the token of this one is read. mlx-lm's
own loop does the same. The device computes it while Python hands the token over. Its input is in the cache one token
early, and is taken out again if the generation ends there.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import mlx.core as mx

from spectool.runtime.caches import windows
from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.caches.leaves import leaves
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.decoding.drafter import Cycle, Drafter, accepted_length
from spectool.runtime.decoding.proposer import Proposer
from spectool.runtime.decoding.randomness import Randomness
from spectool.runtime.decoding.sampling import LogitsProcessor, Sampler, biased_tokens, log_probabilities, processed
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.token_ids import as_ids, prompt_ids, require_lengths, require_tokens, vocabulary_size
from spectool.runtime.decoding.verification import choose, ids
from spectool.runtime.host.generation import (
    DEFAULT_QUANTIZED_KV_START,
    generation_stream,
    make_prompt_cache,
    maybe_quantize_kv_cache,
)

if TYPE_CHECKING:
    from spectool.runtime.draft_length.controller import Controller

CLEAR_EVERY = 256  # cycles between two mx.clear_cache(), as in mlx-lm


class _Pass(NamedTuple):
    """A target pass, lazy."""

    tokens: mx.array  # the target's choice at each position from the last committed token on, shape [rows]
    logprobs: mx.array  # log-probabilities [rows, vocabulary]
    judged: int  # leading positions whose choice counts: all, unless a processor refuses the text of a draft


def generate_step(
    prompt: mx.array | Sequence[int],
    model: Any,
    *,
    drafter: Drafter | None = None,
    num_draft_tokens: "int | Controller | None" = None,
    max_tokens: int = 256,
    stop_tokens: Collection[int] = frozenset(),
    sampler: Sampler | None = None,
    logits_processors: Sequence[LogitsProcessor] | None = None,
    seed: int | None = None,
    verify: Literal["exact", "rejection"] | None = None,
    max_kv_size: int | None = None,
    prompt_cache: list[Any] | None = None,
    cached_tokens: Sequence[int] = (),
    prefill_step_size: int = 2048,
    prompt_progress_callback: Callable[[int, int], None] | None = None,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = DEFAULT_QUANTIZED_KV_START,
    stream: Any = generation_stream,
    statistics: DraftStatistics | None = None,
    on_cycle: Callable[[Cycle], None] | None = None,
) -> Generator[tuple[int, mx.array, bool], None, None]:
    """Generate tokens after ``prompt``: the same as plain decoding, in fewer target passes.

    Mutates ``prompt_cache`` and ``statistics``. However the generator ends, the target's cache holds the prompt and the
    yielded tokens without the last one. Before the first yield, that is the prompt without its last token. After an
    error in the prompt pass, the cache holds what it held before (quantised, if that was done before the error). With
    recurrent layers this can take one more pass, over a few tokens. An interruption between two tokens, or before the
    first, can leave the last one in, too, where a window has wrapped: its offset shows it.

    Any kind of cache can be drafted on. A drafter that raises is switched off with a warning.

    Args:
        prompt: Token ids, shape [tokens], at least one. With a ``prompt_cache`` that has content,
            the tokens that follow it.
        model: An mlx-lm model.
        drafter: Source of draft tokens; None decodes plainly.
        num_draft_tokens: Maximum number of draft tokens per cycle; 0 decodes plainly. None chooses the number that is
            fastest on this machine with this text. It goes by what was measured in this generation and in earlier
            ones with the same model and drafter. A `Controller` does the same with what it has learnt itself.
        max_tokens: Tokens to generate; -1 for no limit.
        stop_tokens: Token ids that end the generation once yielded.
        sampler: Draws a token from log-probabilities [1, vocabulary]; called once for each
            position. None takes the most probable token.
        logits_processors: Change the logits [1, vocabulary] of a position, given all tokens
            before it, shape [tokens]. Must be functions of their arguments, since they are
            also asked about positions that are then rejected. One that raises there, as a grammar
            does, ends the draft; one that raises after committed tokens ends the generation.
        seed: Draws from a random state of its own, so that the same call with a fixed draft length gives the same text
            again. MLX's shared state stays as it is. None draws from that one.
        verify: ``rejection`` lets draft models that can do so draw their drafts, by the request's own settings, and
            accepts all drafts by rejection sampling. The sampler must then be a `Sampling`; without one, exact match is
            all there is. None: by rejection sampling with a `Sampling`, by exact match with other samplers.
        max_kv_size: Window of the cache, in tokens, for models that do not make their own.
        prompt_cache: Cache to continue, one entry for each layer; None makes a fresh one.
        cached_tokens: Token ids that ``prompt_cache`` holds, so that drafters and processors see
            the whole text; without them they see the prompt alone.
        prefill_step_size: Prompt tokens in one pass.
        prompt_progress_callback: Called with the prompt tokens fed so far and their total, as in
            mlx-lm; when it raises, the generation ends.
        kv_bits: Bits of a quantised cache; None leaves it as it is.
        kv_group_size: Group size of the quantised cache.
        quantized_kv_start: Tokens in the cache from which on it is quantised.
        stream: Stream that the models run on.
        statistics: Added to: passes cycle by cycle, tokens as they are yielded.
        on_cycle: Called for each cycle before its first token is yielded.

    Returns:
        A generator of ``(token id, log-probabilities [vocabulary], whether it was drafted)``.

    Raises:
        RuntimeUnsupported: The prompt is empty, or the model's caches allow no quantisation. Or (`TokenOutOfRange`)
            the model does not have a token of the prompt, the cached tokens or a logit bias.
            Raised at the call, before any work.
    """
    tokens, cached_tokens, vocabulary = prompt_ids(prompt), tuple(as_ids(cached_tokens)), vocabulary_size(model)
    require_lengths(max_tokens, num_draft_tokens)
    require_tokens("prompt", tokens, vocabulary)
    require_tokens("cached_tokens", cached_tokens, vocabulary)
    for processor in logits_processors or ():
        require_tokens("logit_bias", biased_tokens(processor), vocabulary)
    cache = make_prompt_cache(model, max_kv_size) if prompt_cache is None else prompt_cache
    processors = tuple(logits_processors or ())
    draw = None
    if verify != "exact" and (verify or sampler):
        from spectool.runtime.decoding.rejection import draw_for

        draw = draw_for(model, verify, sampler, processors)
    if kv_bits is not None:
        from spectool.runtime.caches.quantized import require_quantizable

        require_quantizable(cache, model)
    ended = None
    length: int | Controller = num_draft_tokens or 0
    if isinstance(length, Integral):  # numpy's, too
        length = int(length)
    if num_draft_tokens is None and drafter is not None:
        from spectool.runtime.draft_length.session import borrow, give_back

        length = borrow(model, drafter)
        ended = partial(give_back, model, drafter, length)
    statistics = DraftStatistics() if statistics is None else statistics
    quantized_from = quantized_kv_start if kv_bits else None
    proposer = Proposer(drafter, length, cache, quantized_from, draw, vocabulary=vocabulary, statistics=statistics)
    statistics.controller = proposer.controller
    quantize = partial(maybe_quantize_kv_cache, cache, quantized_kv_start, kv_group_size, kv_bits)
    return _Run(
        model=model,
        cache=cache,
        proposer=proposer,
        prompt=mx.array(tokens),  # not the array that was given: its integers may be too narrow for other tokens
        vocabulary=vocabulary,
        prompt_ids=tokens,
        cached_tokens=cached_tokens,
        max_tokens=max_tokens,
        stop_tokens=frozenset(stop_tokens),
        sampler=sampler,
        processors=processors,
        randomness=Randomness(seed),
        prefill=partial(prefill, model, cache, step_size=prefill_step_size, quantize=quantize),
        quantize=quantize,
        stream=stream,
        statistics=statistics,
        on_cycle=on_cycle or (lambda cycle: None),
        ended=ended or (lambda: None),
        progress=prompt_progress_callback or (lambda fed, total: None),
    ).tokens()


@dataclass(kw_only=True)
class _Run:
    """One generation: what `generate_step` was asked for, and how far it has come."""

    model: Any
    cache: list[Any]
    proposer: Proposer
    prompt: mx.array
    prompt_ids: list[int]
    vocabulary: int
    cached_tokens: tuple[int, ...]
    max_tokens: int
    stop_tokens: frozenset[int]
    sampler: Sampler | None
    processors: tuple[LogitsProcessor, ...]
    randomness: Randomness
    prefill: Callable[..., None]
    quantize: Callable[[], None]
    stream: Any
    statistics: DraftStatistics
    on_cycle: Callable[[Cycle], None]
    ended: Callable[[], None]
    progress: Callable[[int, int], None]

    def __post_init__(self) -> None:
        # Two marks: of the latest pass, and of one that has begun ahead.
        self.checkpoints = Checkpoints(self.cache, keep=2)
        self.begin = 0  # tokens of the prompt in the cache when the first pass begins
        self.yielded = 0
        self.stuck = 0  # tokens that cannot be taken out any more before the next one is yielded
        self.fed: list[int] = []  # tokens of the latest pass
        self.again: list[int] = []  # committed ones that the next pass must feed again
        self.ahead: Callable[[], _Pass] | None = None  # returns the next pass, where it has begun
        # All tokens so far, for the processors: none of them, no copy.
        self.history: mx.array | None = None

    def tokens(self) -> Generator[tuple[int, mx.array, bool], None, None]:
        """Run the cycles; yield what `generate_step` yields."""
        try:
            frontier = self._read_prompt()
            while self.yielded != self.max_tokens:
                with mx.stream(self.stream), self.randomness:
                    cycle, logprobs = self._cycle(frontier)
                self.statistics.record_pass(cycle.source, len(cycle.proposal))
                self.on_cycle(cycle)
                if self.yielded == 0:
                    self.progress(self.prompt.size, self.prompt.size)
                for row, token in enumerate(cycle.committed):
                    self.yielded, self.stuck = self.yielded + 1, 0
                    self.statistics.record_token(cycle.source, row < cycle.accepted)
                    yield token, logprobs[row], row < cycle.accepted
                if cycle.committed[-1] in self.stop_tokens:
                    return
                frontier = cycle.committed[-1]
                self.history = self._followed(mx.array(cycle.committed, dtype=self.prompt.dtype))
                if self.statistics.passes % CLEAR_EVERY == 0:
                    mx.clear_cache()
        finally:
            self.ended()
            windows.use_host_masks(leaves(self.cache))
            missing = self._rewind(self.begin + self.yielded + self.stuck)
            if missing:
                with mx.stream(self.stream):
                    self.prefill(self._array(missing))

    def _read_prompt(self) -> int:
        """Feed the prompt but for its last token, which is returned; give the drafter all of it."""
        total = self.prompt.size
        with mx.stream(self.stream):
            self.progress(0, total)
            self.checkpoints.mark(total - 1, windows_too=True)
            self.prefill(self.prompt[:-1], progress=lambda fed: self.progress(fed, total))
            self.begin = total - 1
            if self.max_tokens != 0:
                self.proposer.start([*self.cached_tokens, *self.prompt_ids])
        windows.use_exact_masks(leaves(self.cache))
        if self.processors:
            self.history = mx.concatenate([self._array(self.cached_tokens), self.prompt])
        return self.prompt_ids[-1]

    def _cycle(self, frontier: int) -> tuple[Cycle, mx.array]:
        """Propose, verify and commit after the committed token ``frontier``.

        Returns:
            What became of it, and the log-probabilities of each committed token [rows, vocabulary].
        """
        proposer = self.proposer
        left = self.max_tokens - self.yielded - 1 if self.max_tokens > 0 else None
        proposal = proposer.propose(left, len(self.again), begun=self.ahead is not None)
        draft = tuple(proposal.tokens)
        if self.ahead is None:
            self.fed = [*self.again, frontier, *draft]
            current = self._choose(self._logits(self._array(self.fed), len(draft) + 1), draft, proposal.distribution)
        else:
            self.fed, current, self.ahead = [frontier], self.ahead(), None
        draft = draft[: current.judged - 1]
        if left != 0 and not proposal.tokens and proposer.drafting_paused():
            self._begin_ahead(current)
        # Log-probabilities that nobody reads are not computed.
        mx.eval(current.tokens, self.randomness.unread())
        target = [token for token in ids(current.tokens) if token >= 0]  # those after a verdict were not drawn
        require_tokens("sampler", target or ids(current.tokens), self.vocabulary)
        target = target[: current.judged]
        accepted = min(accepted_length(draft, target), len(target) - 1)
        committed = _until_stop(target[: accepted + 1], self.stop_tokens)
        begun = self.ahead is not None
        self.again = self._rewind(self.begin + self.yielded + 1 + accepted + begun)
        if not begun:
            self.quantize()
        proposer.commit(committed, begins=begun)
        times = proposer.draft_seconds, proposer.pass_seconds
        return Cycle(draft, proposal.source, min(accepted, len(committed)), committed, *times), current.logprobs

    def _begin_ahead(self, current: _Pass) -> None:
        """Begin the next pass, over the token that ``current`` will choose, before that is read."""
        drawn_from = self.randomness.unread()
        mx.async_eval(current.tokens, drawn_from)  # type: ignore[no-untyped-call]
        self.quantize()
        self.stuck = int(self.checkpoints.one_is_undone_alone())
        logits = self._logits(current.tokens.astype(self.prompt.dtype), 1)
        # Processors may refuse a text: they are asked once the token is read and the text goes on. A seeded generation
        # sets the random state in the next step.
        if self.processors or drawn_from:
            self.ahead = partial(self._choose, logits, (), None)
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
        else:
            chosen = self._choose(logits, (), None)
            self.ahead = lambda: chosen
            mx.async_eval(chosen.tokens)  # type: ignore[no-untyped-call]

    def _logits(self, inputs: mx.array, rows: int) -> mx.array:
        """Run the target over ``inputs``; return the logits of the last positions [rows, vocabulary], lazy."""
        self.checkpoints.mark(inputs.size)
        logits: mx.array = self.model(inputs[None], cache=self.cache)[0, -rows:]
        return logits

    def _choose(self, logits: mx.array, draft: tuple[int, ...], drawn: mx.array | None) -> _Pass:
        """Choose a token after the frontier and after each draft, of these ``logits``; lazy."""
        logits = processed(logits, self.processors, self._followed(self._array(draft)))
        judged = logits.shape[0]
        if judged <= len(draft):
            # No token is chosen after a text that is refused. The draft before it is judged as one that ends there,
            # and the choice after it, of any logits, is dropped.
            draft, drawn = draft[:judged], None if drawn is None else drawn[:judged]
            logits = mx.concatenate([logits, logits[-1:]])
        logprobs = log_probabilities(logits)
        if drawn is None and draft and self.proposer.draw:
            drawn = mx.zeros((0, logits.shape[-1]))  # guesses, verified by the same rule
        return _Pass(choose(logits, logprobs, self.sampler, draft, drawn), logprobs, judged)

    def _rewind(self, length: int) -> list[int]:
        """Take the caches back to ``length`` tokens; return which of the latest pass must be fed again for that."""
        self.checkpoints.rewind(length)
        return list(self.fed[: length - self.checkpoints.length])

    def _followed(self, tokens: mx.array) -> mx.array | None:
        """Return all tokens so far and then ``tokens``; None where no processor reads them."""
        return None if self.history is None else mx.concatenate([self.history, tokens])

    def _array(self, tokens: Sequence[int]) -> mx.array:
        return mx.array(list(tokens), dtype=self.prompt.dtype)


def _until_stop(tokens: Sequence[int], stop_tokens: frozenset[int]) -> tuple[int, ...]:
    """Return ``tokens`` up to and with the first stop token."""
    if stop_tokens.isdisjoint(tokens):
        return tuple(tokens)
    return tuple(tokens[: 1 + next(place for place, token in enumerate(tokens) if token in stop_tokens)])
