"""Texts of several prompts at once, each with its own drafter: mlx-lm's ``batch_generate`` with drafters."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.decoding.generation import open_text
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.streaming import encode_prompt, text_ends
from spectool.runtime.decoding.text import Text
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.mlx_lm_compat import TokenizerWrapper, generation_stream, wired_limit
from spectool.runtime.policy.costs import policy_for
from spectool.runtime.policy.policy import Policy


@dataclass
class BatchResponse:
    """The texts of several prompts, in their order.

    The prompt cache of each holds its prompt and all its tokens but the last one; it is None where it was not asked
    for, or cannot be used further.
    """

    texts: list[str]
    tokens: list[list[int]]  # with the one that ended the text
    drafting: list[DraftStatistics]
    caches: list[list[Any] | None]


def batch_generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str | Sequence[int]],
    *,
    drafter: Drafter | DrafterSet | None = None,
    max_tokens: int | Sequence[int] = 128,
    rows: int = 8,
    seeds: Sequence[int] | None = None,
    stop_strings: Sequence[str] = (),
    prompt_caches: Sequence[list[Any]] | None = None,
    return_prompt_caches: bool = False,
    num_draft_tokens: int | None = None,
    **kwargs: Any,
) -> BatchResponse:
    """The texts after several prompts, each the one that `generate` would give, in passes that they share.

    Quantised and chunked caches cannot share passes: then one text is written after the other.

    Examples:
        >>> from mlx_lm import load
        >>> from spectool.runtime import batch_generate, load_drafter
        >>> from spectool.runtime.demo_models import demo_path
        >>> model, tokenizer = load(str(demo_path("target")))
        >>> prompts = ["Most w Jaworowcu", "Wczoraj wieczorem"]
        >>> batch_generate(model, tokenizer, prompts, drafter=load_drafter(tokenizer), max_tokens=8).texts[0]
        ' zamknięty do końca'

    Args:
        model: An mlx-lm model.
        tokenizer: mlx-lm's ``TokenizerWrapper``, or a transformers tokenizer.
        prompts: Texts, or token ids.
        drafter: Forked for each text; None decodes plainly.
        max_tokens: Tokens to generate for each prompt.
        rows: Texts that are written at the same time, at most.
        seeds: One for each prompt, as in `generate_step`.
        stop_strings: Texts that end a generation; the text ends before them.
        prompt_caches: One for each prompt, to continue.
        return_prompt_caches: Return the prompt caches.
        num_draft_tokens: As in `generate_step`, for every text; None chooses one number for all texts of a pass.
        **kwargs: Further options of `generate_step`, for every text, such as ``sampler`` and ``logits_processors``.

    Raises:
        RuntimeUnsupported: As in `generate_step`, or two texts have the same prompt cache.
    """
    if not isinstance(tokenizer, TokenizerWrapper):
        tokenizer = TokenizerWrapper(tokenizer)
    if (grammar := kwargs.get("grammar")) is not None:
        grammar.require(tokenizer)
    count = len(prompts)
    limits = [max_tokens] * count if isinstance(max_tokens, int) else max_tokens
    entries = [id(entry) for cache in prompt_caches or () for entry in cache]
    if 0 in limits or len(set(entries)) < len(entries):
        raise RuntimeUnsupported("expected max_tokens above 0, or -1, and another prompt cache for each prompt")
    stream, ends = kwargs.pop("stream", generation_stream), text_ends(tokenizer, kwargs)
    policy = policy_for(model, drafter) if num_draft_tokens is None else Policy(longest=num_draft_tokens)
    made = BatchResponse([""] * count, [[] for _ in limits], [DraftStatistics() for _ in limits], [None] * count)
    texts = [AnswerText(tokenizer, stop_strings, stop_tokens=ends, max_tokens=most) for most in limits]
    own = limits, [None] * count if seeds is None else seeds, [None] * count if prompt_caches is None else prompt_caches
    places: dict[Text, int] = {}  # of texts that have not ended
    for place, (prompt, limit, seed, cache) in enumerate(zip(prompts, *own, strict=True)):
        settings = GenerationSettings(
            drafter=None if drafter is None else drafter.fork(),
            num_draft_tokens=policy if num_draft_tokens != 0 and seed is None else num_draft_tokens,
            max_tokens=limit,
            stop_tokens=ends,
            seed=seed,
            prompt_cache=cache,
            statistics=made.drafting[place],
            **kwargs,
        )
        tokens = encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt
        places[open_text(tokens, model, settings)] = place
    loop = Loop(model, rows, policy, stream=stream)
    waiting = deque(places)
    try:
        with wired_limit(model, [stream]):
            while waiting or len(loop):
                while waiting and loop.accepts(waiting[0].cache):
                    loop.add(waiting.popleft())
                for text in loop.step():
                    place = places[text]
                    for token, _, _ in text.take():
                        made.tokens[place].append(token)
                        made.texts[place] += texts[place].add(token)
                        if texts[place].end is not None:
                            kept = loop.remove(text)
                            del places[text]  # with what its draft model has read
                            if return_prompt_caches and kept is not None:
                                made.caches[place] = text.cache
                            break
    finally:
        for text in places:
            loop.remove(text)
    return made
