"""One text while it is written: everything that belongs to it alone, except the target's cache.

Its drafters, what a grammar says of their proposals, how its tokens are chosen, where it ends, and what is counted.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import mlx.core as mx

from spectool.runtime.decoding.statistics import DraftStatistics, Failure
from spectool.runtime.drafters.drafter import Cycle, Drafter, DrafterSet, Proposal, accepted_length, members_of
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters, warn_switched_off
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.randomness import Randomness
from spectool.runtime.sampling.samplers import LogitBias, LogitsProcessor, Sampler, log_probabilities, processed
from spectool.runtime.sampling.token_ids import given_ids, require_tokens
from spectool.runtime.sampling.verification import choose, draw_for, evaluated
from spectool.runtime.settings import MAX_DRAFT_TOKENS, QUANTIZED_KV_START

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
            probable token.
        logits_processors: Change the logits [1, vocabulary] of a position, given all tokens before it, shape [tokens].
            They are also asked about positions that are then rejected, so they must be functions of their arguments.
            One that raises there ends the draft; after committed tokens, it ends the generation.
        grammar: What the generated text has to look like. The model chooses among the tokens that are allowed, after
            all processors, and what has no alternative is drafted.
        seed: Draws from a random state of its own, so that the same call gives the same text again, and MLX's shared
            state stays as it is. None draws from the shared state.
        verify: ``rejection`` lets draft models draw their drafts by the request's own settings, and accepts those by
            rejection sampling, for which the sampler must be a `Sampling`. ``exact`` asks for exact match. None
            means rejection sampling with a `Sampling`, and exact match with other samplers and with none.
        max_kv_size: Window of the cache in tokens, for models that do not make their own.
        prompt_cache: Cache to continue, one entry for each layer; None makes a new one.
        cached_tokens: Token ids that ``prompt_cache`` holds, so that drafters and processors see the whole text.
        prefill_step_size: Prompt tokens in one pass.
        kv_bits: Bits of a quantised cache; None leaves it as it is.
        kv_group_size: Group size of the quantised cache.
        quantized_kv_start: The cache is quantised once it holds this many tokens.
        statistics: Passes are added to it cycle by cycle, tokens as they are yielded.
        prompt_marks: Numbers of prompt tokens, in order, after which a pass ends and ``on_prompt`` is called.
        on_prompt: Called with the number of prompt tokens that the cache holds, at last with all but one.
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
    verify: Literal["exact", "rejection"] | None = None
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


class Pass(NamedTuple):
    """A pass of the target over one text; lazy.

    Attributes:
        tokens: The target's choice after the last committed token and after each draft, shape [rows].
        logprobs: Log-probabilities [rows, vocabulary].
        positions: Number of leading rows that count: all of them, unless the text of a draft is refused.
    """

    tokens: mx.array
    logprobs: mx.array
    positions: int


class Commit(NamedTuple):
    """What a pass added to a text."""

    cycle: Cycle
    logprobs: mx.array  # of each committed token, and perhaps of more [rows, vocabulary]


class TextState:
    """A text that is written after a prompt.

    Attributes:
        prompt: Token ids, at least one.
        cached: Token ids that the prompt cache held before it.
        settings: How it is written.
        constraint: Which tokens may follow; None for all.
        randomness: Random state of the text, to be entered whenever something is drawn.
        drafters: Propose draft tokens.
        policy: Chooses among their proposals.
        longest_pass: Draft tokens, and those fed again, that a pass has at most where it need not have more.
        statistics: Passes are added as they are committed, tokens as they are yielded.
        last: The last committed token, which the next pass feeds.
        prompt_read: Whether the cache holds the prompt but for its last token.
        committed: Tokens committed so far.
        yielded: Of these, how many the caller has got.
        processors: Change the logits of a position.
        ended: Whether the text is complete, or has failed.
    """

    def __init__(self, prompt: Sequence[int], vocabulary: int, settings: GenerationSettings, policy: Policy) -> None:
        """Write after ``prompt`` with a model that has ``vocabulary`` token ids, with drafts as ``policy`` chooses.

        Raises:
            RuntimeUnsupported: ``seed`` or ``verify`` is wrong, or (`TokenOutOfRange`) the model does not have a token
                of the prompt, the cached tokens or a logit bias.
        """
        self.prompt, self.settings, self._vocabulary = prompt, settings, vocabulary
        self.cached = given_ids("cached_tokens", settings.cached_tokens)
        self.processors = tuple(settings.logits_processors or ())
        require_tokens("prompt", prompt, vocabulary)
        require_tokens("cached_tokens", self.cached, vocabulary)
        for processor in self.processors:
            if isinstance(processor, LogitBias):
                require_tokens("logit_bias", processor.tokens, vocabulary)
        self.constraint = None if settings.grammar is None else settings.grammar.constraint(vocabulary)
        self.randomness = Randomness(settings.seed)
        self.statistics = DraftStatistics() if settings.statistics is None else settings.statistics
        draw = draw_for(settings.verify, settings.sampler, self.processors, vocabulary)
        drafts = settings.num_draft_tokens != 0  # 0 also turns forced tokens off
        given = members_of(settings.drafter) if drafts else ()
        if settings.prediction is not None:
            given = (*given, settings.prediction)  # counts what was repeated, also where nothing is drafted
        slots = [DrafterSlot(drafter, self._failed, draw, vocabulary, self.randomness) for drafter in given]
        self.drafters, self.policy = TextDrafters(slots), policy
        self.longest_pass = min(MAX_DRAFT_TOKENS, policy.longest) if policy.is_automatic else MAX_DRAFT_TOKENS
        self._forces = self.constraint is not None and drafts
        self.statistics.policy = policy if policy.is_automatic else None
        self.last, self.prompt_read = prompt[-1], False
        self.committed = self.yielded = 0
        self.ended = settings.max_tokens == 0
        self._max_tokens = settings.max_tokens if settings.max_tokens >= 0 else sys.maxsize
        self._stops = frozenset(given_ids("stop_tokens", settings.stop_tokens))
        # All committed tokens, where processors read them.
        self._history = mx.array([*self.cached, *prompt], dtype=mx.int32) if self.processors else None

    @property
    def remaining(self) -> int:
        """Tokens that the next pass may commit in addition to one of the target's own."""
        return self._max_tokens - self.committed - 1

    @property
    def cached_if_closed(self) -> int:
        """Tokens that the cache holds, after those cached before, once the text ends here: all but the last one."""
        return len(self.prompt) - 1 + self.yielded if self.prompt_read else 0

    @property
    def cached_after_commit(self) -> int:
        """The same, once all that is committed is yielded."""
        return len(self.prompt) - 1 + self.committed

    def _failed(self, drafter: Drafter, error: Exception) -> None:
        """Count a drafter that failed, and warn."""
        self.statistics.failures.append(Failure(drafter.name, f"{type(error).__name__}: {error}"))
        warn_switched_off(drafter, error)

    def start(self) -> None:
        """Give the prompt to the drafters, unless no token is wanted."""
        if not self.ended:
            self.drafters.start([*self.cached, *self.prompt])

    def close(self) -> None:
        """Let the policy know how long the text was, and the drafters that it has ended."""
        self.policy.end(self.drafters)
        self.drafters.close()

    def drafting_paused(self) -> bool:
        """Whether the next pass goes without drafts, so that it may begin before its token is known."""
        return not self._forces and (self.policy.paused() or not self.drafters.may_propose())

    def forced(self, limit: int) -> Proposal | None:
        """Tokens that the grammar forces, and what look-ups expect after them; None where the target has a choice."""
        most = min(limit, self.longest_pass)
        forced = self.constraint.forced(most) if self.constraint is not None and self._forces else []
        if not forced:
            return None
        following = 0 if self.policy.paused() else min(self.policy.longest, most - len(forced))
        longest = Proposal(forced, "grammar")
        for drafter in self.drafters.look_ups if following > 0 else ():
            more = drafter.extend(forced, following)
            longer = self.allowed(Proposal([*forced, *more.tokens], f"grammar+{more.source}"))
            longest = max(longest, longer, key=lambda proposal: len(proposal.tokens))
        return longest

    def allowed(self, proposal: Proposal) -> Proposal:
        """A proposal as far as the grammar allows it."""
        if self.constraint is None or not self._forces:
            return proposal
        count = self.constraint.allowed(proposal.tokens)
        # A drawn token that is cut leaves its row: it was drawn, and cannot be right.
        return proposal.cut(count)._replace(distribution=proposal.distribution)

    def choose(self, logits: mx.array, proposal: Proposal) -> Pass:
        """The choices after the last committed token and after each draft, from the logits of these rows; lazy."""
        draft, distribution = proposal.tokens, proposal.distribution
        history = self._history
        if history is not None and draft:
            history = mx.concatenate([history, mx.array(list(draft), dtype=mx.int32)])
        logits = processed(logits, self.processors, history)
        if self.constraint is not None:
            mx.async_eval(logits)  # type: ignore[no-untyped-call]  # computed while the grammar is
            masks = self.constraint.masks(draft[: logits.shape[0] - 1])
            logits = mx.where(masks, logits[: masks.shape[0]], -mx.inf)
        positions = logits.shape[0]
        if positions <= len(draft):
            # A processor or the grammar refuses the text after this many drafts, so no token is chosen there. The last
            # draft that counts is judged like one at the end of a draft, and the choice after it, from any logits, is
            # dropped.
            draft, distribution = draft[:positions], None if distribution is None else distribution[:positions]
            logits = mx.concatenate([logits, logits[-1:]])
        logprobs = log_probabilities(logits)
        return Pass(choose(logits, logprobs, self.settings.sampler, draft, distribution), logprobs, positions)

    def commit_pass(
        self, current: Pass | Exception | None, proposal: Proposal, draft_seconds: float, pass_seconds: float
    ) -> Commit:
        """Commit the choices of a pass, up to the first draft that is wrong.

        Raises:
            Exception: ``current`` is one, because nothing could be chosen.
            TokenOutOfRange: The sampler chose a token that the model does not have.
        """
        if not isinstance(current, Pass):
            raise current or RuntimeError("no pass")
        tokens = evaluated(current.tokens)
        chosen = [token for token in tokens if token >= 0]  # -1 where rejection sampling drew nothing
        require_tokens("sampler", chosen or tokens, self._vocabulary)
        choices = chosen[: current.positions]
        draft = tuple(proposal.tokens[: current.positions - 1])
        right = min(accepted_length(draft, choices), len(choices) - 1)
        end = next((at for at, token in enumerate(choices[:right]) if token in self._stops), right)
        committed = tuple(choices[: end + 1])
        self.last, self.committed = committed[-1], self.committed + len(committed)
        self.ended = self.last in self._stops or self.committed == self._max_tokens
        if self.constraint is not None:
            self.constraint.commit(committed)
        if self._history is not None:
            self._history = mx.concatenate([self._history, mx.array(committed, dtype=mx.int32)])
        cycle = Cycle(draft, proposal.source, min(right, len(committed)), committed, draft_seconds, pass_seconds)
        return Commit(cycle, current.logprobs)

    def tokens_of(self, commit: Commit) -> Iterator[tuple[int, mx.array, bool]]:
        """Yield ``(token, log-probabilities, whether it was drafted)`` of what was committed; count each when taken."""
        cycle = commit.cycle
        self.statistics.record_pass(cycle.source, len(cycle.proposal))
        if self.settings.on_cycle is not None:
            self.settings.on_cycle(cycle)
        for row, token in enumerate(cycle.committed):
            self.yielded += 1
            self.statistics.record_tokens(cycle.source, 1, row < cycle.accepted)
            yield token, commit.logprobs[row], row < cycle.accepted
