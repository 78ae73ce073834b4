"""Texts of several prompts at once, each with its own drafter: mlx-lm's ``batch_generate`` with drafters."""

from collections import deque
from collections.abc import Sequence
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
    if (processes := processes_of(model)) > 1:
        raise RuntimeUnsupported(
            f"batch_generate: the model is spread over {processes} processes. Use `spectool serve`, which batches "
            "there, or generate one text after the other"
        )
    for single in sorted({"seed", "drafter", "prompt_cache"} & kwargs.keys()):
        raise RuntimeUnsupported(f"{single}: expected {single}s, with one for each prompt, got {single}")
    if unknown := kwargs.keys() - (GenerationSettings.__dataclass_fields__.keys() - {"statistics"} | {"stream"}):
        raise TypeError(f"batch_generate() got an unexpected keyword argument {min(unknown)!r}")
    given, shared = _ids_of(prompts, tokenizer, model), drafters if isinstance(drafters, Drafter | DrafterSet) else None
    asked: dict[str, Any] = {
        "drafters": drafters if shared is None else None,
        "max_tokens": [max_tokens] * len(given) if isinstance(max_tokens, int) else max_tokens,
        "seeds": seeds,
        "prompt_caches": prompt_caches,
    }
    each = {name: _for_each(name, values, len(given)) for name, values in asked.items()}
    _require_own("prompt_caches", [cache or () for cache in each["prompt_caches"]], "Copy it with copy.deepcopy")
    members = [[member for one in members_of(drafter) for member in (one, one.cache)] for drafter in each["drafters"]]
    _require_own("drafters", members, "Give one for all prompts, not in a list, which is forked for each")
    if any(most == 0 for most in each["max_tokens"]):
        raise RuntimeUnsupported("max_tokens: expected positive numbers, or -1 for no limit, got 0.")
    stream, ends = kwargs.pop("stream", generation_stream), text_ends(tokenizer, kwargs)
    policy = _policy_of(model, shared, each["drafters"], num_draft_tokens)
    rows = 1 if shared is not None and shared.fork() is None else rows
    loop = Loop(model, rows, policy, kv_bits=kwargs.get("kv_bits"), stream=stream)
    texts = [AnswerText(tokenizer, stop_strings, stop_tokens=ends, max_tokens=most) for most in each["max_tokens"]]
    count = len(given)
    made = BatchResponse([""] * count, [[] for _ in given], [DraftStatistics() for _ in given], [None] * count)
    places: dict[Row, int] = {}
    waiting = deque(range(count))

    def begin(place: int) -> bool:
        """Add a text to the batch if it can be added now."""
        cache = each["prompt_caches"][place]
        cache = make_prompt_cache(model, kwargs.get("max_kv_size")) if cache is None else cache
        if not loop.accepts(cache):
            return False
        settings = GenerationSettings(
            drafter=each["drafters"][place] if shared is None else shared.fork() or shared,
            num_draft_tokens=policy if num_draft_tokens != 0 and each["seeds"][place] is None else num_draft_tokens,
            max_tokens=each["max_tokens"][place],
            stop_tokens=ends,
            seed=each["seeds"][place],
            prompt_cache=cache,
            statistics=made.drafting[place],
            **kwargs,
        )
        try:
            row = open_text(given[place], model, settings)
        except TokenOutOfRange as error:
            raise error.spelled_by(tokenizer) from None
        loop.add(row)
        places[row] = place
        return True

    def take(row: Row, token: int) -> bool:
        """Add a token to its text; return whether the text ends with it."""
        place = places[row]
        made.tokens[place].append(token)
        made.texts[place] += texts[place].add(token)
        return texts[place].end is not None

    try:
        with wired_limit(model, [stream]):
            while waiting or len(loop):
                while waiting and begin(waiting[0]):
                    waiting.popleft()
                for row, gained in loop.step():
                    if isinstance(gained, Exception):
                        raise gained
                    if any(take(row, token) for token, _, _ in row.text.tokens_of(gained)):
                        place, kept = places.pop(row), loop.remove(row)
                        if return_prompt_caches and kept is not None:
                            made.caches[place] = row.cache
    finally:
        for row in places:
            loop.remove(row)
    return made


def _ids_of(prompts: Any, tokenizer: TokenizerWrapper, model: Any) -> list[list[int]]:
    """The token ids of all prompts, which are checked before any of them is worked on."""
    if isinstance(prompts, str) or not hasattr(prompts, "__len__"):
        got = "one text" if isinstance(prompts, str) else type(prompts).__name__
        raise RuntimeUnsupported(f"prompts: expected a list of texts or of token ids, got {got}")
    found = [prompt_ids(encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt) for prompt in prompts]
    for ids in found:
        require_tokens("prompt", ids, vocabulary_size(model), tokenizer)
    return found


def _for_each(name: str, values: Any, count: int) -> Sequence[Any]:
    """One value for each of ``count`` prompts."""
    if values is None:
        return [values] * count
    if not hasattr(values, "__len__") or len(values) != count:
        found = len(values) if hasattr(values, "__len__") else values
        raise RuntimeUnsupported(f"{name}: expected one for each of {count} prompts, got {found!r}")
    return cast("Sequence[Any]", values)


def _require_own(name: str, parts: Sequence[Sequence[Any]], instead: str) -> None:
    held = [id(part) for each in parts for part in each if part is not None]
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
