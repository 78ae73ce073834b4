"""Drafts from a small model that shares the target's tokenizer.

    fed       tokens in the draft model's cache: committed ones, then `ahead` drafts of the last proposal
    pending   committed tokens that it has not seen; fed together with the next proposal

A proposal of k tokens takes k passes: the pending tokens give d1, d1 gives d2, and dk is not
fed. They are chained on the device and evaluated once.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from spectool import RuntimeUnsupported
from spectool.runtime import caches
from spectool.runtime.drafter import Proposal, accepted_length
from spectool.runtime.prefill import prefill
from spectool.runtime.verification import ids


class ModelDrafter:
    """Greedy drafts of a model with a KV cache of its own.

    The cache outlives a generation: ``start`` feeds only what differs from what was fed before,
    so that the next turn of a conversation costs the new turn only.
    """

    costs_a_pass = True

    def __init__(self, model: Any, *, name: str = "model", p_min: float = 0.0, prefill_step_size: int = 2048) -> None:
        """Draft with ``model``, an mlx-lm model whose token ids are the target's.

        Args:
            model: The draft model.
            name: Name in statistics.
            p_min: Stop before the first draft token less probable than this (0 to 1). Above 0
                each draft token is evaluated by itself, since whether to go on depends on it.
            prefill_step_size: Prompt tokens in one pass.

        Raises:
            RuntimeUnsupported: The model's caches cannot be trimmed.
        """
        self.name = name
        self._model = model
        self._p_min = p_min
        self._step_size = prefill_step_size
        self._cache: list[Any] = make_prompt_cache(model)
        self._origin = caches.offsets(self._cache)
        self._fed: list[int] = []
        self._pending: list[int] = []
        self._ahead = 0
        self._warned = False
        caches.require_trimmable(self._cache, model)
        # Built and never computed: the shape alone tells the vocabulary.
        self._vocabulary = int(model(mx.zeros((1, 1), dtype=mx.int32)).shape[-1])

    def start(self, prompt: Sequence[int]) -> None:
        """Feed ``prompt`` (token ids) but for its last token, as far as the cache does not hold it.

        Raises:
            RuntimeUnsupported: A token is outside the draft model's vocabulary.
        """
        self._check(prompt)
        kept = accepted_length(self._fed, prompt[:-1])
        # Measured by the cache itself: an interrupted proposal may have left more in it than noted.
        if not caches.rewind(self._cache, self._origin, kept):
            self._cache = make_prompt_cache(self._model)
            kept = 0
        self._fed, self._ahead, self._warned = self._fed[:kept], 0, False
        self._pending = list(prompt[kept:])
        self._feed_pending(keep=1)

    def propose(self, limit: int) -> Proposal:
        """Return at most ``limit`` tokens; none when asked twice, none once a windowed cache is full."""
        if limit <= 0 or not self._pending:
            return Proposal((), self.name)
        # What is fed after the pending tokens must be trimmable again.
        limit = min(limit, caches.room(self._cache) - len(self._pending) + 1)
        if limit <= 0:
            self._warn_full()
            return Proposal((), self.name)
        self._feed_pending(keep=self._step_size)
        drafts, passes = self._draft(limit)
        self._fed += self._pending + drafts[: passes - 1]
        self._pending, self._ahead = [], passes - 1
        return Proposal(drafts, self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Follow the target: keep the drafts that came true, trim the others, note the rest as pending.

        Raises:
            RuntimeUnsupported: A token is outside the draft model's vocabulary.
        """
        self._check(tokens)
        right = accepted_length(self._fed[len(self._fed) - self._ahead :], tokens)
        wrong = self._ahead - right
        caches.trim(self._cache, wrong)
        self._fed = self._fed[: len(self._fed) - wrong]
        self._ahead = 0
        self._pending += tokens[right:]

    def _draft(self, limit: int) -> tuple[list[int], int]:
        """Feed the pending tokens and then draft after draft; return the drafts and the passes made."""
        feed = mx.array(self._pending)
        drafts: list[mx.array] = []
        for passes in range(1, limit + 1):
            logits = self._model(feed[None], cache=self._cache)[0, -1:]
            feed = mx.argmax(logits, axis=-1)
            if self._p_min > 0:
                probability = mx.exp(mx.max(logits) - mx.logsumexp(logits))
                if float(probability) < self._p_min:
                    return _ids(drafts), passes
            drafts.append(feed)
        return _ids(drafts), limit

    def _feed_pending(self, keep: int) -> None:
        """Feed all but the last ``keep`` pending tokens."""
        tokens = self._pending[:-keep]
        if tokens:
            prefill(self._model, self._cache, mx.array(tokens), self._step_size)
            self._fed += tokens
            self._pending = self._pending[-keep:]

    def _check(self, tokens: Sequence[int]) -> None:
        """Refuse ids that the draft model has no embedding for."""
        if tokens and max(tokens) >= self._vocabulary:
            raise RuntimeUnsupported(
                f"draft model: expected token ids below {self._vocabulary}, got {max(tokens)}. "
                "Use a draft model with the target's tokenizer."
            )

    def _warn_full(self) -> None:
        """Say once that the window is full."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"drafter {self.name!r} stops: its windowed cache is full and cannot take rejected "
                "drafts back. Decoding goes on without it; the output does not change.",
                RuntimeWarning,
                stacklevel=2,
            )


def require_same_vocabulary(draft: Mapping[str, int], target: Mapping[str, int]) -> None:
    """Check that two tokenizers (``get_vocab()`` of each) give the same id to every token they share.

    Tokens that only one of them has are allowed: models of one family differ in added tokens.

    Raises:
        RuntimeUnsupported: They disagree about a token, or share fewer than half of theirs.
    """
    shared = draft.keys() & target.keys()
    wrong = sorted(token for token in shared if draft[token] != target[token])
    if wrong:
        token = wrong[0]
        raise RuntimeUnsupported(
            f"draft model: expected the target's token ids, got {len(wrong)} different ones "
            f"({token!r} is {draft[token]} in the draft, {target[token]} in the target). "
            "Use a draft model with the target's tokenizer."
        )
    if 2 * len(shared) < max(len(draft), len(target)):
        raise RuntimeUnsupported(
            f"draft model: expected the target's vocabulary ({len(target)} tokens), got one of "
            f"{len(draft)} with {len(shared)} in common. Use a draft model with the target's tokenizer."
        )


def _ids(drafts: Sequence[mx.array]) -> list[int]:
    """Evaluate the chain of drafts, each of shape [1], at once."""
    return ids(mx.concatenate(list(drafts))) if drafts else []
