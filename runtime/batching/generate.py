"""Texts of several prompts at once, each with its own drafter: mlx-lm's ``batch_generate`` with drafters."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.decoding.generation import open_text
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.decoding.row import Row
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.streaming import encode_prompt, require_grammar, text_ends
from spectool.runtime.decoding.text_state import GenerationSettings
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, members_of
from spectool.runtime.groups.link import processes_of
from spectool.runtime.mlx_lm_compat import TokenizerWrapper, generation_stream, wired_limit
from spectool.runtime.policy.costs import new_policy, policy_for
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.token_ids import TokenOutOfRange, require_count


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
    drafters: Drafter | DrafterSet | Sequence[Drafter | DrafterSet | None] | None = None,
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

    Quantised and chunked caches, and drafters that cannot be forked, cannot share passes: then one text is written
    after the other.

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
    if isinstance(prompts, str):
        raise RuntimeUnsupported("prompts: expected a list of texts or of token ids, got one text")
    if (processes := processes_of(model)) > 1:
        raise RuntimeUnsupported(
            f"batch_generate: the model is spread over {processes} processes. Use `spectool serve`, which batches "
            "there, or generate one text after the other"
        )
    count, shared = len(prompts), drafters if isinstance(drafters, Drafter | DrafterSet) else None
    limits = _for_each("max_tokens", [max_tokens] * count if isinstance(max_tokens, int) else max_tokens, count)
    if 0 in limits:
        raise RuntimeUnsupported("max_tokens: expected positive numbers, or -1 for no limit, got 0.")
    own = _for_each("drafters", drafters if shared is None else None, count)
    members = [member for drafter in own for one in members_of(drafter) for member in (one, one.cache)]
    _require_own("drafters", members, "Give one for all prompts, not in a list, which is forked for each")
    caches = _for_each("prompt_caches", prompt_caches, count)
    _require_own("prompt_caches", [entry for cache in caches for entry in cache or ()], "Copy it with copy.deepcopy")
    stream, ends = kwargs.pop("stream", generation_stream), text_ends(tokenizer, kwargs)
    policy = _policy_of(model, shared, own, num_draft_tokens)
    made = BatchResponse([""] * count, [[] for _ in limits], [DraftStatistics() for _ in limits], [None] * count)
    texts = [AnswerText(tokenizer, stop_strings, stop_tokens=ends, max_tokens=most) for most in limits]
    places: dict[Row, int] = {}  # of texts that have not ended
    for place, seed in enumerate(_for_each("seeds", seeds, count)):
        settings = GenerationSettings(
            drafter=own[place] if shared is None else shared.fork() or shared,
            num_draft_tokens=policy if num_draft_tokens != 0 and seed is None else num_draft_tokens,
            max_tokens=limits[place],
            stop_tokens=ends,
            seed=seed,
            prompt_cache=caches[place],
            statistics=made.drafting[place],
            **kwargs,
        )
        prompt = prompts[place]
        try:
            row = open_text(encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt, model, settings)
        except TokenOutOfRange as error:
            raise error.spelled_by(tokenizer) from None
        places[row] = place
    forks = shared is None or shared.fork() is not None
    loop = Loop(model, rows if forks else 1, policy, kv_bits=kwargs.get("kv_bits"), stream=stream)
    waiting = deque(places)
    try:
        with wired_limit(model, [stream]):
            while waiting or len(loop):
                while waiting and loop.accepts(waiting[0].cache):
                    loop.add(waiting.popleft())
                for row, gained in loop.step():
                    if isinstance(gained, Exception):
                        raise gained
                    place = places[row]
                    for token, _, _ in row.text.tokens_of(gained):
                        made.tokens[place].append(token)
                        made.texts[place] += texts[place].add(token)
                        if texts[place].end is not None:
                            break
                    if texts[place].end is not None:
                        kept = loop.remove(row)
                        del places[row]
                        if return_prompt_caches and kept is not None:
                            made.caches[place] = row.cache
    finally:
        for row in places:
            loop.remove(row)
    return made


def _for_each(name: str, values: Any, count: int) -> Sequence[Any]:
    """One value for each of ``count`` prompts."""
    values = [None] * count if values is None else values
    if len(values) != count:
        raise RuntimeUnsupported(f"{name}: expected one for each of {count} prompts, got {len(values)}")
    return cast("Sequence[Any]", values)


def _require_own(name: str, parts: Iterable[Any], instead: str) -> None:
    held = [id(part) for part in parts if part is not None]
    if len(set(held)) < len(held):
        raise RuntimeUnsupported(f"{name}: expected another one for each prompt, got one twice. {instead}")


def _policy_of(
    model: Any, shared: Drafter | DrafterSet | None, drafters: Sequence[Any], num_draft_tokens: int | None
) -> Policy:
    """What chooses the draft length of all texts; it outlives the call where they share a drafter."""
    if num_draft_tokens is not None:
        return Policy(longest=num_draft_tokens)
    if shared is not None:
        return policy_for(model, shared)
    members = [member for drafter in drafters for member in members_of(drafter)]
    return new_policy(model, DrafterSet(members) if members else None)
