"""The target model in one generation: its passes, its choices, and its cache.

Between cycles, the cache holds the text without the last committed token, which the next pass feeds together with the
drafts. Rejected drafts are taken out again. Where that also takes out accepted tokens (`checkpoints`), the next pass
feeds those again first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx

from spectool.runtime.caches import windows
from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.caches.leaves import flatten
from spectool.runtime.decoding.randomness import Randomness
from spectool.runtime.decoding.sampling import LogitsProcessor, Sampler, log_probabilities, processed
from spectool.runtime.decoding.token_ids import require_tokens
from spectool.runtime.decoding.verification import choose, ids

if TYPE_CHECKING:
    from spectool.runtime.grammar import GrammarConstraint


class Pass(NamedTuple):
    """A pass of the target; lazy.

    Attributes:
        tokens: The target's choice after the last committed token and after each draft, shape [rows].
        logprobs: Log-probabilities [rows, vocabulary].
        positions: Number of leading rows that count: all of them, unless the text of a draft is refused.
    """

    tokens: mx.array
    logprobs: mx.array
    positions: int


@dataclass(kw_only=True, eq=False)
class TargetRunner:
    """A target model with its cache.

    Attributes:
        vocabulary: Number of the model's token ids.
        rejection: Whether drafts without a distribution are also verified by rejection sampling.
        randomness: Random state of the generation, to be entered for every cycle.
        quantize: Called after each pass.
        prefill: Feeds tokens [tokens] without computing logits.
        constraint: Which tokens may follow; None for all.
        refeed: Committed tokens that the next pass feeds again, before the last committed one.
        next_pass: Returns the pass of the next cycle where it has begun already; None otherwise.
        unrewindable: Tokens fed ahead that cannot be taken out until another token is yielded: 1 or 0.
    """

    model: Any
    cache: list[Any]
    vocabulary: int
    sampler: Sampler | None
    processors: Sequence[LogitsProcessor]
    rejection: bool
    randomness: Randomness
    quantize: Callable[[], None]
    prefill: Callable[..., None]
    constraint: "GrammarConstraint | None" = None
    refeed: list[int] = field(default_factory=list)
    next_pass: Callable[[], Pass] | None = None
    unrewindable: int = 0

    def __post_init__(self) -> None:
        self._checkpoints = Checkpoints(self.cache, keep=2)  # marks before the latest pass and before one begun ahead
        self._inputs: list[int] = []  # of the latest pass
        self._history: mx.array | None = None  # all committed tokens; only kept where processors read them

    def read_prompt(
        self, prompt: Sequence[int], cached_tokens: Sequence[int], progress: Callable[[int, int], None]
    ) -> None:
        """Feed the prompt without its last token, which the first cycle feeds."""
        total = len(prompt)
        progress(0, total)
        self._checkpoints.mark(total - 1, windows_too=True)
        self.prefill(_array(prompt[:-1]), progress=lambda fed: progress(fed, total))
        windows.use_exact_masks(flatten(self.cache))
        if self.processors:
            self._history = _array([*cached_tokens, *prompt])

    def verify(self, last: int, draft: Sequence[int], distribution: mx.array | None) -> Pass:
        """A pass over the last committed token and ``draft``, or the one that has begun ahead without drafts; lazy.

        ``distribution`` is what the leading drafts were drawn from [drawn, vocabulary]; None if they were not.
        """
        if self.next_pass is not None:
            self._inputs, next_pass, self.next_pass = [last], self.next_pass, None
            return next_pass()
        self._inputs = [*self.refeed, last, *draft]
        return self._choose(self._logits(_array(self._inputs), rows=len(draft) + 1), draft, distribution)

    def begin_next_pass(self, current: Pass) -> None:
        """Begin a plain pass over the token that ``current`` will choose, before anyone reads that token."""
        random_state = self.randomness.unread()
        mx.async_eval(current.tokens, random_state)  # type: ignore[no-untyped-call]
        self.quantize()
        self.unrewindable = int(self._checkpoints.one_is_undone_alone())
        logits = self._logits(current.tokens.astype(mx.int32), rows=1)
        # The choice has to wait where processors may refuse the text, which can end with this token, and where a seeded
        # generation sets its random state when the next cycle begins. A constraint has to know the token.
        if self.processors or self.constraint is not None or random_state:
            self.next_pass = partial(self._choose, logits, (), None)
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
        else:
            chosen = self._choose(logits, (), None)
            self.next_pass = lambda: chosen
            mx.async_eval(chosen.tokens)  # type: ignore[no-untyped-call]

    def read(self, current: Pass) -> list[int]:
        """Compute a pass and return its choices, up to the first draft that was rejected by sampling.

        Raises:
            TokenOutOfRange: The sampler chose a token that the model does not have.
        """
        mx.eval(current.tokens, self.randomness.unread())  # log-probabilities are only computed if someone reads them
        tokens = ids(current.tokens)
        chosen = [token for token in tokens if token >= 0]  # -1 where rejection sampling drew nothing
        require_tokens("sampler", chosen or tokens, self.vocabulary)
        return chosen[: current.positions]

    def commit(self, tokens: Sequence[int], length: int) -> None:
        """Add committed ``tokens`` to the history, and cut the cache down to its first ``length`` tokens.

        The token of a pass that has begun ahead is not counted in ``length``, and stays.
        """
        if self._history is not None:
            self._history = mx.concatenate([self._history, _array(tokens)])
        if self.constraint is not None:
            self.constraint.commit(tokens)
        begun = self.next_pass is not None
        self.refeed = self._rewind(length + begun)
        if not begun:
            self.quantize()

    def close(self, length: int) -> None:
        """End the generation: leave the cache with its first ``length`` tokens, even after a pass that broke off."""
        windows.use_mlx_lm_masks(flatten(self.cache))
        if missing := self._rewind(length + self.unrewindable):
            self.prefill(_array(missing))

    def _logits(self, inputs: mx.array, rows: int) -> mx.array:
        """Logits of the last ``rows`` positions [rows, vocabulary] of a pass over ``inputs``; lazy."""
        self._checkpoints.mark(inputs.size)
        logits: mx.array = self.model(inputs[None], cache=self.cache)[0, -rows:]
        return logits

    def _choose(self, logits: mx.array, draft: Sequence[int], distribution: mx.array | None) -> Pass:
        """The choices after the last committed token and after each draft, from the logits of these rows; lazy."""
        history = self._history
        if history is not None and draft:
            history = mx.concatenate([history, _array(draft)])
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
        if distribution is None and draft and self.rejection:
            distribution = mx.zeros((0, logits.shape[-1]))  # guesses, verified by the same rule
        return Pass(choose(logits, logprobs, self.sampler, draft, distribution), logprobs, positions)

    def _rewind(self, length: int) -> list[int]:
        """Take the cache back to ``length`` tokens; return those of the latest pass that are missing then."""
        self._checkpoints.rewind(length)
        return self._inputs[: length - self._checkpoints.length]


def _array(tokens: Sequence[int]) -> mx.array:
    return mx.array(list(tokens), dtype=mx.int32)
