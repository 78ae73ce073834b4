"""The loop in which texts are written: one text, or several in passes that they share, with any drafters or none.

    propose     each text gets draft tokens d1 .. dk for the positions after its last committed token c
    launch      a pass of the target over c d1 .. dk of all texts begins
    read        gives the target's own choice at each position: t0 t1 .. tk
    commit      each text gets the drafts that equal these choices, and the first choice that does not (tk when all are
                right); what was rejected is taken out of the caches, and policy and drafters learn

Every committed token is a choice that the target made after the true text, so a drafter changes the speed and nothing
else. With a sampler this is exact-match verification: each position is sampled on its own, and its sample is committed
whether or not the draft had guessed it. Where the sampler states its distribution, drafts that were drawn are verified
by rejection sampling instead, which keeps the distribution and accepts more of them (docs/sampling.md).

While one pass runs, the host works on what the one before it gave:

    one text        launch n (with drafts), read n, hand out n, launch n+1, ...
                    where no drafts follow: launch n, launch n+1 (before the token is known), read n, hand out n, ...
    several texts   read n, launch n+1, hand out n, ...

Texts come and go between two steps. A text that is alone is written in a cache of its own, and so is one whose cache
cannot share passes, after all others have ended.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding.
"""

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.shared import BatchCache, kind_of
from spectool.runtime.decoding.proposing import Decision, plain, propose
from spectool.runtime.decoding.row import Row
from spectool.runtime.decoding.text_state import Commit, Pass
from spectool.runtime.drafters.drafter import NOTHING, Proposal
from spectool.runtime.drafters.together import DraftPasses
from spectool.runtime.groups.rank_0 import forward, tell_committed
from spectool.runtime.mlx_lm_compat import generation_stream
from spectool.runtime.policy.costs import known_costs
from spectool.runtime.policy.policy import Policy
from spectool.runtime.settings import MAX_DRAFT_TOKENS

CLEAR_EVERY = 256  # passes between two mx.clear_cache(), as in mlx-lm
_WIDTH = 2 * MAX_DRAFT_TOKENS + 2  # tokens of a row in one shared pass: drafts, and what is fed again
_SMALLEST_PIECE = 16  # tokens of a prompt, however long they take: fewer take hardly less time


class Step(NamedTuple):
    """What a text gained in a step: tokens, or the error that it ends with."""

    row: Row
    gained: Commit | Exception


class _Launched:
    """A text in a pass that is under way, which gives its logits [drafts + 1, vocabulary]."""

    __slots__ = ("chosen", "logits", "proposal", "row")

    def __init__(self, row: Row, proposal: Proposal, logits: mx.array) -> None:
        self.row, self.proposal, self.logits = row, proposal, logits
        self.chosen: Pass | Exception | None = None  # or why nothing is chosen

    def choose(self) -> None:
        """Choose tokens, unless they are chosen; lazy."""
        if self.chosen is None:
            try:
                with self.row.text.randomness:
                    self.chosen = self.row.text.choose(self.logits, self.proposal)
            except Exception as error:  # a processor refuses the text
                self.chosen = error

    def arrays(self) -> list[mx.array]:
        """What is to be evaluated with the pass."""
        return [self.chosen.tokens, *self.row.text.randomness.unread()] if isinstance(self.chosen, Pass) else []


class _Flight(NamedTuple):
    """A pass that is under way."""

    texts: Sequence[_Launched]
    decisions: Sequence[Decision]
    width: int  # tokens of a text; 0 for a pass that begins before the token of the one before it is known
    began: float  # seconds
    draft_seconds: float = 0.0
    shared: bool = False


