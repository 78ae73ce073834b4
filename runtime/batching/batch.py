"""Several texts written at the same time: each pass of the target serves all of them.

    step    read the pass that is under way, and commit to each text what it accepted
            read a piece of a prompt, if any waits: where others write, one that takes no longer than a few passes
            propose for each text, cut all proposals to one length, and begin the next pass
            return what was committed, which the caller hands on while the device computes

Texts come and go between two steps. A text that is alone runs as in the single loop, in a cache of its own, and so does
one whose cache cannot share passes, after all others have ended.
"""

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.batching.caches import BatchCache, kind_of
from spectool.runtime.caches.leaves import lengths
from spectool.runtime.decoding.generation import CLEAR_EVERY
from spectool.runtime.decoding.target import TargetRunner
from spectool.runtime.decoding.text_state import Commit, Pass
from spectool.runtime.drafters.drafter import NOTHING, Drafter, Drafters, Proposal
from spectool.runtime.groups.rank_0 import forward
from spectool.runtime.mlx_lm_compat import generation_stream
from spectool.runtime.policy.costs import known_costs
from spectool.runtime.policy.policy import Candidate, Policy
from spectool.runtime.settings import MAX_DRAFT_TOKENS

_WIDTH = 2 * MAX_DRAFT_TOKENS + 2  # tokens of a row in one pass: drafts, and what is fed again
_SMALLEST_PIECE = 16  # tokens of a prompt, however long they take: fewer take hardly less time


class Step(NamedTuple):
    """What a text gained in a step: tokens, or the error that it ends with."""

    target: TargetRunner
    gained: Commit | Exception


class _Row:
    """A text in the batch."""

    def __init__(self, target: TargetRunner) -> None:
        self.target, self.text = target, target.text
        self.piece = target.text.settings.prefill_step_size  # tokens of the prompt to be read next
        self.pieces = target.read_prompt(lambda: self.piece)
        self.unread = len(target.text.prompt) - 1  # tokens of the prompt
        self.origin = 0  # tokens in the cache before those of this text
        self.proposal = NOTHING
        self.inputs: list[int] = []
        self.current: Pass | Exception | None = None  # what came of choosing its tokens


