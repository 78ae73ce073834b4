"""The generation loop, with any drafter or none.

    propose     the drafter guesses d1 .. dk for the positions after the last committed token c
    verify      one target pass over c d1 .. dk gives the target's own choice at each position: t0 t1 .. tk
    commit      the drafts that equal the target's choices, and the first choice that does not (tk when all are right);
                rejected drafts are taken out of the cache

Every committed token is a choice that the target made after the true text, so a drafter changes the speed and nothing
else. With a sampler this is exact-match verification: each position is sampled on its own, and its sample is committed
whether or not the draft had guessed it. Where the sampler states its distribution, drafts that were drawn are verified
by rejection sampling instead, which keeps the distribution and accepts more of them (docs/sampling.md).

When no drafts will follow a pass without drafts, the next pass begins before the token of this one is read, as in
mlx-lm's own loop: the device computes while Python hands the token over. Its input is in the cache one token early,
and is taken out again if the generation ends there.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.quantized import require_quantizable
from spectool.runtime.decoding.guarded_drafter import GuardedDrafter
from spectool.runtime.decoding.pass_size import warn_where_drafts_end
from spectool.runtime.decoding.randomness import Randomness
from spectool.runtime.decoding.sampling import biased_tokens
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.target import TargetRunner
from spectool.runtime.decoding.text_state import GenerationSettings, TextState
from spectool.runtime.decoding.token_ids import as_ids, prompt_ids, require_lengths, require_tokens, vocabulary_size
from spectool.runtime.decoding.verification import draw_for
from spectool.runtime.draft_length.controller_pool import acquire_controller, release_controller
from spectool.runtime.mlx_lm_compat import generation_stream, make_prompt_cache, maybe_quantize_kv_cache

CLEAR_EVERY = 256  # cycles between two mx.clear_cache(), as in mlx-lm


def generate_step(
    prompt: mx.array | Sequence[int],
    model: Any,
    *,
    prompt_progress_callback: Callable[[int, int], None] | None = None,
    stream: Any = generation_stream,
    **settings: Any,
) -> Generator[tuple[int, mx.array, bool], None, None]:
    """Generate tokens after ``prompt``: the same as plain decoding, in fewer target passes.

    Any kind of cache can be drafted on. A drafter that raises is switched off with a warning.

    Mutates ``prompt_cache`` and ``statistics``. However the generator ends, the target's cache holds the prompt and the
    yielded tokens without the last one; after an error in the prompt pass, it holds what it held before (quantised, if
    that happened first). With recurrent layers this can take one more pass, over a few tokens. Where a window has
    wrapped, an interruption between two tokens can leave the last token in as well, which the cache's offset shows.

    Args:
        prompt: Token ids, shape [tokens], at least one. With a ``prompt_cache`` that has content, the tokens after it.
        model: An mlx-lm model.
        prompt_progress_callback: Called with the prompt tokens fed so far and their total, as in mlx-lm; when it
            raises, the generation ends.
        stream: Stream that the models run on.
        **settings: Those of `GenerationSettings`.

    Yields:
        ``(token id, log-probabilities [vocabulary], whether it was drafted)``.

    Raises:
        RuntimeUnsupported: At the call, before any work: the prompt is empty, the model's caches allow no quantisation,
            or (`TokenOutOfRange`) the model does not have a token of the prompt, the cached tokens or a logit bias.
    """
    target, borrowed = open_text(prompt, model, GenerationSettings(**settings))
    text, total = target.text, len(target.text.prompt)
    progress = prompt_progress_callback or (lambda fed, total: None)

    def steps() -> Generator[tuple[int, mx.array, bool], None, None]:
        try:
            with mx.stream(stream):
                progress(0, total)
                for fed in target.read_prompt():
                    progress(fed, total)
                text.start()
            while not text.ended:
                with mx.stream(stream):
                    commit = target.cycle()
                if text.yielded == 0:
                    progress(total, total)
                yield from target.tokens_of(commit)
                if text.statistics.passes % CLEAR_EVERY == 0:
                    mx.clear_cache()
        finally:
            borrowed.close()
            with mx.stream(stream):
                target.close()

    return steps()


def open_text(
    prompt: mx.array | Sequence[int], model: Any, settings: GenerationSettings
) -> tuple[TargetRunner, ExitStack]:
    """The target that writes a text, and what has to be closed once it has ended.

    Arguments and errors are those of `generate_step`; nothing is computed.
    """
    tokens, cached, vocabulary = prompt_ids(prompt), as_ids(settings.cached_tokens), vocabulary_size(model)
    length, drafter, prediction = settings.num_draft_tokens, settings.drafter, settings.prediction
    require_lengths(settings.max_tokens, length)
    if isinstance(drafter, str | Path):
        raise RuntimeUnsupported(f"drafter: expected what load_drafter returns, got {str(drafter)!r}")
    require_tokens("prompt", tokens, vocabulary)
    require_tokens("cached_tokens", cached, vocabulary)
    for processor in settings.logits_processors or ():
        require_tokens("logit_bias", biased_tokens(processor), vocabulary)
    cache = settings.prompt_cache
    if cache is None:
        cache = make_prompt_cache(model, settings.max_kv_size)
    kv_bits, quantized_from = settings.kv_bits, settings.quantized_kv_start
    if kv_bits is not None:
        require_quantizable(cache, model, kv_bits, settings.kv_group_size)
    if drafter is not None and length != 0:
        warn_where_drafts_end(model, max(lengths(cache), default=0) + len(tokens), settings.max_tokens)
    constraint = None if settings.grammar is None else settings.grammar.constraint(vocabulary)
    draw = draw_for(model, settings.verify, settings.sampler, tuple(settings.logits_processors or ()))
    randomness = Randomness(settings.seed)
    # A controller is kept for the model and its drafter; a prediction is new every time.
    kept_by = model if drafter is None and prediction is not None else drafter
    borrowed = ExitStack()
    if length is None and kept_by is not None:
        length = acquire_controller(model, kept_by)
        borrowed.callback(release_controller, model, kept_by, length)
    counts = DraftStatistics() if settings.statistics is None else settings.statistics
    guarded = GuardedDrafter(
        drafter,
        length,
        cache,
        quantized_from if kv_bits else None,
        draw,
        vocabulary=vocabulary,
        statistics=counts,
        prediction=prediction,
        constraint=constraint,
    )
    counts.controller = guarded.controller or guarded.predicting
    text = TextState(
        prompt=tokens,
        cached=cached,
        vocabulary=vocabulary,
        settings=settings,
        constraint=constraint,
        randomness=randomness,
        guarded=guarded,
        statistics=counts,
    )
    quantize = partial(maybe_quantize_kv_cache, cache, quantized_from, settings.kv_group_size, kv_bits)
    target = TargetRunner(model=model, cache=cache, text=text, quantize=quantize, step_size=settings.prefill_step_size)
    return target, borrowed
