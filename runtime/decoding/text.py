"""A text while it is written: its cache, its drafters, how its tokens are chosen, where it ends, and what is counted.

Between two passes, a cache holds the text without the last committed token, which the next pass feeds together with
the drafts. Rejected drafts are taken out again. Where that also takes out accepted tokens (`rewinding`), the next pass
feeds those again first.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.own import OwnCache, use_masks
from spectool.runtime.caches.rewinding import trims_freely
from spectool.runtime.decoding.settings import GenerationSettings
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import NOTHING, Cycle, Proposal, accepted_length, members_of
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters
from spectool.runtime.groups.link import processes_of
from spectool.runtime.mlx_lm_compat.pass_size import exact_until
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.randomness import Randomness
from spectool.runtime.sampling.samplers import LogitBias, Sampling, log_probabilities, processed
from spectool.runtime.sampling.token_ids import require_tokens, token_ids, vocabulary_size
from spectool.runtime.sampling.verification import Draw, choose, evaluated
from spectool.runtime.settings import MAX_DRAFT_TOKENS

WIDTH = 2 * MAX_DRAFT_TOKENS + 2  # tokens of a row in one shared pass: drafts, and what is fed again


class Pass(NamedTuple):
    """A pass of the target over one text; lazy."""

    tokens: mx.array  # the target's choice after the last committed token and after each draft [rows]
    logprobs: mx.array  # log-probabilities [rows, vocabulary]
    positions: int  # leading rows that count: all of them, unless the text of a draft is refused


class Text:
    """A text that is written after a prompt."""

    _cycle: Cycle  # the latest
    _logprobs: mx.array  # of each token that it has committed, and perhaps of more [rows, vocabulary]
    _error: Exception | None = None  # that the text ends with

    def __init__(
        self, model: Any, cache: list[Any], prompt: Sequence[int], settings: GenerationSettings, policy: Policy
    ) -> None:
        """Write after ``prompt`` with ``model``, from the end of ``cache`` on, with drafts as ``policy`` chooses.

        Raises:
            TokenOutOfRange: The model does not have a token of the prompt, the cached tokens or a logit bias.
        """
        self.prompt, self.settings, self.policy = prompt, settings, policy
        self._cached = token_ids(settings.cached_tokens)
        self.processors = tuple(settings.logits_processors or ())
        self._vocabulary = vocabulary = vocabulary_size(model)
        require_tokens("prompt", prompt, vocabulary)
        require_tokens("cached_tokens", self._cached, vocabulary)
        for processor in self.processors:
            if isinstance(processor, LogitBias):
                require_tokens("logit_bias", processor.tokens, vocabulary)
        self.constraint = None if settings.grammar is None else settings.grammar.constraint(vocabulary)
        self.randomness = Randomness(settings.seed)  # to be entered whenever something is drawn
        greedy = settings.sampler is None and not self.processors
        self.choosing = nullcontext() if greedy else self.randomness  # to be entered to choose tokens
        # Whether the same seed has to draw the same again: then drafts depend neither on time nor on other texts.
        self.repeatable = settings.seed is not None and settings.sampler is not None
        self.statistics = DraftStatistics() if settings.statistics is None else settings.statistics
        self.statistics.policy = policy if policy.is_automatic else None
        sampler = settings.sampler
        draw = Draw(sampler, self.processors, vocabulary) if isinstance(sampler, Sampling) and sampler.temp else None
        drafts = settings.num_draft_tokens != 0  # 0 also turns forced tokens off
        given = members_of(settings.drafter) if drafts else ()
        if settings.prediction is not None:
            given = (*given, settings.prediction)  # counts what was repeated, also where nothing is drafted
        self.drafters = TextDrafters(
            [DrafterSlot(each, self.statistics.failures, draw, vocabulary, self.randomness) for each in given]
        )
        # Drafts, and tokens fed again, that a pass has at most where it need not have more.
        self._longest_pass = min(MAX_DRAFT_TOKENS, policy.longest) if policy.is_automatic else MAX_DRAFT_TOKENS
        self._forces = self.constraint is not None and drafts
        self._max_tokens = settings.max_tokens if settings.max_tokens >= 0 else sys.maxsize
        self._stops = frozenset(token_ids(settings.stop_tokens))
        # All committed tokens, where processors read them.
        self._history = mx.array([*self._cached, *prompt], dtype=mx.int32) if self.processors else None
        self.own = OwnCache(model, cache, (settings.kv_bits, settings.kv_group_size, settings.quantized_kv_start))
        self.may_run_ahead = processes_of(model) == 1  # others have to be told what they are to compute
        self._exact_until = exact_until(model)
        self.unread = len(prompt) - 1  # tokens of the prompt to be read
        self.prompt_read = False  # whether the cache holds the prompt but for its last token
        self._noted = 0  # tokens of the prompt that stay in the cache if the text is closed before it is read
        self.origin = 0  # tokens in the cache before those of this text
        self.last = prompt[-1]  # committed token, which the next pass feeds
        self.refeed = list[int]()  # committed tokens that the next pass feeds again, before the last one
        self.proposal: Proposal = NOTHING  # drafts for the next pass
        self.inputs = list[int]()  # what the latest pass has fed
        self.gained: Sequence[int] = ()  # what it has committed; nothing once the text has failed or is closed
        self._committed = self.yielded = 0  # tokens so far, and those of them that the caller has got
        self.ended, self.closed = settings.max_tokens == 0, False  # complete or failed; of no further use to the loop
        self.unrewindable_at = -1  # yielded tokens at which the token that was fed ahead cannot be taken out

    @property
    def cache(self) -> list[Any]:
        """The prompt cache, one entry for each layer."""
        return self.own.entries

    @property
    def remaining(self) -> int:
        """Tokens that the next pass may commit in addition to one of the target's own."""
        return self._max_tokens - self._committed - 1

    @property
    def cached_if_closed(self) -> int:
        """Tokens that the cache holds, after those cached before, once the text ends here: all but the last one."""
        return len(self.prompt) - 1 + self.yielded if self.prompt_read else self._noted

    @property
    def cached_after_commit(self) -> int:
        """The same, once all that is committed is yielded."""
        return len(self.prompt) - 1 + self._committed

    def read_piece(self, most: int) -> None:
        """Feed up to ``most`` tokens of the prompt, or up to the next mark; the first pass feeds its last token."""
        whole, settings = len(self.prompt) - 1, self.settings
        if self.unread == whole:
            self.own.checkpoints.mark(whole, windows_too=True)
        fed = whole - self.unread
        ends = [mark for mark in settings.prompt_marks if fed < mark < whole] + [whole]
        end = min(fed + most, ends[0])
        if end > fed:
            self.own.read(self.prompt[fed:end])
        self.unread = whole - end
        trims = trims_freely(self.cache)
        if settings.on_prompt is not None and (trims or end == ends[0]):
            settings.on_prompt(end)
            self._noted = end if trims else 0
        if end == whole:
            use_masks(self.cache, exact=True)
            self.prompt_read = True
            if not self.ended:
                self.drafters.start([*self._cached, *self.prompt], afresh=settings.seed is not None)

    def most_drafts(self) -> int:
        """Maximum number of draft tokens that the next pass can verify."""
        settings, refed, most = self.settings, len(self.refeed), self.remaining
        if refed:  # a pass without drafts takes in all that is fed again, and the next one is short again
            most = min(most, self._longest_pass - refed)
        if self.repeatable:  # as many as in passes that others share
            most = min(most, WIDTH - 1 - refed)
        if self._exact_until is not None:
            most = min(most, self._exact_until - self._held() - refed - 1)
        if settings.kv_bits and (held := self._held()) < settings.quantized_kv_start:
            # Plain decoding quantises the cache at this length: no pass may straddle it, and a pass that reaches it
            # must have nothing to take out again.
            most = min(most, settings.quantized_kv_start - held - refed - 2)
        return max(0, most)

    def feed(self) -> list[int]:
        """What the next pass feeds."""
        self.inputs = [*self.refeed, self.last, *self.proposal.tokens]
        return self.inputs

    def close(self) -> int | None:
        """End the text: leave the cache with all its yielded tokens but one, even after a pass that broke off.

        Returns the number of tokens of the text that the cache holds afterwards, or None if it could not be taken back
        and is of no further use.
        """
        self.closed, self.gained = True, ()
        self.policy.end(self.drafters)
        self.drafters.close()
        length = self.cached_if_closed + (self.yielded == self.unrewindable_at)
        return self.own.close(length, self.inputs)

    def _held(self) -> int:
        return max(lengths(self.cache), default=0)

    def drafting_paused(self) -> bool:
        """Whether the next pass goes without drafts, so that it may begin before its token is known."""
        return not self._forces and (self.policy.paused() or not self.drafters.may_propose())

    def forced(self, limit: int) -> Proposal | None:
        """Tokens that the grammar forces, and what look-ups expect after them; None where the target has a choice."""
        most = min(limit, self._longest_pass)
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
    ) -> None:
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
        committed = tuple(choices[: right + 1])
        for at, token in enumerate(committed[:right]):
            if token in self._stops:
                committed = committed[: at + 1]
                break
        self.last, self._committed = committed[-1], self._committed + len(committed)
        self.ended = self.last in self._stops or self._committed >= self._max_tokens
        if self.constraint is not None:
            self.constraint.commit(committed)
        if self._history is not None:
            self._history = mx.concatenate([self._history, mx.array(committed, dtype=mx.int32)])
        accepted = min(right, len(committed))
        self._cycle = Cycle(draft, proposal.source, accepted, committed, draft_seconds, pass_seconds)
        self._logprobs, self.gained = current.logprobs, committed

    def fail(self, error: Exception) -> None:
        """End the text, which has no part in further passes."""
        self.ended, self.gained, self._error = True, (), error

    def take(self) -> Iterator[tuple[int, mx.array, bool]]:
        """Yield ``(token, log-probabilities, whether it was drafted)`` of the latest commit; count each when taken.

        Raises the error of a text that has failed.
        """
        if self._error is not None:
            raise self._error
        cycle = self._cycle
        self.statistics.record_pass(cycle.source, len(cycle.proposal))
        if self.settings.on_cycle is not None:
            self.settings.on_cycle(cycle)
        for row, token in enumerate(cycle.committed):
            self.yielded += 1
            self.statistics.record_tokens(cycle.source, 1, row < cycle.accepted)
            yield token, self._logprobs[row], row < cycle.accepted
