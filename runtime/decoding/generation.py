"""One text after a prompt: the loop with a single text."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import lengths, require_cache_of, require_quantizable
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.runtime.decoding.text import Text
from spectool.runtime.groups.rank_0 import make_prompt_cache
from spectool.runtime.mlx_lm_compat import generation_stream
from spectool.runtime.mlx_lm_compat.pass_size import warn_where_drafts_end
from spectool.runtime.policy.costs import policy_for
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.token_ids import token_ids


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
        RuntimeUnsupported: At the call, before any work: the prompt is empty, ``prompt_cache`` is another model's, the
            model's caches allow no quantisation, or (`TokenOutOfRange`) the model does not have a token of the prompt,
            the cached tokens or a logit bias.
    """
    text = open_text(prompt, model, GenerationSettings(**settings))
    total, loop = len(text.prompt), Loop(model, 1, text.policy, stream=stream)
    progress = prompt_progress_callback or (lambda fed, total: None)

    def steps() -> Generator[tuple[int, mx.array, bool], None, None]:
        try:
            yield 0, mx.array(0), False  # taken below, so that closing it ends the text from here on
            loop.add(text)
            with mx.stream(stream):
                progress(0, total)
            while not text.ended or not text.prompt_read:
                unread, read = text.unread, text.prompt_read
                for _ in loop.step():
                    if text.gained and text.yielded == 0:
                        progress(total, total)
                    yield from text.take()
                if not read and text.unread < unread:
                    progress(total - 1 - text.unread, total)
        finally:
            loop.remove(text)
            if (given := settings.get("prompt_cache")) is not None:
                given[:] = text.cache  # entries may have been quantised

    begun = steps()
    next(begun)
    return begun


def open_text(prompt: mx.array | Sequence[int], model: Any, settings: GenerationSettings) -> Text:
    """A text to be written in a `Loop`.

    Arguments and errors are those of `generate_step`; nothing is computed.
    """
    tokens = token_ids(prompt)
    length, drafter = settings.num_draft_tokens, settings.drafter
    if not tokens:
        raise RuntimeUnsupported("prompt: expected at least one token, got none. Pass a text or a BOS token.")
    cache = settings.prompt_cache
    if cache is None:
        cache = make_prompt_cache(model, settings.max_kv_size)
    else:
        require_cache_of(model, cache)
    if settings.kv_bits is not None:
        require_quantizable(cache, model, settings.kv_bits, settings.kv_group_size)
    if drafter is not None and length != 0:
        warn_where_drafts_end(model, max(lengths(cache), default=0) + len(tokens), settings.max_tokens)
    drafts = drafter is not None or settings.prediction is not None or settings.grammar is not None
    policy = length if isinstance(length, Policy) else Policy(longest=int(length or 0))
    if length is None and drafts:
        policy = policy_for(model, drafter, fresh=settings.seed is not None)
    return Text(model, cache, tokens, settings, policy)
