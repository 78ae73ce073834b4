"""The generation loop: one for every drafter, and for none.

    propose     drafter guesses d1 .. dk for the positions after the last committed token c
    verify      one target pass over  c d1 .. dk  gives the target's own choice at each position
                                      t0 t1 .. tk
    commit      the draft tokens that equal the target's choices, and the first choice that does not
                (or tk when all k are right); the rejected ones are taken out of the cache, and where
                that takes some accepted ones along, the next pass feeds these again before c

Every committed token is a choice that the target made after the true history, so a drafter
can change the speed and nothing else. With a sampler this is exact-match verification: each
position is sampled on its own, and its sample is the committed token whether or not the
draft had guessed it. Drafts drawn from a known distribution can be verified by rejection
sampling instead, which keeps the distribution too and accepts more of them (verification.py).

Where no drafts will follow a pass without drafts, the next pass begins before the token of this one is read, as in
mlx-lm's own loop: the device computes it while Python hands the token over. Its input is in the cache one
token early, and is taken out again if the generation ends there.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Literal, NamedTuple

import mlx.core as mx
from mlx_lm.generate import DEFAULT_QUANTIZED_KV_START, generation_stream, maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache

from spectool import RuntimeUnsupported
from spectool.runtime.caches import windows
from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.caches.leaves import leaves, require_quantizable
from spectool.runtime.caches.prefill import prefill
from spectool.runtime.decoding.drafter import Cycle, Drafter, accepted_length
from spectool.runtime.decoding.proposer import Proposer
from spectool.runtime.decoding.sampling import Draw, LogitsProcessor, Sampler, Sampling, log_probabilities
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.verification import choose, ids
from spectool.runtime.draft_length.controller import Controller

CLEAR_EVERY = 256  # cycles between two mx.clear_cache(), as in mlx-lm


class _Pass(NamedTuple):
    """A target pass, lazy.

    Attributes:
        tokens: The target's choice at each position from the last committed token on, shape [rows].
        logprobs: Log-probabilities [rows, vocabulary].
        seen: All tokens up to the last one fed, for the processors; None where there are none.
    """

    tokens: mx.array
    logprobs: mx.array
    seen: mx.array | None


def generate_step(
    prompt: mx.array,
    model: Any,
    *,
    drafter: Drafter | None = None,
    num_draft_tokens: int | Controller | None = 8,
    max_tokens: int = 256,
    stop_tokens: Collection[int] = frozenset(),
    sampler: Sampler | None = None,
    logits_processors: Sequence[LogitsProcessor] | None = None,
    verify: Literal["exact", "rejection"] = "exact",
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

    Mutates ``prompt_cache`` and ``statistics``. However the generator ends (exhausted, closed
    early, or by an exception from inside or from its consumer) the target's cache holds the
    prompt and the yielded tokens without the last one; before the first yield, the prompt
    without its last token; after an error in the prompt pass, what it held before (quantised, if
    that was done before the error). With recurrent layers this can take one more pass, over a few
    tokens. An interruption between two tokens, or before the first, can leave the last one in,
    too, where a window has wrapped: its offset tells.

    Any kind of cache can be drafted on. A drafter that raises is switched off with a warning.

    Args:
        prompt: Token ids, shape [tokens], at least one. With a ``prompt_cache`` that has content,
            the tokens that follow it.
        model: An mlx-lm model.
        drafter: Source of draft tokens; None decodes plainly.
        num_draft_tokens: At most so many draft tokens in one cycle; 0 decodes plainly. None: as many as
            pay on this machine with this text, which is learnt from cycle to cycle. A `Controller` does the
            same and goes on with what it has learnt in earlier generations of the same model and drafter.
        max_tokens: Tokens to generate; -1 for no limit.
        stop_tokens: Token ids that end the generation once yielded.
        sampler: Draws a token from log-probabilities [1, vocabulary]; called once for each
            position. None takes the most probable token.
        logits_processors: Change the logits [1, vocabulary] of a position, given all tokens
            before it, shape [tokens]. Must be functions of their arguments, since they are
            also asked about positions that are then rejected.
        verify: ``rejection`` lets draft models that can do so draw their drafts, by the request's own
            settings, and accepts them by rejection sampling; the sampler must then be a `Sampling`.
            All other drafts are verified by exact match, and so is everything without a sampler.
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
        statistics: Added to, cycle by cycle.
        on_cycle: Called for each cycle before its first token is yielded.

    Returns:
        A generator of ``(token id, log-probabilities [vocabulary], whether it was drafted)``.

    Raises:
        RuntimeUnsupported: The prompt is empty, or the model's caches allow no quantisation.
            Raised at the call, before any work.
    """
    if prompt.size == 0:
        raise RuntimeUnsupported("prompt: expected at least one token, got none. Pass a text or a BOS token.")
    cache = make_prompt_cache(model, max_kv_size) if prompt_cache is None else prompt_cache
    processors = tuple(logits_processors or ())
    draw = _draw(model, verify, sampler, processors)
    if kv_bits is not None:
        require_quantizable(cache, model)

    statistics = DraftStatistics() if statistics is None else statistics
    count = Controller() if num_draft_tokens is None else num_draft_tokens
    proposer = Proposer(drafter, count, cache, quantized_kv_start if kv_bits else None, draw)
    statistics.controller = proposer.controller

    def quantize() -> None:
        maybe_quantize_kv_cache(cache, quantized_kv_start, kv_group_size, kv_bits)

    return _generate(
        prompt,
        model,
        cache,
        proposer,
        max_tokens,
        frozenset(stop_tokens),
        sampler,
        processors,
        prefill_step_size,
        quantize,
        stream,
        statistics,
        on_cycle or (lambda cycle: None),
        tuple(cached_tokens),
        prompt_progress_callback or (lambda fed, total: None),
    )


