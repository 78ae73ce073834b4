"""The target model in one generation: its passes, its choices, and its cache.

Between cycles, the cache holds the text without the last committed token, which the next pass feeds together with the
drafts. Rejected drafts are taken out again. Where that also takes out accepted tokens (`rewinding`), the next pass
feeds those again first.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from spectool.runtime.caches import windows
from spectool.runtime.caches.leaves import flatten, lengths
from spectool.runtime.caches.prefill import prefill_steps
from spectool.runtime.caches.rewinding import Checkpoints
from spectool.runtime.decoding.pass_size import exact_until
from spectool.runtime.decoding.text_state import Commit, Pass, TextState
from spectool.runtime.drafters.drafter import NOTHING, Proposal
from spectool.runtime.groups.link import processes_of
from spectool.runtime.groups.mirrored import mirrored
from spectool.runtime.groups.rank_0 import forward, tell
from spectool.runtime.mlx_lm_compat import maybe_quantize_kv_cache


class TargetRunner:
    """A target model with its cache, for one text.

    Attributes:
        text: The text that is written.
        refeed: Committed tokens that the next pass feeds again, before the last committed one.
        next_pass: Returns the pass of the next cycle where it has begun already; None otherwise.
    """

    def __init__(self, model: Any, cache: list[Any], text: TextState) -> None:
        """Write ``text`` with ``model``, from the end of ``cache`` on."""
        self.model, self.cache, self.text = model, cache, text
        self.refeed: list[int] = []
        self.next_pass: Callable[[], Pass] | None = None
        self._unrewindable_at = -1  # yielded tokens at which the token fed ahead cannot be taken out
        self._exact_until = exact_until(model)
        self._may_run_ahead = processes_of(model) == 1  # others have to be told what they are to compute
        self.resume(0)

    def resume(self, length: int, inputs: Sequence[int] = ()) -> None:
        """Follow the cache from here on; its last ``length`` tokens are of this text, and ``inputs`` come next."""
        # Marks before the latest pass and before one begun ahead.
        self._checkpoints = Checkpoints(self.cache, length, keep=2)
        self._inputs = list(inputs)  # of the latest pass
        if self.text.prompt_read:
            _use_masks(self.cache, True)

    def read_prompt(self, size: Callable[[], int] | None = None) -> Iterator[int]:
        """Feed the prompt without its last token, which the first cycle feeds; yield the tokens fed after each pass.

        Each pass takes ``size()`` of them; by default, as many as the settings say.
        """
        prompt, settings, fed = self.text.prompt, self.text.settings, 0
        self._checkpoints.mark(len(prompt) - 1, windows_too=True)
        for end in [*(mark for mark in settings.prompt_marks if 0 < mark < len(prompt) - 1), len(prompt) - 1]:
            piece = _array(prompt[fed:end])
            for more in prefill_steps(
                self.model, self.cache, piece, size or settings.prefill_step_size, self._quantize
            ):
                yield fed + more
            fed = end
            if settings.on_prompt is not None:
                settings.on_prompt(fed)
        _use_masks(self.cache, True)
        self.text.prompt_read = True

    def cycle(self, *, ahead: bool = True) -> Commit:
        """Propose, verify and commit, and begin the next pass where no drafts will follow, unless not to be ``ahead``.

        Raises:
            TokenOutOfRange: The sampler chose a token that the model does not have.
        """
        text = self.text
        with text.randomness:
            proposal = text.proposer.propose(self._most_drafts(), len(self.refeed))
            current = self._verify(proposal)
            if (
                ahead
                and self._may_run_ahead
                and text.remaining != 0
                and not proposal.tokens
                and text.proposer.drafting_paused()
            ):
                self._begin_next_pass(current)  # no drafts now or next
            fed = text.cached_after_commit
            # Log-probabilities are only computed if someone reads them.
            mx.eval(current.tokens, text.randomness.unread())
            commit = text.commit_pass(current, proposal)
            tell(self.cache, commit.cycle.committed, commit.cycle.accepted, len(proposal.tokens) + 1)
            begun = self.next_pass is not None
            length = fed + 1 + commit.right + begun
            self._checkpoints.rewind(length)
            self.refeed = self._inputs[: length - self._checkpoints.length]
            if not begun:
                self._quantize()
            text.proposer.commit(commit.cycle.committed, begins=begun)
        return commit

    def close(self) -> int | None:
        """End the text: leave the cache with all its yielded tokens but one, even after a pass that broke off.

        Returns the number of tokens of the text that the cache holds afterwards, or None if it could not be taken back
        and is of no further use.
        """
        _use_masks(self.cache, False)
        length = self.text.cached_if_closed + (self.text.yielded == self._unrewindable_at)
        reached = self._checkpoints.rewind(length)
        if reached is None:
            return None
        if missing := self._inputs[: length - reached]:
            step_size = self.text.settings.prefill_step_size
            deque(prefill_steps(self.model, self.cache, _array(missing), step_size, self._quantize), 0)
        return length

    def _most_drafts(self) -> int:
        """Maximum number of draft tokens that the next pass can verify."""
        settings, most, until = self.text.settings, self.text.remaining, self._exact_until
        if until is None and not settings.kv_bits:
            return most
        held = max(lengths(self.cache), default=0)
        if until is not None:
            most = min(most, until - held - len(self.refeed) - 1)
        if settings.kv_bits and held < settings.quantized_kv_start:
            # Plain decoding quantises the cache at this length: no pass may straddle it, and a pass that reaches it
            # must have nothing to take out again.
            most = min(most, settings.quantized_kv_start - held - len(self.refeed) - 2)
        return most

    def _quantize(self) -> None:
        settings = self.text.settings
        if settings.kv_bits is not None:
            _quantize(self.cache, settings.quantized_kv_start, settings.kv_group_size, settings.kv_bits)

    def _verify(self, proposal: Proposal) -> Pass:
        """A pass over the last committed token and the drafts, or the one that has begun ahead without drafts; lazy."""
        if self.next_pass is not None:
            self._inputs, next_pass, self.next_pass = [self.text.last], self.next_pass, None
            return next_pass()
        self._inputs = [*self.refeed, self.text.last, *proposal.tokens]
        return self.text.choose(self._logits(_array(self._inputs), rows=len(proposal.tokens) + 1), proposal)

    def _begin_next_pass(self, current: Pass) -> None:
        """Begin a plain pass over the token that ``current`` will choose, before anyone reads that token."""
        random_state = self.text.randomness.unread()
        mx.async_eval(current.tokens, random_state)  # type: ignore[no-untyped-call]
        self._quantize()
        if self._checkpoints.rewinds_one_token_only():
            self._unrewindable_at = self.text.yielded
        logits = self._logits(current.tokens.astype(mx.int32), rows=1)
        # The choice has to wait where processors may refuse the text, which can end with this token, and where a seeded
        # generation sets its random state when the next cycle begins. A grammar has to know the token.
        if self.text.processors or self.text.constraint is not None or random_state:
            self.next_pass = partial(self.text.choose, logits, NOTHING)
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
        else:
            chosen = self.text.choose(logits, NOTHING)
            self.next_pass = lambda: chosen
            mx.async_eval(chosen.tokens)  # type: ignore[no-untyped-call]

    def _logits(self, inputs: mx.array, rows: int) -> mx.array:
        """Logits of the last ``rows`` positions [rows, vocabulary] of a pass over ``inputs``; lazy."""
        self._checkpoints.mark(inputs.size)
        return forward(self.model, inputs[None], self.cache)[0, -rows:]


@mirrored
def _use_masks(cache: Sequence[Any], exact: bool) -> None:
    """Let tokens that are fed at once see what they would see one by one (``exact``), or what mlx-lm lets them see."""
    (windows.use_exact_masks if exact else windows.use_mlx_lm_masks)(flatten(cache))


@mirrored
def _quantize(cache: list[Any], start: int, group_size: int, bits: int) -> None:
    maybe_quantize_kv_cache(cache, start, group_size, bits)


def _array(tokens: Sequence[int]) -> mx.array:
    return mx.array(list(tokens), dtype=mx.int32)
