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
from spectool.runtime.groups.rank_0 import let_others_sleep
from spectool.runtime.mlx_lm_compat import TokenizerWrapper, generation_stream, wired_limit
from spectool.runtime.policy.costs import policy_for
from spectool.runtime.policy.policy import Policy


@dataclass
class BatchResponse:
    """The texts of several prompts, in their order."""

    texts: list[str]
    tokens: list[list[int]]  # with the one that ended the text
    drafting: list[DraftStatistics]


def batch_generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str | Sequence[int]],
    *,
    drafter: Drafter | DrafterSet | None = None,
    max_tokens: int | Sequence[int] = 128,
    rows: int = 8,
    stop_strings: Sequence[str] = (),
    num_draft_tokens: int | None = None,
    **kwargs: Any,
) -> BatchResponse:
    """The texts after several prompts, each the one that `generate` would give, in passes that they share.

    Quantised and chunked caches, and a drafter that cannot be forked, cannot share passes: then one text is written
    after the other.

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
        max_tokens: Tokens to generate for each prompt, one number for all or one for each; -1 for no limit.
        rows: Texts that are written at the same time, at most.
        stop_strings: Texts that end a generation; the text ends before them.
        num_draft_tokens: As in `generate_step`, for every text; None chooses one number for all texts of a pass.
        **kwargs: Further options of `generate_step`, for every text, such as ``sampler`` and ``logits_processors``.

    Raises:
        RuntimeUnsupported: As in `generate_step`, or the number of lengths is not that of the prompts.
    """
    if not isinstance(tokenizer, TokenizerWrapper):
        tokenizer = TokenizerWrapper(tokenizer)
    if (grammar := kwargs.get("grammar")) is not None:
        grammar.require(tokenizer)
    limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
    if len(limits) != len(prompts) or 0 in limits:
        expected = f"one for each of {len(prompts)} prompts, above 0, or -1"
        raise RuntimeUnsupported(f"max_tokens: expected {expected}, got {len(limits)}: {limits!r:.100}")
    stream, ends = kwargs.pop("stream", generation_stream), text_ends(tokenizer, kwargs)
    policy = policy_for(model, drafter) if num_draft_tokens is None else Policy(longest=num_draft_tokens)
    made = BatchResponse(["" for _ in limits], [[] for _ in limits], [DraftStatistics() for _ in limits])
    places: dict[Text, tuple[int, AnswerText]] = {}  # of texts that have not ended
    for place, prompt in enumerate(prompts):
        fork = None if drafter is None else drafter.fork()
        if fork is None and drafter is not None:
            rows = 1  # they use the drafter in turns
        settings = GenerationSettings(
            drafter=fork or drafter,
            num_draft_tokens=policy if num_draft_tokens != 0 and kwargs.get("seed") is None else num_draft_tokens,
            max_tokens=limits[place],
            stop_tokens=ends,
            prompt_cache=None,  # nor can ``kwargs`` name one, which all texts would write into
            statistics=made.drafting[place],
            **kwargs,
        )
        tokens = encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt
        answer = AnswerText(tokenizer, stop_strings, stop_tokens=ends, max_tokens=limits[place])
        places[open_text(tokens, model, settings)] = place, answer
    loop = Loop(model, rows, policy, stream=stream)
    waiting = deque(places)
    try:
        with wired_limit(model, [stream]):
            while waiting or len(loop):
                while waiting and loop.accepts(waiting[0].cache):
                    loop.add(waiting.popleft())
                for text, gained in loop.step():
                    if isinstance(gained, Exception):
                        raise gained
                    place, answer = places[text]
                    for token, _, _ in text.tokens_of(gained):
                        made.tokens[place].append(token)
                        made.texts[place] += answer.add(token)
                        if answer.end is not None:
                            loop.remove(text)
                            del places[text]
                            break
    finally:
        for text in places:
            loop.remove(text)
        let_others_sleep(model)
    return made
