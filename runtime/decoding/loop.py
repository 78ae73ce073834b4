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
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.shared import BatchCache, kind_of
from spectool.runtime.decoding.row import Row
from spectool.runtime.decoding.text_state import Commit, Pass
from spectool.runtime.drafters.drafter import NOTHING, Proposal
from spectool.runtime.drafters.together import DraftPasses
from spectool.runtime.groups.rank_0 import forward, tell_committed
from spectool.runtime.mlx_lm_compat import generation_stream
from spectool.runtime.policy.costs import known_costs
from spectool.runtime.policy.policy import Choice, Policy
from spectool.runtime.settings import MAX_DRAFT_TOKENS

CLEAR_EVERY = 256  # passes between two mx.clear_cache(), as in mlx-lm
_WIDTH = 2 * MAX_DRAFT_TOKENS + 2  # tokens of a row in one shared pass: drafts, and what is fed again
_SMALLEST_PIECE = 16  # tokens of a prompt, however long they take: fewer take hardly less time


class Step(NamedTuple):
    """What a text gained in a step: tokens, or the error that it ends with."""

    row: Row
    gained: Commit | Exception


class _Launched:
    """A text in a pass that is under way."""

    def __init__(self, row: Row, proposal: Proposal = NOTHING, inputs: Sequence[int] | None = None) -> None:
        self.row, self.proposal = row, proposal
        self.inputs = inputs  # None for the token that the pass before chooses
        self.chosen: Pass | Callable[[], Pass] | Exception = RuntimeError("no pass")

    def choose(self, logits: mx.array) -> list[mx.array]:
        """Choose tokens from the logits of the last committed token and the drafts; return what to evaluate."""
        self.chosen = partial(self.row.text.choose, logits, self.proposal)
        chosen = self.choice()
        return [chosen.tokens, *self.row.text.randomness.unread()] if isinstance(chosen, Pass) else []

    def choice(self) -> Pass | Exception:
        """What is chosen, or why nothing is."""
        if callable(self.chosen):
            try:
                with self.row.text.randomness:
                    self.chosen = self.chosen()
            except Exception as error:  # a processor refuses the text
                self.chosen = error
        return self.chosen