def _generate(
    prompt: mx.array,
    model: Any,
    cache: list[Any],
    proposer: Proposer,
    max_tokens: int,
    stop_tokens: frozenset[int],
    sampler: Sampler | None,
    processors: tuple[LogitsProcessor, ...],
    prefill_step_size: int,
    quantize: Callable[[], None],
    stream: Any,
    statistics: DraftStatistics,
    on_cycle: Callable[[Cycle], None],
    cached_tokens: tuple[int, ...],
    progress: Callable[[int, int], None],
) -> Generator[tuple[int, mx.array, bool], None, None]:
    """Run the cycles; arguments as in ``generate_step``, resolved."""
    # Two marks: of the latest pass, and of one that has begun ahead.
    checkpoints, begin, yielded = Checkpoints(cache, keep=2), 0, 0
    stuck = 0  # tokens that cannot be taken out any more before the next one is yielded
    fed: list[int] = []  # tokens of the latest pass

    def verify(inputs: mx.array, draft: tuple[int, ...], seen: mx.array | None, drawn: mx.array | None) -> _Pass:
        checkpoints.mark(inputs.size)
        logits = model(inputs[None], cache=cache)[0, -len(draft) - 1 :]
        logprobs = log_probabilities(logits, processors, seen)
        return _Pass(choose(logprobs, sampler, draft, drawn), logprobs, seen)

    try:
        with mx.stream(stream):
            progress(0, prompt.size)
            checkpoints.mark(prompt.size - 1, windows_too=True)
            proposer.vocabulary = prefill(
                model, cache, prompt[:-1], prefill_step_size, quantize, lambda fed: progress(fed, prompt.size)
            )
            begin = prompt.size - 1
            if max_tokens != 0:
                proposer.start([*cached_tokens, *ids(prompt)])
        windows.use_exact_masks(leaves(cache))
        frontier, again, ahead = ids(prompt[-1:]), list[int](), None
        # All tokens so far, for the processors: none of them, no copy.
        history = mx.concatenate([mx.array(cached_tokens, dtype=prompt.dtype), prompt]) if processors else None
        while yielded != max_tokens:
            left = max_tokens - yielded - 1 if max_tokens > 0 else None
            with mx.stream(stream):
                proposal = proposer.propose(left, len(again), begun=ahead is not None)
                draft = tuple(proposal.tokens)
                if ahead is None:
                    fed = [*again, *frontier, *draft]
                    seen = None if history is None else mx.concatenate([history, mx.array(draft, dtype=history.dtype)])
                    current = verify(mx.array(fed, dtype=prompt.dtype), draft, seen, proposal.distribution)
                else:
                    fed, current, ahead = frontier, ahead, None
                if left != 0 and not draft and proposer.rests():
                    mx.async_eval(current)  # type: ignore[no-untyped-call]
                    quantize()
                    stuck = int(checkpoints.one_is_undone_alone())
                    unread = current.tokens.astype(prompt.dtype)
                    ahead = verify(unread, (), None if history is None else mx.concatenate([history, unread]), None)
                    mx.async_eval(ahead)  # type: ignore[no-untyped-call]
                mx.eval(current)
                target = ids(current.tokens)
                accepted = accepted_length(draft, target)
                committed = _until_stop(target[: accepted + 1], stop_tokens)
                again = _rewind(checkpoints, begin + yielded + 1 + accepted + (ahead is not None), fed)
                if ahead is None:
                    quantize()
                logprobs = current.logprobs
                proposer.vocabulary = logprobs.shape[-1]
                proposer.commit(committed, begins=ahead is not None)
            accepted = min(accepted, len(committed))
            statistics.record(proposal.source, len(draft), accepted, len(committed))
            times = proposer.draft_seconds, proposer.pass_seconds
            on_cycle(Cycle(draft, proposal.source, accepted, committed, *times))
            if yielded == 0:
                progress(prompt.size, prompt.size)
            for row, token in enumerate(committed):
                yielded, stuck = yielded + 1, 0
                yield token, logprobs[row], row < accepted
            if committed[-1] in stop_tokens:
                return
            frontier = list(committed[-1:])
            if history is not None:
                history = mx.concatenate([history, mx.array(committed, dtype=history.dtype)])
            if statistics.passes % CLEAR_EVERY == 0:
                mx.clear_cache()
    finally:
        windows.use_host_masks(leaves(cache))
        missing = _rewind(checkpoints, begin + yielded + stuck, fed)
        if missing:
            with mx.stream(stream):
                prefill(model, cache, mx.array(missing, dtype=prompt.dtype), prefill_step_size, quantize)