class Batch:
    """Texts of one model that are written together.

    Attributes:
        rows: Texts that may be written at the same time.
        policy: Chooses the draft length where texts share a pass.
    """

    def __init__(
        self,
        model: Any,
        rows: int,
        policy: Policy,
        *,
        drafter: Drafter | Drafters | None = None,
        kv_bits: int | None = None,
        stream: Any = None,
        reading_passes: float | None = None,
    ) -> None:
        """Write up to ``rows`` texts at a time on ``stream``, with drafts as ``policy`` chooses.

        Texts whose settings have another policy, such as one with a fixed draft length, follow that.

        Texts cannot share passes if their caches will be quantised, if they have one ``drafter`` that cannot be forked,
        or if the bits are to stay those of passes over single tokens. Then one is written after the other.

        Prompts are read in pieces of the texts' ``prefill_step_size``. With ``reading_passes``, a piece is smaller
        while other texts are written, so that it takes no longer than that many of their passes.
        """
        costs = known_costs(model)
        one_drafter = drafter is not None and drafter.fork() is None
        in_turn = one_drafter or kv_bits is not None or (costs is not None and costs.exact)
        self.rows, self.policy = 1 if in_turn else rows, policy
        self._model = model
        self._stream = generation_stream if stream is None else stream
        self._reading: list[_Row] = []
        self._own: list[_Row] = []  # their prompts are read, and their caches are their own
        self._shared: list[_Row] = []  # in the order of the rows of the shared caches
        self._flight: list[_Row] = []  # those whose pass is under way
        self._caches: BatchCache | None = None
        self._kind: tuple[Any, ...] | None = None
        self._read_at: float | None = None  # when the latest pass was read, unless something came in between
        self._reading_passes = reading_passes
        self._begun_at = 0.0  # when the latest pass began
        self._token_seconds: float | None = None  # of a prompt's token, in the latest piece
        self._steps = 0

    def __len__(self) -> int:
        """Number of texts that are written or read."""
        return len(self._reading) + len(self._own) + len(self._shared)

    def accepts(self, cache: list[Any]) -> bool:
        """Whether a text with this cache can be added now."""
        if not len(self):
            return True
        return len(self) < self.rows and self._kind is not None and kind_of(self._model, cache) == self._kind

    def add(self, target: TargetRunner) -> None:
        """Add a text that `accepts` has let through."""
        self._kind = kind_of(self._model, target.cache) if self.rows > 1 else None
        self._reading.append(_Row(target))

    def step(self) -> list[Step]:
        """Advance every text by a pass, and one prompt by a piece; return what was committed.

        Before the next step, the tokens of each commit have to be taken with ``text.tokens_of``, and each text that has
        ended or failed has to be removed. If this raises, nothing here is of further use.
        """
        with mx.stream(self._stream):
            steps = self._read_pass()
            steps += self._read_prompt(perf_counter() - self._begun_at)
            self._begun_at = perf_counter()
            steps += self._begin_pass({step.target for step in steps})
        self._steps += 1
        if self._steps % CLEAR_EVERY == 0:
            mx.clear_cache()
        return steps

    def remove(self, target: TargetRunner) -> int | None:
        """End a text at any time, and return the number of its tokens that its own cache holds afterwards.

        After the first token, these are the prompt and all tokens that were taken but the last one; before it, as much
        of the prompt as is known to be there. None means that the cache is of no further use.
        """
        with mx.stream(self._stream):
            for row in [row for row in self._shared if row.target is target]:
                self._take_out(row, row.text.cached_if_closed)
            self._reading = [row for row in self._reading if row.target is not target]
            self._own = [row for row in self._own if row.target is not target]
            return target.close()

    def _read_pass(self) -> list[Step]:
        """Wait for the pass that is under way, and commit to each text what it accepted."""
        flight, self._flight = self._flight, []
        if self._caches is None or not flight:
            return []
        mx.eval([row.current.tokens for row in flight if isinstance(row.current, Pass)])
        steps: list[Step] = []
        kept, committed = dict.fromkeys(self._shared, 0), 0
        for row in flight:
            if row not in kept:
                continue  # removed meanwhile
            try:
                if not isinstance(row.current, Pass):
                    raise row.current or RuntimeError("no pass")
                commit = row.text.commit_pass(row.current, row.proposal)
            except Exception as error:
                steps.append(Step(row.target, error))
                continue
            tokens = commit.cycle.committed
            kept[row] = len(row.target.refeed) + len(tokens)
            committed += len(tokens)
            with row.text.randomness:
                row.text.proposer.commit(tokens)
            steps.append(Step(row.target, commit))
        before = self._caches.lengths
        self._caches.settle(list(kept.values()))
        for row, old, new in zip(self._shared, before, self._caches.lengths, strict=True):
            row.target.refeed = row.inputs[new - old : kept[row]]
        now, began, self._read_at = perf_counter(), self._read_at, perf_counter()
        self._learn(flight, committed / len(flight), None if began is None else now - began)
        failed = {step.target for step in steps if isinstance(step.gained, Exception)}
        for row in [row for row in self._shared if row.text.ended or row.target in failed]:
            self._take_out(row, row.text.cached_after_commit, spare=len(row.inputs))
        return steps

    def _read_prompt(self, pass_seconds: float) -> list[Step]:
        """Read a piece of the prompt that has least left; the latest pass of the others took ``pass_seconds``."""
        if not self._reading:
            return []
        row = min(self._reading, key=lambda row: row.unread)
        self._read_at = None
        row.piece = self._piece(row, pass_seconds)
        try:
            whole, before, began = len(row.text.prompt) - 1, row.unread, perf_counter()
            row.unread = whole - next(row.pieces, whole)
            if before - row.unread >= _SMALLEST_PIECE:
                self._token_seconds = (perf_counter() - began) / (before - row.unread)
            if not row.unread:
                deque(row.pieces, 0)  # nothing but its end
                row.text.start()
        except Exception as error:
            return [Step(row.target, error)]
        if not row.unread:
            self._reading.remove(row)
            self._own.append(row)
        return []

    def _piece(self, row: _Row, pass_seconds: float) -> int:
        """Tokens of a prompt to read next: while others write, no more than a few of their passes take."""
        whole = row.text.settings.prefill_step_size
        if self._reading_passes is None or not (self._own or self._shared):
            return whole
        seconds = self._reading_passes * pass_seconds
        affordable = int(seconds / self._token_seconds) if self._token_seconds else 0
        return min(whole, max(_SMALLEST_PIECE, affordable))

    def _begin_pass(self, untaken: set[TargetRunner]) -> list[Step]:
        """Begin a pass over all texts, or make one over a text that is alone, unless its tokens are ``untaken``."""
        rows = [row for row in self._shared + self._own if not row.text.ended]
        if len(rows) == 1 or self._kind is None:
            self._read_at = None
            for row in list(self._shared):
                self._take_out(row, row.text.cached_after_commit)
                self._own.append(row)
            return [self._alone(row) for row in rows if row.target not in untaken]
        begun = [row for row in rows if row.target.next_pass is not None]
        if begun or not rows:
            return [self._alone(row) for row in begun]
        if self._caches is None:
            self._caches = BatchCache(rows[0].target.cache, _WIDTH)
        for row in [row for row in self._own if not row.text.ended]:
            self._own.remove(row)
            self._share(row)
        self._propose()
        self._launch()
        return []

    def _alone(self, row: _Row) -> Step:
        """A cycle as in the single loop, with no pass ahead that would keep others out."""
        try:
            return Step(row.target, row.target.cycle(ahead=len(self) == 1))
        except Exception as error:
            return Step(row.target, error)

    def _propose(self) -> None:
        """Ask all drafters, and let the policy choose one length for all proposals that it may cut."""
        rows, policy = self._shared, self.policy
        offered: dict[_Row, Sequence[Candidate]] = {}
        for row in rows:
            refed = len(row.target.refeed)
            with row.text.randomness:  # drafters may draw, too
                found = row.text.proposer.candidates(min(row.text.remaining, _WIDTH - 1 - refed), refed, policy)
            if isinstance(found, Proposal):
                row.proposal = row.text.proposer.take(found)
            else:
                offered[row] = found
        refed = max(len(row.target.refeed) for row in rows)
        costs = self._costs(rows, refed)
        settled = max((len(row.proposal.tokens) for row in rows if row not in offered), default=0)
        costs[:settled] = [costs[settled]] * settled  # the pass has these rows in any case
        paused = policy.paused(len(rows))
        length, picks, _ = policy.best([() if paused else offered.get(row, ()) for row in rows], costs)
        for row, pick in zip(rows, picks, strict=True):
            if row in offered:
                row.proposal = row.text.proposer.take(pick.proposal.cut(length))

    def _costs(self, rows: Sequence[_Row], refed: int = 0) -> list[float]:
        """Plain passes that a pass over these texts takes, by draft length."""
        context = max(row.text.cached_after_commit for row in rows)
        return self.policy.costs(_WIDTH, context, texts=len(rows), refed=refed)

    def _learn(self, rows: Sequence[_Row], committed: float, seconds: float | None) -> None:
        """Let the policy learn from a pass after which each of these texts had ``committed`` more tokens on average."""
        policy, width = self.policy, max(len(row.inputs) for row in rows)
        if width > 1 or not policy.paused(len(rows)):
            policy.settle(self._costs(rows)[width - 1], committed)
        else:
            policy.rest(())
        if seconds is not None:
            context = max(row.text.cached_after_commit for row in rows)
            policy.observe(width, seconds, context, drafted=width > 1, texts=len(rows))

    def _launch(self) -> None:
        """Begin the pass."""
        assert self._caches is not None
        for row in self._shared:
            row.inputs = [*row.target.refeed, row.text.last, *row.proposal.tokens]
        counts = [len(row.inputs) for row in self._shared]
        width = max(counts)
        inputs = mx.array([row.inputs + [0] * (width - len(row.inputs)) for row in self._shared], dtype=mx.int32)
        self._caches.begin(counts)
        logits = forward(self._model, inputs, self._caches)
        for at, row in enumerate(self._shared):
            own = logits[at, len(row.target.refeed) : len(row.inputs)]
            try:
                with row.text.randomness:
                    row.current = row.text.choose(own, row.proposal)
            except Exception as error:  # a processor refuses the text
                row.current = error
        self._flight = list(self._shared)
        mx.async_eval(
            [row.current.tokens for row in self._flight if isinstance(row.current, Pass)], self._caches.arrays()
        )  # type: ignore[no-untyped-call]

    def _share(self, row: _Row) -> None:
        """Move a text's cache into the shared ones."""
        assert self._caches is not None
        fed = row.text.cached_after_commit - len(row.target.refeed)
        held = max(lengths(row.target.cache), default=fed)
        row.origin = held - fed
        self._caches.join(row.target.cache, held)
        self._shared.append(row)

    def _take_out(self, row: _Row, fed: int, spare: int = 0) -> None:
        """Move a text's part of the shared caches, its first ``fed`` tokens, back into its own cache."""
        assert self._caches is not None
        at, target = self._shared.index(row), row.target
        held = self._caches.lengths[at]
        if not self._caches.recurrent:  # otherwise only all of them, which may be too many
            held = min(row.origin + fed, held)
        self._caches.leave(at, target.cache, held, spare)
        self._shared[at] = self._shared[-1]
        self._shared.pop()
        if not self._shared:
            self._caches = None
        target.resume(held - row.origin, [*target.refeed, row.text.last])
