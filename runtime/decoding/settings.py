"""How one text is written."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle, Drafter, DrafterSet
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.samplers import LogitsProcessor, Sampler
from spectool.runtime.settings import QUANTIZED_KV_START

if TYPE_CHECKING:
    from spectool.runtime.drafters.prediction import PredictionDrafter
    from spectool.runtime.grammar import Grammar


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """How one text is written.

    Attributes:
        drafter: Source of draft tokens, or several; None decodes plainly.
        prediction: Follows a text that the answer is expected to repeat, as one more drafter.
        num_draft_tokens: Maximum number of draft tokens per cycle; 0 decodes plainly. None chooses the number that is
            fastest on this machine with this text, by what passes cost (measured when the model is first used) and by
            how often drafts were right, in this generation and in earlier ones with the same model and drafter. With a
            ``seed``, only this generation counts. A `Policy` chooses by what it knows.
        max_tokens: Tokens to generate; -1 for no limit.
        stop_tokens: Token ids that end the generation once yielded.
        sampler: Draws a token from log-probabilities [1, vocabulary], once for each position. None takes the most
            probable token. With a `Sampling`, draft models draw their drafts by the request's own settings, and these
            are verified by rejection sampling; with any other sampler, drafts are verified by exact match.
        logits_processors: Change the logits [1, vocabulary] of a position, given all tokens before it, shape [tokens].
            They are also asked about positions that are then rejected, so they must be functions of their arguments.
            One that raises there ends the draft; after committed tokens, it ends the generation.
        grammar: What the generated text has to look like. The model chooses among the tokens that are allowed, after
            all processors, and what has no alternative is drafted.
        seed: Draws from a random state of its own, so that the same call gives the same text again, and MLX's shared
            state stays as it is. None draws from the shared state.
        max_kv_size: Window of the cache in tokens, for models that do not make their own.
        prompt_cache: Cache to continue, one entry for each layer; None makes a new one.
        cached_tokens: Token ids that ``prompt_cache`` holds, so that drafters and processors see the whole text.
        prefill_step_size: Prompt tokens in one pass.
        kv_bits: Bits of a quantised cache; None leaves it as it is.
        kv_group_size: Group size of the quantised cache.
        quantized_kv_start: The cache is quantised once it holds this many tokens.
        statistics: Passes are added to it cycle by cycle, tokens as they are yielded.
        prompt_marks: Numbers of prompt tokens, in order, after which a pass ends and ``on_prompt`` is called.
        on_prompt: Called with the number of prompt tokens that the cache holds, at last with all but one, and after
            every pass where any number can be taken out again. Then they stay there if the text is closed.
        on_cycle: Called for each cycle before its first token is yielded.
    """

    drafter: Drafter | DrafterSet | None = None
    prediction: "PredictionDrafter | None" = None
    num_draft_tokens: int | Policy | None = None
    max_tokens: int = 256
    stop_tokens: Collection[int] = frozenset()
    sampler: Sampler | None = None
    logits_processors: Sequence[LogitsProcessor] | None = None
    grammar: "Grammar | None" = None
    seed: int | None = None
    max_kv_size: int | None = None
    prompt_cache: list[Any] | None = None
    cached_tokens: Sequence[int] = ()
    prefill_step_size: int = 2048
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = QUANTIZED_KV_START
    statistics: DraftStatistics | None = None
    prompt_marks: Sequence[int] = ()
    on_prompt: Callable[[int], None] | None = None
    on_cycle: Callable[[Cycle], None] | None = None