class _Flight(NamedTuple):
    """A pass that is under way."""

    texts: Sequence[_Launched]
    choices: Sequence[tuple[Policy, Choice, Sequence[Row]]]  # what the policies have chosen for which texts
    began: float  # seconds
    draft_seconds: float = 0.0
    shared: bool = False
    ahead: bool = False  # begun before the token of the pass before it was known


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
            failed = list[Step]()
            if not self._flights and (writing := self._writing()) and not self._share():
                failed = self._launch_alone(writing[0])
            if len(self) == 1 and self._flights and not self._flights[-1].shared:
                self._launch_ahead(self._flights[-1].texts[0])
            steps = failed or (self._read() if self._flights else [])
            steps += self._read_prompt()
            if not self._flights and self._share():
                self._launch_shared()
        return steps

    def remove(self, row: Row) -> int | None:
        """End a text at any time, and return the number of its tokens that its own cache holds afterwards.

        After the first token, these are the prompt and all tokens that were taken but the last one; before it, as much
        of the prompt as is known to be there. None means that the cache is of no further use.
        """
        with mx.stream(self._stream):
            if row in self._shared:
                self._take_out(row, row.text.cached_if_closed)
            for rows in (self._reading, self._own):
                if row in rows:
                    rows.remove(row)
            here = [*self._own, *self._shared]
            self._flights = deque(flight for flight in self._flights if any(each.row in here for each in flight.texts))
            return row.close()

    def _writing(self) -> list[Row]:
        """The texts whose prompts are read, and that go on."""
        return [row for row in self._shared + self._own if not row.text.ended]

    def _share(self) -> bool:
        """Whether the next pass serves several texts, whose caches are shared from here on."""
        if not self._shared and len(self._own) < 2:
            return False
        writing = self._writing()
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

    def _propose_alone(self, row: Row) -> tuple[Proposal, list[tuple[Policy, Choice, Sequence[Row]]]]:
        """What a text proposes for a pass of its own, and what its policy has chosen."""
        text, limit = row.text, row.most_drafts()
        if (forced := text.forced(limit)) is not None:
            return forced, []
        choice = text.policy.choose([(text.drafters, limit)], refed=len(row.refeed), draft=self._drafts.draft)
        return text.allowed(choice.proposal), [(text.policy, choice, [row])]

    def _propose(self, rows: Sequence[Row]) -> tuple[list[Proposal], list[tuple[Policy, Choice, Sequence[Row]]]]:
        """What each text proposes for a pass that they share, and what the policies have chosen of it.

        A policy that a text has of its own, such as a fixed length, chooses first, as if the text were alone. The pass
        then has these rows in any case.
        """
        proposals, asked = dict[Row, Proposal](), list[tuple[Row, int]]()
        choices = list[tuple[Policy, Choice, Sequence[Row]]]()
        refed = max(len(row.refeed) for row in rows)
        for row in rows:
            text, limit = row.text, min(row.most_drafts(), _WIDTH - 1 - len(row.refeed))
            if (forced := text.forced(limit)) is not None:
                proposals[row] = forced
            elif text.policy is self.policy:
                asked.append((row, limit))
            else:
                choice = text.policy.choose([(text.drafters, limit)], refed=len(row.refeed))
                proposals[row] = text.allowed(choice.proposal)
                choices.append((text.policy, choice, [row]))
        if asked:
            choice = self.policy.choose(
                [(row.text.drafters, limit) for row, limit in asked],
                together=len(rows),
                refed=refed,
                least=max((len(each.tokens) for each in proposals.values()), default=0),
                draft=self._drafts.draft,
            )
            choosing = [row for row, _ in asked]
            choices.append((self.policy, choice, choosing))
            proposals |= {row: row.text.allowed(each) for row, each in zip(choosing, choice.proposals, strict=True)}
        return [proposals[row] for row in rows], choices

    def _launch_alone(self, row: Row) -> list[Step]:
        """Begin a pass over one text, with drafts; return the error of one that fails."""
        began = perf_counter()
        proposal, choices = self._propose_alone(row)
        row.inputs = [*row.refeed, row.text.last, *proposal.tokens]
        launched, now = _Launched(row, proposal, row.inputs), perf_counter()
        try:
            launched.choose(row.own.launch(row.inputs)[len(row.refeed) :])
        except Exception as error:
            return [_failed(row, error)]
        self._flights.append(_Flight([launched], choices, now, now - began))
        return []

    def _launch_ahead(self, launched: _Launched) -> None:
        """Begin a plain pass over the token that the latest pass will choose, where no drafts will follow."""
        row, text = launched.row, launched.row.text
        if not row.may_run_ahead or text.remaining == 0 or launched.proposal.tokens or not text.drafting_paused():
            return
        if not isinstance(chosen := launched.choice(), Pass):
            return
        random_state = text.randomness.unread()
        mx.async_eval(chosen.tokens, random_state)  # type: ignore[no-untyped-call]
        row.own.quantize()
        if row.own.rewinds_one_token_only():
            row.unrewindable_at = text.yielded
        ahead, now = _Launched(row), perf_counter()
        logits = row.own.launch(chosen.tokens.astype(mx.int32))
        # The choice has to wait where processors may refuse the text, which can end with this token, and where a seeded
        # generation sets its random state when the next cycle begins. A grammar has to know the token.
        if text.processors or text.constraint is not None or random_state:
            ahead.chosen = partial(text.choose, logits, NOTHING)
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
        else:
            mx.async_eval(ahead.choose(logits))  # type: ignore[no-untyped-call]
        rests = Choice([text.drafters], [NOTHING], rests=True)
        self._flights.append(_Flight([ahead], [(text.policy, rests, [row])], now, ahead=True))

    def _launch_shared(self) -> None:
        """Begin a pass over all texts that share their caches."""
        assert self._caches is not None
        began, rows = perf_counter(), list(self._shared)
        proposals, choices = self._propose(rows)
        texts = list[_Launched]()
        for row, proposal in zip(rows, proposals, strict=True):
            row.inputs = [*row.refeed, row.text.last, *proposal.tokens]
            texts.append(_Launched(row, proposal, row.inputs))
        counts = [len(row.inputs) for row in rows]
        width, now = max(counts), perf_counter()
        inputs = mx.array([row.inputs + [0] * (width - len(row.inputs)) for row in rows], dtype=mx.int32)
        self._caches.mark()
        self._caches.begin(counts)
        logits = forward(self._model, inputs, self._caches)
        arrays = [each.choose(logits[at, len(each.row.refeed) : len(each.row.inputs)]) for at, each in enumerate(texts)]
        mx.async_eval(arrays, self._caches.arrays())  # type: ignore[no-untyped-call]
        self._flights.append(_Flight(texts, choices, now, now - began, shared=True))

    def _read(self) -> list[Step]:
        """Wait for the oldest pass that is under way, and commit to each text what it accepted."""
        flight, arrays = self._flights.popleft(), list[mx.array]()
        texts = [each for each in flight.texts if each.row in self._shared or each.row in self._own]
        for each in texts:
            if each.inputs is None:
                each.inputs = each.row.inputs = [each.row.text.last]
            if isinstance(chosen := each.choice(), Pass):
                arrays.append(chosen.tokens)
        mx.eval(arrays)
        now = perf_counter()
        self._pass_seconds, self._read_at = now - max(flight.began, self._read_at), now
        steps, committed = list[Step](), dict[Row, Commit]()
        for each in texts:
            try:
                if isinstance(chosen := each.choice(), Exception):
                    raise chosen
                text = each.row.text
                commit = text.commit_pass(chosen, each.proposal, flight.draft_seconds, self._pass_seconds)
            except Exception as error:
                steps.append(_failed(each.row, error))
            else:
                committed[each.row] = commit
                steps.append(Step(each.row, commit))
        self._learn(flight, texts, committed)
        self._take_back(flight, texts, committed)
        for row, commit in committed.items():
            row.text.drafters.follow(commit.cycle.committed)
        self._passes += 1
        if self._passes % CLEAR_EVERY == 0:
            mx.clear_cache()
        return steps

    def _learn(self, flight: _Flight, texts: Sequence[_Launched], committed: dict[Row, Commit]) -> None:
        """Let the policies learn from a pass."""
        for policy, choice, rows in flight.choices:
            policy.learn(choice, [committed[row].cycle.committed if row in committed else () for row in rows])
        # MLX limits what is under way, so handing over a pass can last until the one before it is done. Then the first
        # of several passes begun ahead seems too long, and the last one too short.
        if not texts or (not flight.shared and flight.ahead != bool(self._flights)):
            return
        policy = self.policy if flight.shared else texts[0].row.text.policy
        width = 0 if flight.ahead else max(len(each.inputs or ()) for each in texts)
        context = max(each.row.text.drafters.context for each in texts)
        policy.observe(width, self._pass_seconds, context, drafted=width > 1, texts=len(flight.texts))

    def _take_back(self, flight: _Flight, texts: Sequence[_Launched], committed: dict[Row, Commit]) -> None:
        """Take what was rejected out of the caches."""
        kept = {row: len(row.refeed) + len(commit.cycle.committed) for row, commit in committed.items()}
        if not flight.shared:
            for each in texts:
                if (commit := committed.get(each.row)) is not None:
                    row, inputs = each.row, each.inputs or ()
                    tell_committed(
                        row.cache, commit.cycle.committed, commit.cycle.accepted, len(each.proposal.tokens) + 1
                    )
                    row.take_back(kept[row], row.own.keep(len(inputs) - kept[row]))
                    if not self._flights:
                        row.own.quantize()
            return
        assert self._caches is not None
        fed = {each.row: len(each.inputs or ()) for each in texts}
        wanted = [
            length - fed.get(row, 0) + kept.get(row, 0)
            for row, length in zip(self._shared, self._caches.lengths, strict=True)
        ]
        self._caches.take_back(wanted)
        for row, length, reached in zip(self._shared, wanted, self._caches.lengths, strict=True):
            if row in kept:
                row.take_back(kept[row], length - reached)
        for each in texts:
            if each.row.text.ended:
                self._take_out(each.row, each.row.text.cached_after_commit, spare=fed[each.row])

    def _read_prompt(self) -> list[Step]:
        """Read a piece of the prompt that has least left."""
        if not self._reading:
            return []
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
    row.text.ended = True
    return Step(row, error)
