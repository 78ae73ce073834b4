"""The loop in which texts are written: one text, or several in passes that they share, with any drafters or none.

    propose     each text gets draft tokens d1 .. dk for the positions after its last committed token c
    launch      a pass of the target over c d1 .. dk of all texts begins
    read        gives the target's own choice at each position: t0 t1 .. tk
    commit      each text gets the drafts that equal these choices, and the first choice that does not (tk when all are
                right); what was rejected is taken out of the caches, and policy and drafters learn

Every committed token is a choice that the target made after the true text, so a drafter changes the speed and nothing
else. `sampling.verification` says how choices are made where a sampler draws them.

While one pass runs, the host works on what the one before it gave:

    one text        launch n (with drafts), read n, hand out n, launch n+1, ...
                    where no drafts follow: launch n, launch n+1 (before the token is known), read n, hand out n, ...
    several texts   read n, launch n+1, hand out n, ...

Texts come and go between two steps. A text that is alone is written in a cache of its own, and so is one whose cache
cannot share passes, after all others have ended.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import mlx.core as mx

from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.shared import BatchCache, kind_of
from spectool.runtime.decoding.proposing import Decision, propose
from spectool.runtime.decoding.text import WIDTH, Pass, Text
from spectool.runtime.drafters.drafter import NOTHING, Proposal
from spectool.runtime.drafters.together import DraftPasses
from spectool.runtime.groups.rank_0 import forward
from spectool.runtime.policy.costs import known_costs
from spectool.runtime.policy.policy import Choice, Policy

CLEAR_EVERY = 256  # passes between two mx.clear_cache(), as in mlx-lm
_SMALLEST_PIECE = 16  # tokens of a prompt, however long they take: fewer take hardly less time
_FOR_OLDEST = 4  # every fourth piece is of the prompt that came first, so that none waits for ever


@dataclass(slots=True)
class _Launched:
    """A text in a pass that is under way."""

    text: Text
    proposal: Proposal
    logits: mx.array  # [drafts + 1, vocabulary]
    chosen: Pass | Exception | None = None  # or why nothing is chosen

    def choose(self) -> None:
        """Choose tokens, unless they are chosen; lazy."""
        if self.chosen is None:
            try:
                with self.text.choosing:
                    self.chosen = self.text.choose(self.logits, self.proposal)
            except Exception as error:  # a processor refuses the text
                self.chosen = error

    def arrays(self) -> list[mx.array]:
        """What is to be evaluated with the pass."""
        return [self.chosen.tokens, *self.text.randomness.unread()] if isinstance(self.chosen, Pass) else []


class _Flight(NamedTuple):
    """A pass that is under way."""

    launched: Sequence[_Launched]
    decisions: Sequence[Decision]
    width: int  # tokens of a text; 0 for a pass that begins before the token of the one before it is known
    began: float  # seconds
    draft_seconds: float = 0.0
    shared: bool = False


class Loop:
    """Texts of one model that are written together."""

    def __init__(
        self, model: Any, rows: int, policy: Policy, *, stream: Any, reading_passes: float | None = None
    ) -> None:
        """Write up to ``rows`` texts at a time on ``stream``, with drafts as ``policy`` chooses.

        Texts whose settings have another policy, such as one with a fixed draft length, follow that. Texts cannot share
        passes if their caches will be quantised, or if the bits are to stay those of passes over single tokens. Then
        one is written after the other.

        Prompts are read in pieces of the texts' ``prefill_step_size``. With ``reading_passes``, what is read between
        two passes of texts that are written takes no longer than that many of these, or as many times longer as there
        are more texts that wait than are written.
        """
        costs = known_costs(model) if rows > 1 else None
        self.rows, self.policy = 1 if costs is not None and costs.exact else rows, policy
        self._model, self._stream = model, stream
        self._reading: list[Text] = []
        self._own: list[Text] = []  # their prompts are read, and their caches are their own
        self._shared: list[Text] = []  # in the order of the rows of the shared caches
        self._flights = deque[_Flight]()  # the oldest first
        self._caches: BatchCache | None = None
        self._kind: tuple[Any, ...] | None = None
        self._drafts = DraftPasses()
        self._read_at = 0.0  # when the latest pass was read
        self._reading_passes, self._token_seconds = reading_passes, 0.0  # of a prompt's token, in the latest piece
        self._pass_seconds = 0.0  # of the latest pass
        self._passes = self._pieces = 0  # of the model; of prompts that were read

    def __len__(self) -> int:
        """Number of texts that are written or read."""
        return len(self._reading) + len(self._own) + len(self._shared)

    def accepts(self, cache: list[Any]) -> bool:
        """Whether a text with this cache can be added now."""
        fits = len(self) < self.rows and self._kind is not None
        return not len(self) or (fits and kind_of(self._model, cache) == self._kind)

    def add(self, text: Text) -> None:
        """Add a text that `accepts` has let through."""
        can_share = self.rows > 1 and text.settings.kv_bits is None
        self._kind = kind_of(self._model, text.cache) if can_share else None
        self._reading.append(text)

    def step(self) -> list[Text]:
        """Advance every text by a pass, and one prompt by a piece; return those that gained tokens or failed.

        Before the next step, the tokens of each have to be taken with ``text.take``, and each text that has ended or
        failed has to be removed. If this raises, nothing here is of further use.
        """
        with mx.stream(self._stream):
            changed = [] if self._flights or self._joined() else self._launch_alone()
            if self._flights:
                latest = self._flights[-1]
                if not latest.shared and not latest.launched[0].proposal.tokens and len(self) == 1:
                    self._launch_ahead(latest.launched[0])
                changed = self._read()
            changed += self._read_prompts()
            if not self._flights and self._joined():
                self._launch_shared()
        return changed

    def remove(self, text: Text) -> int | None:
        """End a text at any time, and return the number of its tokens that its own cache holds afterwards.

        After the first token, these are the prompt and all tokens that were taken but the last one; before it, as much
        of the prompt as is known to be there. None means that the cache is of no further use: a text with recurrent
        layers that is left in the middle of a commit, while its next shared pass runs, has no state of that place, and
        of more tokens than a shared window has spare slots, some may be gone from it.
        """
        with mx.stream(self._stream):
            whole = text not in self._shared or self._take_out(text, text.cached_if_closed)
            for texts in (self._reading, self._own):
                if text in texts:
                    texts.remove(text)
            kept = text.close()
            self._flights = deque(each for each in self._flights if not all(one.text.closed for one in each.launched))
            return kept if whole else None

    def _joined(self) -> bool:
        """Join the caches of texts that can share passes, or part them; return whether the next pass is shared."""
        if not self._shared and len(self._own) < 2:
            return False
        writing = [text for text in self._shared + self._own if not text.ended]
        if len(writing) < 2 or self._kind is None:
            for text in [text for text in writing if text in self._shared]:
                self._take_out(text, text.cached_after_commit, spare=len(text.inputs))
                self._own.append(text)
            return False
        if self._caches is None:
            self._caches = BatchCache(writing[0].cache, WIDTH)
        for text in [text for text in writing if text in self._own]:
            fed = text.cached_after_commit - len(text.refeed)
            held = max(lengths(text.cache), default=fed)
            text.origin = held - fed
            self._own.remove(text)
            self._caches.join(text.cache, held)
            self._shared.append(text)
        return True

    def _launch_alone(self) -> list[Text]:
        """Begin a pass over one text, with drafts; return it if it fails."""
        text = next((text for text in self._own if not text.ended), None)
        if text is None:
            return []
        began = perf_counter()
        decisions, now = propose([text], text.policy, self._drafts.draft), perf_counter()
        try:
            logits = text.own.launch(mx.array([text.feed()], dtype=mx.int32))
        except Exception as error:
            text.fail(error)
            return [text]
        rows = logits.squeeze(0)
        launched = _Launched(text, text.proposal, rows[len(text.refeed) :] if text.refeed else rows)
        launched.choose()
        self._flights.append(_Flight([launched], decisions, len(text.inputs), now, now - began))
        return []

    def _launch_shared(self) -> None:
        """Begin a pass over all texts that share their caches."""
        assert self._caches is not None
        began, texts = perf_counter(), self._shared
        decisions, now = propose(texts, self.policy, self._drafts.draft, WIDTH), perf_counter()
        counts = [len(text.feed()) for text in texts]
        self._caches.mark()
        self._caches.begin(counts)
        inputs = [text.inputs + [0] * (max(counts) - len(text.inputs)) for text in texts]
        logits = forward(self._model, mx.array(inputs, dtype=mx.int32), self._caches)
        launched = list[_Launched]()
        for at, text in enumerate(texts):
            launched.append(_Launched(text, text.proposal, logits[at, len(text.refeed) : counts[at]]))
            launched[-1].choose()
        mx.async_eval([each.arrays() for each in launched], self._caches.arrays())  # type: ignore[no-untyped-call]
        self._flights.append(_Flight(launched, decisions, max(counts), now, now - began, shared=True))

    def _launch_ahead(self, latest: _Launched) -> None:
        """Begin a plain pass over the token that the latest pass will choose, where no drafts will follow."""
        text, chosen = latest.text, latest.chosen
        if not text.may_run_ahead or text.remaining == 0 or not text.drafting_paused() or not isinstance(chosen, Pass):
            return
        if text.policy.drifts[1].wants_plain or (text.repeatable and text.drafters.slots):
            return  # a plain pass for comparison is timed by itself, and what is drawn waits for all that is learnt
        random_state = text.randomness.unread()
        mx.async_eval(chosen.tokens, random_state)  # type: ignore[no-untyped-call]
        text.own.quantize()
        if text.own.checkpoints.rewinds_one_token_only():
            text.unrewindable_at = text.yielded
        now = perf_counter()
        ahead = _Launched(text, NOTHING, text.own.launch(chosen.tokens.astype(mx.int32)[None]).squeeze(0))
        # The choice has to wait where processors may refuse the text, which can end with this token, and where a seeded
        # generation sets its random state when the next cycle begins. A grammar has to know the token.
        if text.processors or text.constraint is not None or random_state:
            mx.async_eval(ahead.logits)  # type: ignore[no-untyped-call]
        else:
            ahead.choose()
            mx.async_eval(ahead.arrays())  # type: ignore[no-untyped-call]
        without_drafts = Choice([text.drafters], [NOTHING], rests=True)
        self._flights.append(_Flight([ahead], [Decision(text.policy, without_drafts, [text])], 0, now))

    def _read(self) -> list[Text]:
        """Wait for the oldest pass that is under way, and commit to each text what it accepted."""
        all_launched, decisions, width, began, draft_seconds, shared = self._flights.popleft()
        launched = [each for each in all_launched if not each.text.closed]
        if not width:
            for each in launched:
                each.text.proposal = NOTHING
                each.text.feed()
                each.choose()
        mx.eval([each.chosen.tokens for each in launched if isinstance(each.chosen, Pass)])
        now = perf_counter()
        self._pass_seconds, self._read_at = now - max(began, self._read_at), now
        for each in launched:
            text = each.text
            try:
                text.commit_pass(each.chosen, each.proposal, draft_seconds, self._pass_seconds)
            except Exception as error:
                text.fail(error)
            else:
                if not shared:
                    self._keep_own(text)
        for decision in decisions:
            decision.learn()
        # MLX limits what is under way, so handing over a pass can last until the one before it is done. Then the first
        # of several passes begun ahead seems too long, and the last one too short.
        policy = self.policy if shared or not launched else launched[0].text.policy
        timed = shared or (bool(width) != bool(self._flights) and not any(each.text.repeatable for each in launched))
        if policy.is_automatic and timed and launched:
            context = max([each.text.drafters.context for each in launched])
            policy.observe(width, self._pass_seconds, context, drafted=width > 1, texts=len(all_launched))
            if len(decisions) == 1:
                policy.observe_drafting(decisions[0].choice, draft_seconds, len(all_launched))
        if shared:
            self._keep_shared()
        for each in launched:
            if each.text.gained:
                each.text.drafters.follow(each.text.gained)
        self._passes += 1
        if self._passes % CLEAR_EVERY == 0:
            mx.clear_cache()
        return [each.text for each in launched]

    def _keep_own(self, text: Text) -> None:
        """Take what was rejected out of the cache of a text that is alone."""
        fed, kept = len(text.inputs), len(text.refeed) + len(text.gained)
        text.refeed = text.inputs[kept - text.own.keep(fed - kept) : kept]
        if not self._flights:
            text.own.quantize()

    def _keep_shared(self) -> None:
        """Take what was rejected out of the shared caches, and texts that have ended."""
        assert self._caches is not None
        kept = [len(text.refeed) + len(text.gained) if text.gained else 0 for text in self._shared]
        wanted = [
            length - len(text.inputs) + right
            for text, length, right in zip(self._shared, self._caches.lengths, kept, strict=True)
        ]
        self._caches.take_back(wanted)
        for text, right, length, reached in zip(self._shared, kept, wanted, self._caches.lengths, strict=True):
            if text.gained:
                text.refeed = text.inputs[right - (length - reached) : right]
        for text in [text for text in self._shared if text.ended]:
            self._take_out(text, text.cached_after_commit, spare=len(text.inputs))

    def _read_prompts(self) -> list[Text]:
        """Read prompts until the next pass is due, or a piece where nothing is written; return texts that fail."""
        writing, waiting = len(self._own) + len(self._shared), len(self._reading)
        if not waiting or not writing or self._reading_passes is None:
            return self._read_piece(math.inf) if waiting else []
        until = perf_counter() + self._reading_passes * self._pass_seconds * max(1.0, waiting / writing)
        failed = self._read_piece(until)
        while waiting > len(self._reading) > 0 and until - perf_counter() > _SMALLEST_PIECE * self._token_seconds:
            waiting = len(self._reading)  # one prompt is read, and there is time for another one
            failed += self._read_piece(until)
        return failed

    def _read_piece(self, until: float) -> list[Text]:
        """Read a piece of the prompt that has least left, or at times of the first; return its text if it fails."""
        self._pieces += 1
        text = min(self._reading, key=lambda text: text.unread) if self._pieces % _FOR_OLDEST else self._reading[0]
        most, before, began = text.settings.prefill_step_size, text.unread, perf_counter()
        if until < math.inf:
            most = min(most, max(_SMALLEST_PIECE, int((until - began) / (self._token_seconds or math.inf))))
        try:
            text.read_piece(most)
        except Exception as error:
            text.fail(error)
            return [text]
        if before - text.unread >= _SMALLEST_PIECE:
            self._token_seconds = (perf_counter() - began) / (before - text.unread)
        if not text.unread:
            self._reading.remove(text)
            self._own.append(text)
        return []

    def _take_out(self, text: Text, fed: int, spare: int = 0) -> bool:
        """Move a text's part of the shared caches, its first ``fed`` tokens, into its own; whether that is whole."""
        assert self._caches is not None
        at = self._shared.index(text)
        under_way = any(each.text is text for flight in self._flights for each in flight.launched)
        before = self._caches.lengths[at] - len(text.inputs) * under_way
        length = min(text.origin + fed, before)
        found = self._caches.leave(at, text.cache, length, spare)
        held = length if found is None else found
        self._shared[at] = self._shared[-1]
        self._shared.pop()
        if not self._shared:
            self._caches = None
        # With recurrent layers it may hold only what it held before the latest pass.
        text.inputs = text.inputs if held < before else [*text.refeed, text.last]
        text.own.enter(held - text.origin, exact_masks=True)
        return found is not None