class Loop:
    """Texts of one model that are written together.

    Attributes:
        rows: Texts that may be written at the same time.
        policy: Chooses the drafts where texts share a pass.
    """

    def __init__(
        self,
        model: Any,
        rows: int,
        policy: Policy,
        *,
        kv_bits: int | None = None,
        stream: Any = None,
        reading_passes: float | None = None,
    ) -> None:
        """Write up to ``rows`` texts at a time on ``stream``, with drafts as ``policy`` chooses.

        Texts whose settings have another policy, such as one with a fixed draft length, follow that. Texts cannot share
        passes if their caches will be quantised, or if the bits are to stay those of passes over single tokens. Then
        one is written after the other.

        Prompts are read in pieces of the texts' ``prefill_step_size``. With ``reading_passes``, a piece is smaller
        while other texts are written, so that it takes no longer than that many of their passes.
        """
        costs = known_costs(model) if rows > 1 else None
        self.rows, self.policy = 1 if kv_bits is not None or (costs is not None and costs.exact) else rows, policy
        self._model = model
        self._stream = generation_stream if stream is None else stream
        self._reading: list[Row] = []
        self._own: list[Row] = []  # their prompts are read, and their caches are their own
        self._shared: list[Row] = []  # in the order of the rows of the shared caches
        self._flights = deque[_Flight]()  # the oldest first
        self._caches: BatchCache | None = None
        self._kind: tuple[Any, ...] | None = None
        self._drafts = DraftPasses()
        self._read_at = 0.0  # when the latest pass was read
        self._reading_passes, self._token_seconds = reading_passes, 0.0  # of a prompt's token, in the latest piece
        self._pass_seconds = 0.0  # of the latest pass
        self._passes = 0

    def __len__(self) -> int:
        """Number of texts that are written or read."""
        return len(self._reading) + len(self._own) + len(self._shared)

    def accepts(self, cache: list[Any]) -> bool:
        """Whether a text with this cache can be added now."""
        if not len(self):
            return True
        return len(self) < self.rows and self._kind is not None and kind_of(self._model, cache) == self._kind

    def add(self, row: Row) -> None:
        """Add a text that `accepts` has let through."""
        self._kind = kind_of(self._model, row.cache) if self.rows > 1 else None
        self._reading.append(row)

    def step(self) -> list[Step]:
        """Advance every text by a pass, and one prompt by a piece; return what was committed.

        Before the next step, the tokens of each commit have to be taken with ``text.tokens_of``, and each text that has
        ended or failed has to be removed. If this raises, nothing here is of further use.
        """
        with mx.stream(self._stream):
            steps = [] if self._flights or self._share() else self._launch_alone()
            if self._flights:
                latest = self._flights[-1]
                if not latest.shared and not latest.texts[0].proposal.tokens and len(self) == 1:
                    self._launch_ahead(latest.texts[0])
                steps = self._read()
            if self._reading:
                steps += self._read_prompt()
            if not self._flights and self._share():
                self._launch_shared()
        return steps

    def remove(self, row: Row) -> int | None:
        """End a text at any time, and return the number of its tokens that its own cache holds afterwards.

        After the first token, these are the prompt and all tokens that were taken but the last one; before it, as much
        of the prompt as is known to be there. None means that the cache is of no further use: a text with recurrent
        layers that is left in the middle of a commit, while its next shared pass runs, has no state of that place.
        """
        with mx.stream(self._stream):
            if row in self._shared:
                self._take_out(row, row.text.cached_if_closed)
            for rows in (self._reading, self._own):
                if row in rows:
                    rows.remove(row)
            kept = row.close()
            self._flights = deque(each for each in self._flights if not all(one.row.closed for one in each.texts))
            return kept

    def _share(self) -> bool:
        """Whether the next pass serves several texts, whose caches are shared from here on."""
        if not self._shared and len(self._own) < 2:
            return False
        writing = [row for row in self._shared + self._own if not row.text.ended]
        if len(writing) < 2 or self._kind is None:
            for row in [row for row in writing if row in self._shared]:
                self._take_out(row, row.text.cached_after_commit)
                self._own.append(row)
            return False
        if self._caches is None:
            self._caches = BatchCache(writing[0].cache, _WIDTH)
        for row in [row for row in writing if row in self._own]:
            fed = row.text.cached_after_commit - len(row.refeed)
            held = max(lengths(row.cache), default=fed)
            row.origin = held - fed
            self._own.remove(row)
            self._caches.join(row.cache, held)
            self._shared.append(row)
        return True

    def _launch_alone(self) -> list[Step]:
        """Begin a pass over one text, with drafts; return the error of one that fails."""
        row = next((row for row in self._own if not row.text.ended), None)
        if row is None:
            return []
        began, rows = perf_counter(), [row]
        decisions, now = propose(rows, row.text.policy, self._drafts.draft), perf_counter()
        inputs = row.feed()
        try:
            launched = _Launched(row, row.proposal, row.own.launch(_array(inputs), len(inputs) - len(row.refeed)))
        except Exception as error:
            return [_failed(row, error)]
        launched.choose()
        self._flights.append(_Flight([launched], decisions, len(inputs), now, now - began))
        return []

    def _launch_ahead(self, latest: _Launched) -> None:
        """Begin a plain pass over the token that the latest pass will choose, where no drafts will follow."""
        row, text, chosen = latest.row, latest.row.text, latest.chosen
        if not row.may_run_ahead or text.remaining == 0 or not text.drafting_paused() or not isinstance(chosen, Pass):
            return
        random_state = text.randomness.unread()
        mx.async_eval(chosen.tokens, random_state)  # type: ignore[no-untyped-call]
        row.own.quantize()
        if row.own.rewinds_one_token_only():
            row.unrewindable_at = text.yielded
        now = perf_counter()
        ahead = _Launched(row, NOTHING, row.own.launch(chosen.tokens.astype(mx.int32), 1))
        # The choice has to wait where processors may refuse the text, which can end with this token, and where a seeded
        # generation sets its random state when the next cycle begins. A grammar has to know the token.
        if text.processors or text.constraint is not None or random_state:
            mx.async_eval(ahead.logits)  # type: ignore[no-untyped-call]
        else:
            ahead.choose()
            mx.async_eval(ahead.arrays())  # type: ignore[no-untyped-call]
        self._flights.append(_Flight([ahead], [plain(row)], 0, now))

    def _launch_shared(self) -> None:
        """Begin a pass over all texts that share their caches."""
        assert self._caches is not None
        began, rows = perf_counter(), list(self._shared)
        decisions, now = propose(rows, self.policy, self._drafts.draft, _WIDTH), perf_counter()
        counts = [len(row.feed()) for row in rows]
        width = max(counts)
        self._caches.mark()
        self._caches.begin(counts)
        inputs = _array([row.inputs + [0] * (width - len(row.inputs)) for row in rows])
        logits, texts = forward(self._model, inputs, self._caches), list[_Launched]()
        for at, row in enumerate(rows):
            texts.append(_Launched(row, row.proposal, logits[at, len(row.refeed) : counts[at]]))
            texts[-1].choose()
        mx.async_eval([each.arrays() for each in texts], self._caches.arrays())  # type: ignore[no-untyped-call]
        self._flights.append(_Flight(texts, decisions, width, now, now - began, shared=True))

    def _read(self) -> list[Step]:
        """Wait for the oldest pass that is under way, and commit to each text what it accepted."""
        launched, decisions, width, began, draft_seconds, shared = self._flights.popleft()
        steps: list[Step] = []
        texts = [each for each in launched if not each.row.closed]
        if not width:
            for each in texts:
                each.row.proposal = NOTHING
                each.row.feed()
                each.choose()
        mx.eval([each.chosen.tokens for each in texts if isinstance(each.chosen, Pass)])
        now = perf_counter()
        self._pass_seconds, self._read_at = now - max(began, self._read_at), now
        for each in texts:
            row = each.row
            try:
                commit = row.text.commit_pass(each.chosen, each.proposal, draft_seconds, self._pass_seconds)
            except Exception as error:
                steps.append(_failed(row, error))
            else:
                row.gained = commit.cycle.committed
                steps.append(Step(row, commit))
                if not shared:
                    self._keep_own(row, commit.cycle.accepted)
        for decision in decisions:
            decision.learn()
        # MLX limits what is under way, so handing over a pass can last until the one before it is done. Then the first
        # of several passes begun ahead seems too long, and the last one too short.
        policy = self.policy if shared or not texts else texts[0].row.text.policy
        if policy.is_automatic and texts and (shared or bool(width) != bool(self._flights)):
            context = max([each.row.text.drafters.context for each in texts])
            policy.observe(width, self._pass_seconds, context, drafted=width > 1, texts=len(launched))
        if shared:
            self._keep_shared()
        for each in texts:
            if each.row.gained:
                each.row.text.drafters.follow(each.row.gained)
        self._passes += 1
        if self._passes % CLEAR_EVERY == 0:
            mx.clear_cache()
        return steps

    def _keep_own(self, row: Row, accepted: int) -> None:
        """Take what was rejected out of the cache of a text that is alone."""
        again, fed = len(row.refeed), len(row.inputs)
        kept = again + len(row.gained)
        tell_committed(row.cache, row.gained, accepted, fed - again)
        row.take_back(kept, row.own.keep(fed - kept))
        if not self._flights:
            row.own.quantize()

    def _keep_shared(self) -> None:
        """Take what was rejected out of the shared caches, and texts that have ended."""
        assert self._caches is not None
        kept = [len(row.refeed) + len(row.gained) if row.gained else 0 for row in self._shared]
        wanted = [
            length - len(row.inputs) + right
            for row, length, right in zip(self._shared, self._caches.lengths, kept, strict=True)
        ]
        self._caches.take_back(wanted)
        for row, right, length, reached in zip(self._shared, kept, wanted, self._caches.lengths, strict=True):
            if row.gained:
                row.take_back(right, length - reached)
        for row in [row for row in self._shared if row.text.ended]:
            self._take_out(row, row.text.cached_after_commit, spare=len(row.inputs))

    def _read_prompt(self) -> list[Step]:
        """Read a piece of the prompt that has least left."""
        row = min(self._reading, key=lambda row: row.unread)
        row.piece, before, began = self._piece(row), row.unread, perf_counter()
        try:
            row.read_piece()
        except Exception as error:
            return [_failed(row, error)]
        if before - row.unread >= _SMALLEST_PIECE:
            self._token_seconds = (perf_counter() - began) / (before - row.unread)
        if not row.unread:
            self._reading.remove(row)
            self._own.append(row)
        return []

    def _piece(self, row: Row) -> int:
        """Tokens of a prompt to read next: while others write, no more than a few of their passes take."""
        whole = row.text.settings.prefill_step_size
        if self._reading_passes is None or not (self._own or self._shared):
            return whole
        seconds = self._reading_passes * self._pass_seconds
        affordable = int(seconds / self._token_seconds) if self._token_seconds else 0
        return min(whole, max(_SMALLEST_PIECE, affordable))

    def _take_out(self, row: Row, fed: int, spare: int = 0) -> None:
        """Move a text's part of the shared caches, its first ``fed`` tokens, back into its own cache."""
        assert self._caches is not None
        at = self._shared.index(row)
        under_way = any(each.row is row for flight in self._flights for each in flight.texts)
        before = self._caches.lengths[at] - len(row.inputs) * under_way
        held = self._caches.leave(at, row.cache, min(row.origin + fed, before), spare)
        self._shared[at] = self._shared[-1]
        self._shared.pop()
        if not self._shared:
            self._caches = None
        # With recurrent layers it may hold only what it held before the latest pass.
        row.resume(held - row.origin, row.inputs if held < before else [*row.refeed, row.text.last])


def _failed(row: Row, error: Exception) -> Step:
    """The end of a text, which has no part in further passes."""
    row.text.ended, row.gained = True, ()
    return Step(row, error)


def _array(tokens: list[Any]) -> mx.array:
    return mx.array(tokens, dtype=mx.int32)
