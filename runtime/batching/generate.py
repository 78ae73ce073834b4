"""Texts of several prompts at once, each with its own drafter: mlx-lm's ``batch_generate`` with drafters."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spectool import RuntimeUnsupported
from spectool.runtime.batching.batch import Batch
from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.decoding.generation import open_target
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.streaming import encode_prompt, require_grammar, text_ends
from spectool.runtime.decoding.target import TargetRunner
from spectool.runtime.decoding.text_state import GenerationSettings
from spectool.runtime.drafters.drafter import Drafter, Drafters, members_of
from spectool.runtime.mlx_lm_compat import TokenizerWrapper, generation_stream, make_prompt_cache, wired_limit
from spectool.runtime.policy.costs import new_policy, policy_for
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.token_ids import (
    TokenOutOfRange,
    prompt_ids,
    require_count,
    require_tokens,
    vocabulary_size,
)


@dataclass
class BatchResponse:
    """The texts of several prompts.

    Attributes:
        texts: One for each prompt, in their order.
        tokens: Their token ids, with the one that ended the text.
        drafting: The statistics of each.
        caches: The prompt cache of each, which holds its prompt and all its tokens but the last one; None where it was
            not asked for, or cannot be used further.
    """

    texts: list[str]
    tokens: list[list[int]]
    drafting: list[DraftStatistics]
    caches: list[list[Any] | None]


def batch_generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str | Sequence[int]],
    *,
    drafters: Drafter | Drafters | Sequence[Drafter | Drafters | None] | None = None,
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

    Quantised and chunked caches, and drafters that follow one text only such as draft models, cannot share passes:
    then one text is written after the other.

    Examples:
        >>> from mlx_lm import load
        >>> from spectool.runtime import batch_generate, load_drafter
        >>> from spectool.runtime.demo_models import demo_path
        >>> model, tokenizer = load(str(demo_path("target")))
        >>> prompts = ["Most w Jaworowcu", "Wczoraj wieczorem"]
        >>> batch_generate(model, tokenizer, prompts, drafters=load_drafter(tokenizer), max_tokens=8).texts[0]
        ' zamknięty do końca'

    Args:
        model: An mlx-lm model.
        tokenizer: mlx-lm's ``TokenizerWrapper``, or a transformers tokenizer.
        prompts: Texts, or token ids.
        drafters: One that is forked for each text, or one for each prompt; None decodes plainly.
        max_tokens: Tokens to generate for each prompt.
        rows: Texts that are written at the same time, at most.
        seeds: One for each prompt, as in `generate_step`.
        stop_strings: Texts that end a generation; the text ends before them.
        prompt_caches: One for each prompt, to continue.
        return_prompt_caches: Return the prompt caches.
        num_draft_tokens: As in `generate_step`, for every text; None chooses one number for all texts of a pass.
        **kwargs: Further options of `generate_step`, for every text, such as ``sampler`` and ``logits_processors``.

    Raises:
        RuntimeUnsupported: A number of drafters, lengths, seeds or caches is not that of the prompts, or
            `generate_step` would raise it.
    """
    if not isinstance(tokenizer, TokenizerWrapper):
        tokenizer = TokenizerWrapper(tokenizer)
    require_grammar(kwargs.get("grammar"), tokenizer)
    require_count("rows", rows)
    if isinstance(prompts, str) or not hasattr(prompts, "__len__"):
        got = "one text" if isinstance(prompts, str) else type(prompts).__name__
        raise RuntimeUnsupported(f"prompts: expected a list of texts or of token ids, got {got}")
    for single, several in (("seed", "seeds"), ("drafter", "drafters"), ("prompt_cache", "prompt_caches")):
        if single in kwargs:
            raise RuntimeUnsupported(f"{single}: expected {several}, with one for each prompt, got {single}")
    shared = drafters if isinstance(drafters, Drafter | Drafters) else None
    each: dict[str, Sequence[Any]] = {
        "drafters": [None] * len(prompts) if drafters is None or shared else drafters,  # type: ignore[dict-item]
        "max_tokens": [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens,
        "seeds": [None] * len(prompts) if seeds is None else seeds,
        "prompt_caches": [None] * len(prompts) if prompt_caches is None else prompt_caches,
    }
    for name, values in each.items():
        if not hasattr(values, "__len__") or len(values) != len(prompts):
            found = len(values) if hasattr(values, "__len__") else values
            raise RuntimeUnsupported(f"{name}: expected one for each of {len(prompts)} prompts, got {found!r}")
    held = [id(entry) for cache in each["prompt_caches"] for entry in cache or ()]
    if len(set(held)) < len(held):
        raise RuntimeUnsupported(
            "prompt_caches: expected a cache of its own for each prompt, got one twice. Copy it with copy.deepcopy"
        )
    given = [prompt_ids(encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt) for prompt in prompts]
    for ids in given:  # before any of them is worked on
        require_tokens("prompt", ids, vocabulary_size(model), tokenizer)
    if 0 in each["max_tokens"]:
        raise RuntimeUnsupported("max_tokens: expected positive numbers, or -1 for no limit, got 0.")
    stream, ends = kwargs.pop("stream", generation_stream), text_ends(tokenizer, kwargs)
    if num_draft_tokens is None:
        members = [member for drafter in each["drafters"] for member in members_of(drafter)]
        policy = policy_for(model, shared) if shared else new_policy(model, Drafters(members) if members else None)
    else:
        policy = Policy(longest=num_draft_tokens)
    batch = Batch(model, rows, policy, drafter=shared, kv_bits=kwargs.get("kv_bits"), stream=stream)
    texts = [AnswerText(tokenizer, stop_strings, stop_tokens=ends, max_tokens=most) for most in each["max_tokens"]]
    count, counts = len(prompts), [DraftStatistics() for _ in prompts]
    made = BatchResponse([""] * count, [[] for _ in prompts], counts, [None] * count)
    places: dict[TargetRunner, int] = {}
    waiting = deque(range(len(prompts)))

    def begin(place: int) -> bool:
        """Add a text to the batch if it can be added now."""
        cache = each["prompt_caches"][place]
        cache = make_prompt_cache(model, kwargs.get("max_kv_size")) if cache is None else cache
        if not batch.accepts(cache):
            return False
        drafter = each["drafters"][place] if shared is None else shared.fork() or shared
        try:
            target = open_target(
                given[place],
                model,
                GenerationSettings(
                    drafter=drafter,
                    num_draft_tokens=policy if num_draft_tokens is None else num_draft_tokens,
                    max_tokens=each["max_tokens"][place],
                    stop_tokens=ends,
                    seed=each["seeds"][place],
                    prompt_cache=cache,
                    statistics=made.drafting[place],
                    **kwargs,
                ),
            )
        except TokenOutOfRange as error:
            raise error.spelled_by(tokenizer) from None
        batch.add(target)
        places[target] = place
        return True

    def take(target: TargetRunner, token: int) -> bool:
        """Add a token to its text; return whether the text ends with it."""
        place = places[target]
        made.tokens[place].append(token)
        made.texts[place] += texts[place].add(token)
        return texts[place].end is not None

    try:
        with wired_limit(model, [stream]):
            while waiting or len(batch):
                while waiting and begin(waiting[0]):
                    waiting.popleft()
                for target, gained in batch.step():
                    if isinstance(gained, Exception):
                        raise gained
                    if any(take(target, token) for token, _, _ in target.text.tokens_of(gained)):
                        place, kept = places.pop(target), batch.remove(target)
                        if return_prompt_caches and kept is not None:
                            made.caches[place] = target.cache
    finally:
        for target in places:
            batch.remove(target)
    return made
