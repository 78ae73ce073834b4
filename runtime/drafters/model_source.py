"""Drafts of any mlx-lm model over draft ids, its cache following a context that may change anywhere.

    cache     holds BOS if any, the last context, and the drafts that were fed
    text      BOS if any, and the present context; the cache is taken back to what both begin with

The healing comparison costs no pass of its own. The first pass of a cycle feeds at least the last two tokens of the
text, which gives p(. | all but the last) and p(. | all). A healed token then takes the last context token's place in
the cache. k draft tokens take k passes, and a long new context some of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.sampling.samplers import confidence
from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size
from spectool.runtime.sampling.verification import evaluated
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource, Scorer, allow_any
from spectool.tokenization.incremental.common_prefix import common_prefix

SCORED = 1024  # most probable draft tokens whose scores a `ModelScorer` reads at each place
_BLOCK = 8  # neighbouring ids that are sifted together
_Ids = NDArray[np.int32]
_Floats = NDArray[np.float64]
MOST_ASKED = 16  # plain and healed candidates, each, that ``constraint.allows`` may be asked about
WORST = math.log(0.02)  # log-probability of a first token that may take a refused one's place, less that of the latter
_AT_ONCE = 32  # new context tokens whose logits are computed with the last one's rather than fed before


class _Candidates(NamedTuple):
    """Candidates for the first token, lazy."""

    healed: bool  # whether they replace the last context token
    tokens: mx.array | None  # their ids, int32 [candidates]; None where candidate i is id i
    scores: mx.array  # log-probabilities up to a constant, -inf for what is not allowed. float32 [candidates].


class ModelSource(DraftSource):
    """Drafts of a model, the most probable tokens or drawn ones, with a cache of its own, of any kind.

    The cache outlives a text: the next one is fed from where it differs.

    Attributes:
        size: Number of ids that may be drafted.
        agreed: Leading tokens of the cache that the previous context had, too.
    """

    costs_a_pass = True
    cache: TextCache

    def __init__(
        self, model: Any, *, bos: int | None = None, size: int | None = None, min_probability: float = 0.0
    ) -> None:
        """Draft with ``model``, an mlx-lm model.

        Args:
            model: The draft model.
            bos: Fed before a context that does not begin with it.
            size: Number of its tokenizer's ids; further rows of the model are never drafted. None for all rows.
            min_probability: Make no further pass for drafts that are all right with less than this, 0..1. Above 0 each
                draft token is evaluated by itself. Where drafts are drawn, that of the most probable ones counts.
        """
        self.agreed = 0
        self.cache = TextCache(model)
        self._bos = bos
        self._least = math.log(min_probability) if min_probability > 0 else -math.inf
        self._rows = vocabulary_size(model)
        self.min_probability = min_probability
        self.size = self._rows if size is None else min(size, self._rows)
        # For `more`: tokens of the last draft that are not fed, and the log-probability that all of it is right.
        self._unfed: list[int] = []
        self._likely = mx.zeros(())

    def start(self) -> None:
        """Begin a text."""
        self.agreed = 0

    def scorer(self) -> Scorer:
        """What says how likely draft ids are."""
        return ModelScorer(self)

    def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
        """As `DraftSource.draft`; empty for an empty context without BOS. A lone or unknown token is not healed."""
        text = self.compare(context)
        if limit <= 0 or not text:
            return [], False
        logits = self.feed_text(text, constraint.extensions.size > 0)
        if len(logits) == 1 and constraint.first is None and constraint.allows is allow_any:
            return self._chain(*self._best(logits), limit), False
        candidates = self._candidates(logits, constraint, text[-1])
        found = next((best for best in self._best_first(candidates) if constraint.allows(*best[:2])), None)
        if found is None:
            return [], False
        first, healed, score = found
        likely = score - mx.logsumexp(mx.concatenate([part.scores for part in candidates]))
        # A recurrent state goes back further than by the replaced token: what was before it is fed again.
        refeed = text[self.rewind(len(text) - 1) : -1] if healed else []
        return self._chain(mx.array([first]), likely, limit, refeed), healed

    def compare(self, context: DraftContext) -> list[int]:
        """The text of a context; also notes how much of it was fed."""
        begun = self._bos is None or (len(context.ids) > 0 and context.ids[0] == self._bos)
        text = list(context.ids) if begun else [self._bos or 0, *context.ids]
        same = min(self.agreed, context.kept + len(text) - len(context.ids))
        self.agreed = same + common_prefix(self.cache.tokens[same:], text[same:])
        return text

    def rewind(self, kept: int) -> int:
        """Take the cache back to the first ``kept`` tokens, or to fewer where it cannot; return how many it has."""
        self.cache.rewind(kept)
        kept = len(self.cache.tokens)
        self.agreed = min(self.agreed, kept)
        return kept

    def feed_text(self, text: list[int], healing: bool) -> mx.array:
        """Feed what of ``text`` (at least one token, just compared) is not fed, and its last token in any case.

        Returns:
            Logits after it, float32 [1, size]. With ``healing`` [2, size], after all but the last token and after all,
            if there is something before that token and it is one of the tokenizer's.

        Raises:
            TokenOutOfRange: The model does not have a token.
        """
        last = 2 if healing and len(text) > 1 and text[-1] < self.size else 1
        new = text[self.rewind(min(self.agreed, len(text) - last)) :]
        require_tokens("draft model", new, self._rows)
        if len(new) > _AT_ONCE:
            early, new = new[:-last], new[-last:]
            self.cache.prefill(early)
        logits = self.run(mx.array(new))[-last:]
        self.cache.tokens += new
        self.agreed = len(text)
        return logits

    def run(self, tokens: mx.array) -> mx.array:
        """Feed tokens, int32 [tokens]; return all their logits, float32 [tokens, size], lazy."""
        return self.cache.feed(tokens)[:, : self.size].astype(mx.float32)

    def _candidates(self, logits: mx.array, constraint: Constraint, last: int) -> list[_Candidates]:
        """The plain and the healed candidates that the constraint's ids leave.

        ``logits`` are what `feed_text` returns for a text that ends with the token ``last``.
        """
        if len(logits) == 1:
            plain = logits[0]
        else:  # only plain and healed candidates together need a common scale
            before, after = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            plain = after + before[last]
        if constraint.first is None:
            found = [_Candidates(False, None, plain)]
        else:
            tokens = self._known(constraint.first)
            found = [_Candidates(False, tokens, plain[tokens])]
        if len(logits) == 2:
            tokens = self._known(constraint.extensions)
            found.append(_Candidates(True, tokens, before[tokens]))
        return [part for part in found if part.scores.size]

    def _best_first(self, candidates: list[_Candidates]) -> Iterator[tuple[int, bool, float]]:
        """Yield tokens, whether they are healed, and scores: the best one, and others only when that is refused.

        These are nearly as probable, because those far below the refused one are never right.
        """
        refused, best = None, -math.inf
        for count in (1, MOST_ASKED):
            tops = []
            for part in candidates:
                if count == 1:
                    places = mx.argmax(part.scores, keepdims=True)
                else:
                    number = min(count, part.scores.size)
                    places = mx.argpartition(-part.scores, kth=number - 1)[:number]
                tops.append((places if part.tokens is None else part.tokens[places], part.scores[places]))
            mx.eval(tops)
            ranked = sorted(
                (-score, part.healed, token)
                for part, (tokens, scores) in zip(candidates, tops, strict=True)
                for token, score in zip(evaluated(tokens), np.array(scores).tolist(), strict=True)
                if score > -np.inf
            )
            for score, healed, token in ranked[:1] if count == 1 else ranked:
                if (token, healed) != refused and -score >= best + WORST:
                    yield token, healed, -score
                refused, best = refused or (token, healed), max(best, -score)

    def _chain(self, first: mx.array, likely: mx.array, limit: int, refeed: Sequence[int] = ()) -> list[int]:
        """Feed ``refeed`` and ``first`` [1], of log-probability ``likely``; return it and what follows.

        All of it is chained on the device and evaluated once, unless its probability decides where it ends.
        """
        drafts = [first]
        feed = mx.concatenate([mx.array(list(refeed), dtype=first.dtype), first]) if refeed else first
        while len(drafts) < limit and (self._least == -math.inf or float(likely) >= self._least):
            feed, added = self._best(self.run(feed))
            drafts.append(feed)
            likely = likely + added
        chained = mx.concatenate(drafts)
        mx.eval(chained, likely)
        tokens = evaluated(chained)
        if len(drafts) > 1:
            self.cache.tokens += [*refeed, *tokens[:-1]]
        self._unfed = [tokens[-1]] if len(drafts) > 1 else [*refeed, *tokens]
        self._likely = likely
        return tokens

    @property
    def likelihood(self) -> float:
        """As `DraftSource.likelihood`."""
        return math.exp(float(self._likely))

    def more(self) -> list[int]:
        """As `DraftSource.more`; empty where the draft is right with less than ``min_probability``."""
        if self._least > -math.inf and float(self._likely) < self._least:
            return []
        token, added = self._best(self.run(mx.array(self._unfed)))
        found = evaluated(token)
        self.cache.tokens += self._unfed
        self._unfed, self._likely = found, self._likely + added
        return found

    def _best(self, logits: mx.array) -> tuple[mx.array, mx.array]:
        """The most probable token [1] after the last of ``logits`` [tokens, size], and log p [] of it; lazy."""
        return mx.argmax(logits[-1], keepdims=True), confidence(logits[-1])

    def _known(self, tokens: _Ids) -> mx.array:
        """Those of ``tokens`` that the model has."""
        return mx.array(tokens[tokens < self.size])


class ModelScorer:
    """A `ModelSource` as a `Scorer`: its cache follows the paths."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._root: list[int] = []
        self._known: dict[tuple[int, ...], mx.array] = {}  # logits [size] after paths of this proposal

    def begin(self, ids: Sequence[int], kept: int, healing: bool) -> tuple[int, ...] | None:
        """Feed the context; one pass gives what follows it and what follows all but its last id."""
        source = self._source
        text = source.compare(DraftContext(ids, kept))
        if not text:
            return None
        logits = source.feed_text(text, healing)
        self._root = text[:-1] if len(logits) == 2 else text
        path = tuple(text[len(self._root) :])
        self._known = {(): logits[0], path: logits[-1]}
        return path

    def best(self, path: tuple[int, ...], among: _Ids | None = None) -> tuple[_Ids, _Floats]:
        """The best ids after ``path`` and their scores; a new path takes a pass over what of it is not in the cache."""
        scores = self._known.get(path)
        if scores is None:
            source, text = self._source, [*self._root, *path]
            sure = len(self._root)
            source.rewind(min(sure + common_prefix(source.cache.tokens[sure:], path), len(text) - 1))
            new = text[len(source.cache.tokens) :]
            scores = self._known[path] = source.run(mx.array(new))[-1]
            source.cache.tokens += new
        if among is None:
            ids, scores = _most_probable(scores)
        else:
            allowed = mx.array(among[among < self._source.size])
            places, scores = _most_probable(scores[allowed])
            ids = allowed[places]
        mx.eval(ids, scores)
        return np.array(ids, np.int32), np.array(scores, np.float64)

    def score(self, path: tuple[int, ...], token: int) -> float:
        """The logit of ``token`` after a path that is known."""
        return float(self._known[path][token])


def _most_probable(scores: mx.array) -> tuple[mx.array, mx.array]:
    """The places of the `SCORED` best scores, in any order, and these scores; lazy.

    They are looked for in the blocks of neighbours whose best scores are highest, which is much less work than sorting
    all.
    """
    size = scores.shape[-1]
    if size <= SCORED:
        return mx.arange(size), scores
    blocks = size // _BLOCK
    if blocks <= SCORED:
        places = mx.argpartition(-scores, kth=SCORED - 1)[:SCORED]
        return places, scores[places]
    heads = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK)
    chosen = mx.argpartition(-mx.max(heads, axis=1), kth=SCORED - 1)[:SCORED]
    near = (chosen[:, None] * _BLOCK + mx.arange(_BLOCK)).reshape(-1)
    near = mx.concatenate([near, mx.arange(blocks * _BLOCK, size)])
    places = near[mx.argpartition(-scores[near], kth=SCORED - 1)[:SCORED]]
    return places, scores[places]
