"""The byte-aligned translator: both tokenizers stay on the same bytes, on ids, by table and repair.

    committed text   | t1 | t2 | t3 |                 target ids: never changed, never encoded again
    draft's view     |  d1  | d2 | d3               canonical draft ids of the same bytes
                                    ^ frontier: the bytes committed, all that both agree on
    proposal                  d3' d4 d5               healed: d3' begins with d3's bytes and goes beyond
                                    | t4 | t5 | t6 |  target ids of what lies beyond the frontier

Three steps (docs/design.md): the draft's view is kept canonical (resync), the draft may replace its last token by a
longer one (healing), and its first token may not merge into the token that the target has just committed (head
absorption).

A draft begins with the *overlap*: bytes that the target has committed and the draft says again, those of a replaced
token and those of an unfinished character. What is translated are the bytes after it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE, Alignment, IdLists, Side
from spectool.runtime.translation.absorption import Absorption
from spectool.runtime.translation.draft_view import DraftView
from spectool.runtime.translation.protocol import NO_IDS, Constraint, DraftContext, allow_any
from spectool.tokenization.incremental.by_ids import IncrementalBPE, TokenRun
from spectool.tokenization.incremental.by_text import TailReencoder, whole_characters
from spectool.tokenization.incremental.encoder import encoder_of
from spectool.tokenization.token_bytes import TokenBytes
from spectool.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from spectool.runtime.translation.token_rows import TokenRows

_MANY = 64  # tokens from which on a prompt is encoded instead of joined
_AT_ONCE = 4096  # tokens of a prompt that are encoded at once: another thread waits for that long


class ByteAlignedTranslator:
    """Translates between two vocabularies without losing the target's boundaries.

    A text is what stands between two special tokens; these are mapped by role and left out where the other side has
    no such token.
    """

    name = "byte-aligned"

    def __init__(self, alignment: Alignment, draft: Tokenizer, target: Tokenizer) -> None:
        """Translate with ``alignment``, which must have been built for these two tokenizers.

        Raises:
            FingerprintMismatch: It was built for others, or for the other direction.
        """
        draft, target = alignment.require(draft, target)
        self._alignment, self._draft, self._target = alignment, draft, target
        self._encoder = encoder_of(target, alignment.target.by_ids)
        self._view = DraftView(
            encoder_of(draft, alignment.draft.by_ids), alignment.target.spellings, draft.leading_space
        )
        self._absorption = Absorption(alignment, self._encoder)
        # These depend on the pair alone, so each token or prefix is looked up once.
        for look_up in (self._token_run, self._ids_after_overlap, self._beginning_with, self._row_table):
            setattr(self, look_up.__name__, cache(look_up))
        self._spelled_rows: dict[tuple[int, bytes, bytes], tuple[tuple[int, ...], bytes]] = {}
        self.start()

    @property
    def string_calls(self) -> int:
        """How often text was encoded since ``start``."""
        return self._view.encoder.string_calls + self._encoder.string_calls - self._calls_before

    def start(self) -> None:
        """Begin a text; forget any earlier one."""
        self._calls_before = self._view.encoder.string_calls + self._encoder.string_calls
        self._committed: list[int] = []
        self._begin = 0  # committed ids before the present text
        self._absorption.start()
        self._view.start()

    def commit(self, tokens: Sequence[int]) -> None:
        """Bring the draft's view up to committed target ids: some microseconds each, less for those of a prompt."""
        self._absorption.count(tokens)
        if len(tokens) < _MANY:
            self._commit_each(tokens)
            return
        for has_bytes, group in groupby(tokens, lambda token: bool(self._bytes(self._target, token))):
            run = list(group)
            if not has_bytes or len(run) < _MANY:
                self._commit_each(run)
                continue
            for first in range(0, len(run), _AT_ONCE):
                part = run[first : first + _AT_ONCE]
                self._view.append_bytes(self._as_said(b"".join(map(self._target.token_bytes.__getitem__, part))))
                self._committed += part

    def _commit_each(self, tokens: Iterable[int]) -> None:
        """Commit target ids one by one."""
        view, committed = self._view, self._committed
        for token in tokens:
            if data := self._bytes(self._target, token):
                view.append_token(token, self._as_said(data))
                committed.append(token)
            else:
                view.append_special(self._counterpart(self._alignment.target, token))
                committed.append(token)
                self._begin = len(committed)

    @property
    def _at_start(self) -> bool:
        """Whether nothing of the present text is committed."""
        return len(self._committed) == self._begin

    def _as_said(self, data: bytes) -> bytes:
        """The bytes of the next committed tokens, without the space that the target puts before a text."""
        return data.removeprefix(b" ") if self._target.leading_space and self._at_start else data

    def draft_context(self) -> DraftContext:
        """The committed text, but for an unfinished character, in canonical draft ids."""
        return self._view.context()

    def constraint(self) -> Constraint:
        """What a first draft token must begin with and may not merge with."""
        healed, pending = NO_IDS, self._view.pending
        if last := self._last():
            healed = self._beginning_with(last + pending)
        first = self._beginning_with(self._overlap(False)) if pending else None
        checked = not pending and isinstance(self._encoder, IncrementalBPE)
        return Constraint(healed, first, self._respects_boundary if checked else allow_any)

    def token_rows(self) -> "TokenRows | None":
        """What single draft tokens say at the present frontier; None for a target through text."""
        from spectool.runtime.translation.token_rows import TokenRows

        if isinstance(self._encoder, TailReencoder):
            return None
        return TokenRows(
            table=self._row_table(),
            token_bytes=self._draft.token_bytes,
            encoder=self._encoder,
            known=self._spelled_rows,
            committed=self._committed,
            begin=self._begin,
            overlaps=(self._overlap(False), self._overlap(True) if len(self._view.ids) > self._view.begin else b""),
            text_start=self._alignment.draft.spellings.text_start if self._at_start else None,
            check_first=not self._view.pending,
            check=True,
            is_settled=self.is_settled,
        )

    def _row_table(self) -> NDArray[np.int32]:
        """What each draft token says, as `spelling_table`."""
        from spectool.runtime.translation.token_rows import spelling_table

        inside, token_bytes = self._alignment.draft.spellings.inside, self._draft.token_bytes
        assert isinstance(inside, IdLists) and isinstance(token_bytes, TokenBytes)  # mapped
        return spelling_table(inside, self._alignment.draft.counterpart, token_bytes)

    def is_settled(self, tokens: Sequence[int]) -> bool:
        """Whether the last of proposed ids is unlikely to be absorbed by what follows. False for an empty list."""
        if not tokens:
            return False
        if not (data := self._bytes(self._target, last := tokens[-1])):
            return True
        if isinstance(encoder := self._encoder, IncrementalBPE) and len(tokens) == 1 and data.isspace():
            alone = encoder.boundary_holds(self._committed, tokens, self._begin)
            if not alone:  # `may_hold` has let it pass for the sake of what follows
                return False
        return not self._absorption.is_likely(last)

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        """The target ids of what draft ids say beyond the frontier.

        An unfinished character at the end is left out, and so is what follows a special token. A draft that
        contradicts the committed bytes says nothing.
        """
        runs = self._token_runs(drafts, healed)
        if runs is not None:
            return self._joined(runs)
        end = next((place for place, token in enumerate(drafts) if not self._bytes(self._draft, token)), len(drafts))
        said = b"".join(map(self._draft.token_bytes.__getitem__, drafts[:end]))
        overlap = self._overlap(healed, said)
        if not said.startswith(overlap):
            return []
        ids, complete = self._target_ids(said[len(overlap) :])
        return ids + self._counterpart(self._alignment.draft, drafts[end]) if complete and end < len(drafts) else ids

    def _token_runs(self, drafts: Sequence[int], healed: bool) -> list[TokenRun] | None:
        """The spellings of drafts one after the other; None where bytes have to be looked at."""
        encoder = self._encoder
        if isinstance(encoder, TailReencoder) or not self._view.begun or self._view.pending:
            return None
        runs: list[TokenRun] = []
        if healed and drafts:
            first = self._ids_after_overlap(drafts[0], len(self._last()))
            if not first:
                return None
            runs.append(encoder.token_run(first))
            drafts = drafts[1:]
        known = list(map(self._token_run, drafts))
        return None if None in known else [*runs, *known]  # type: ignore[list-item]  # none of them is None

    def _token_run(self, token: int) -> TokenRun | None:
        """The spelling of a draft token; None for one that splits a character, and for special ones."""
        assert isinstance(self._encoder, IncrementalBPE)
        spelling = self._alignment.draft.spellings.inside[token] if self._bytes(self._draft, token) else ()
        return self._encoder.token_run(spelling) if spelling else None

    def _joined(self, runs: list[TokenRun]) -> list[int]:
        """The canonical ids of several spellings after the committed ids."""
        assert isinstance(self._encoder, IncrementalBPE)
        # They are appended to the committed ids themselves, and taken off again even if that fails.
        ids, floor = self._committed, len(self._committed)
        try:
            self._encoder.extend(ids, runs, floor, self._begin)
            return ids[floor:]
        finally:
            del ids[floor:]

    def _target_ids(self, data: bytes) -> tuple[list[int], bool]:
        """The target ids of bytes after the committed ones, and whether they are those of all bytes."""
        encoder = self._encoder
        if not data:
            return [], True
        if self._at_start and self._draft.leading_space:
            data = data.removeprefix(b" ")
        if isinstance(encoder, TailReencoder):
            from spectool.runtime.translation.through_text import CONTEXT, ids_after

            recent = self._committed[max(self._begin, len(self._committed) - CONTEXT - 1) :]
            return ids_after(encoder, self._target, recent, self._view.pending, data)
        whole = whole_characters(data)
        text = b" " + data[:whole] if self._at_start and self._target.leading_space else data[:whole]
        floor = len(self._committed)
        start, tail = encoder.join_bytes(self._committed, text, floor, self._begin)
        return list(tail[floor - start :]), whole == len(data)

    def _bytes(self, tokenizer: Tokenizer, token: int) -> bytes:
        """The bytes of a token; none of special tokens and of ids that the tokenizer does not have."""
        return tokenizer.token_bytes[token] if token < tokenizer.size else b""

    def _counterpart(self, side: Side, token: int) -> list[int]:
        """The other side's counterpart of a special token of ``side``, if it has one."""
        counterpart = int(side.counterpart[token]) if token < len(side.counterpart) else NONE
        return [] if counterpart == NONE else [counterpart]

    def _last(self) -> bytes:
        """The bytes of the last draft token of the present text."""
        view = self._view
        return self._draft.token_bytes[view.ids[-1]] if len(view.ids) > view.begin else b""

    def _overlap(self, healed: bool, said: bytes = b" ") -> bytes:
        """The committed bytes that a draft, whose bytes are ``said``, begins with.

        Where the target has committed nothing but its own artificial space, the draft says that again if it begins
        with a space. It need not: a text that begins with an added token has none.
        """
        view = self._view
        space = not view.begun and self._draft.leading_space and not self._at_start and said.startswith(b" ")
        return (self._last() if healed else b"") + (b" " if space else b"") + view.pending

    def _respects_boundary(self, token: int, healed: bool) -> bool:
        """Whether a first draft token leaves the last committed target token as it is."""
        assert isinstance(self._encoder, IncrementalBPE)
        said = self._bytes(self._draft, token)
        if not said:
            return True
        overlap = len(self._overlap(healed, said))
        spelling = self._ids_after_overlap(token, overlap) if overlap else self._alignment.draft.spellings.inside[token]
        return self._encoder.may_hold(self._committed, spelling, self._begin)

    def _ids_after_overlap(self, token: int, overlap: int) -> tuple[int, ...]:
        """The target ids of a draft token's bytes after its first ``overlap``; none for a part of a character."""
        assert isinstance(self._encoder, IncrementalBPE)
        data = self._draft.token_bytes[token][overlap:]
        return self._encoder.spell(data) if len(data) == whole_characters(data) else ()

    def _beginning_with(self, prefix: bytes) -> NDArray[np.int32]:
        """The draft ids whose bytes begin with ``prefix`` and go on: one range of the prefix index."""
        index, bytes_of = self._alignment.prefix_index.data, self._draft.token_bytes.__getitem__
        low = bisect_right(index, prefix, key=bytes_of)
        high = bisect_left(index, prefix + b"\xff" * 8, low, key=bytes_of)
        return np.array(self._alignment.prefix_index[low:high])