def _rewind(checkpoints: Checkpoints, length: int, fed: Sequence[int]) -> list[int]:
    """Take the caches back to ``length`` tokens; return which of the latest pass's must be fed again for that."""
    checkpoints.rewind(length)
    return list(fed[: length - checkpoints.length])


def _draw(model: Any, verify: str, sampler: Sampler | None, processors: tuple[LogitsProcessor, ...]) -> Draw | None:
    """Return how drafts are drawn for rejection sampling; None where they are not."""
    if verify not in ("exact", "rejection"):
        raise RuntimeUnsupported(f"verify: expected 'exact' or 'rejection', got {verify!r}")
    if verify == "exact" or sampler is None:
        return None
    if not isinstance(sampler, Sampling):
        raise RuntimeUnsupported(
            f"verify='rejection': expected a sampler that tells its distribution, got {sampler!r}. "
            "Pass spectool.runtime.Sampling(temp=…), or verify='exact'."
        )
    # Built and never computed: the shape alone tells the vocabulary.
    return Draw(sampler, processors, int(model(mx.zeros((1, 1), dtype=mx.int32)).shape[-1]))


def _until_stop(tokens: Sequence[int], stop_tokens: frozenset[int]) -> tuple[int, ...]:
    """Return ``tokens`` up to and with the first stop token."""
    if stop_tokens.isdisjoint(tokens):
        return tuple(tokens)
    return tuple(tokens[: 1 + next(place for place, token in enumerate(tokens) if token in stop_tokens)])
