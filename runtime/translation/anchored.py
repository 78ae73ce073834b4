"""The anchored translator: both tokenizers stay on the same bytes, on ids, by table and repair.

    committed text   | t1 | t2 | t3 |                 target ids: never changed, never encoded again
    draft's view     |  d1  | d2 | d3               canonical draft ids of the same bytes
                                    ^ frontier: the bytes committed, all that both agree on
    proposal                  d3' d4 d5               healed: d3' begins with d3's bytes and goes beyond
                                    | t4 | t5 | t6 |  target ids of what lies beyond the frontier

Three steps, each of which can be switched off for comparison (docs/design.md): canonical resync, healing,
head absorption.
"""

import codecs
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE, Alignment, IdLists
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.translation.protocol import NO_IDS, Allows, Constraint, DraftContext, allow_any
from spectool.tokenization.incremental.by_ids import CanonicalIds, TokenRun
from spectool.tokenization.incremental.by_text import CanonicalText, Change, recent, whole_characters
from spectool.tokenization.surfaces import Surfaces
from spectool.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from spectool.runtime.translation.spelling import Speller


_MANY = 64  # tokens, or bytes of one, from which on text is encoded instead of joined
_TOGETHER = 4096  # tokens that are encoded at once, at most


class _Place(NamedTuple):
    """Where the translator stands; replaced, never changed."""

    draft_begin: int = 0  # draft ids before the present text
    target_begin: int = 0  # committed ids before it
    begun: bool = False  # the draft's view of it has begun
    pending: bytes = b""  # bytes of an unfinished character
    text: bytes = b""  # the text's last words but for the pending bytes; kept only for a draft without the lemma


class AnchoredTranslator:
    """Translates between two vocabularies without losing the target's boundaries.

    A text is what stands between two special tokens; specials are mapped by role and left out
    where the other side has none.
    """

    name = "anchored"

    def __init__(
        self,
        alignment: Alignment,
        draft: Tokenizer,
        target: Tokenizer,
        *,
        resync: bool = True,
        heal: bool = True,
        head: bool = True,
    ) -> None:
        """Translate with ``alignment``, which must have been built for these two tokenizers.

        Args:
            alignment: The pair's alignment.
            draft: The draft's tokenizer.
            target: The target's tokenizer.
            resync: Keep the draft's view canonical; off, committed tokens are spelled one by one.
            heal: Let the draft go on from one token before the frontier.
            head: Pass over first draft tokens that contradict the boundary just set by the target.

        Raises:
            FingerprintMismatch: It was built for others, or for the other direction.
        """
        draft, target = alignment.require(draft, target)
        self._draft, self._target = draft, target
        self._resync, self._heal, self._head = resync, heal, head
        self._draft_engine = alignment.draft.engine(draft)
        self._target_engine = alignment.target.engine(target)
        self._proposed, self._to_target = alignment.draft.spellings, alignment.draft.counterpart
        self._spelled, self._to_draft = alignment.target.spellings, alignment.target.counterpart
        self._prefix_index = alignment.prefix_index
        # Spellings met so far, of tokens of whole characters: in target ids, in draft ids.
        self._plain: dict[int, TokenRun] = {}
        self._groups: dict[tuple[int, ...], TokenRun | None] = {}
        self._back: dict[int, TokenRun] = {}
        self._surplus: dict[tuple[int, int], tuple[int, ...]] = {}
        self._ranges: dict[bytes, NDArray[np.int32]] = {}
        self._speller: Callable[..., Speller] | None = None
        self.start()

    @property
    def string_calls(self) -> int:
        """How often text was encoded since ``start``."""
        return self._draft_engine.string_calls + self._target_engine.string_calls - self._calls_before

    def start(self) -> None:
        """Begin a text; forget any earlier one."""
        self._calls_before = self._draft_engine.string_calls + self._target_engine.string_calls
        self._committed: list[int] = []
        self._ids: list[int] = []
        self._kept = 0
        self._place = _Place()

    def commit(self, tokens: Sequence[int]) -> None:
        """Take note of committed target ids and bring the draft's view up to them.

        Each costs some microseconds. Those of a prompt are encoded together, `_TOGETHER` at a time: what a thread waits
        for, and as often as it can be interrupted.
        """
        if len(tokens) < _MANY or not self._resync:
            self._commit_each(tokens)
            return
        for spells, group in groupby(tokens, self._spells):
            run = list(group)
            commit = self._commit_together if spells and len(run) >= _MANY else self._commit_each
            for first in range(0, len(run), _TOGETHER):
                commit(run[first : first + _TOGETHER])

    def _spells(self, token: int) -> bool:
        """Return whether a target id has bytes."""
        return token < self._target.size and bool(self._target.surfaces[token])

    def _commit_each(self, tokens: Sequence[int]) -> None:
        """Commit target ids one by one."""
        engine, ids = self._draft_engine, self._ids
        for token in tokens:
            place = self._place
            run = self._back.get(token) if place.begun and not place.pending else None
            if run is not None and isinstance(engine, CanonicalIds):
                start, tail = engine.append(ids, run, 0, place.draft_begin)
            else:
                (start, tail), self._place = self._commit_with_care(token)
            self._committed.append(token)
            self._change(start, tail)

    def _commit_together(self, tokens: Sequence[int]) -> None:
        """Commit target ids that have bytes; one by one where these are no text."""
        data = self._place.pending + self._unstarted(b"".join(map(self._target.surfaces.__getitem__, tokens)))
        try:
            codecs.utf_8_decode(data)
        except UnicodeDecodeError:
            self._commit_each(tokens)
            return
        change, self._place = self._append(data)
        self._committed += tokens
        self._change(*change)

    def _append(self, data: bytes) -> tuple[Change, _Place]:
        """Return what follows from bytes behind the draft's view, pending ones among them."""
        place, ids, engine = self._place, self._ids, self._draft_engine
        whole = whole_characters(data)
        after = place._replace(begun=place.begun or whole > 0, pending=data[whole:])
        if not whole:
            return (len(ids), []), after
        data = data[:whole]
        if isinstance(engine, CanonicalText):
            change = engine.join(ids, place.text, data, place.draft_begin)
            return change, after._replace(text=recent(place.text + data))
        prefix = b" " if self._draft.edges.leading_space and not place.begun else b""
        append = engine.join_bytes if len(data) < _MANY else engine.join_text
        return append(ids, prefix + data, begin=place.draft_begin), after

    def _unstarted(self, data: bytes) -> bytes:
        """Return the bytes of the next tokens without the artificial space, where they begin a text."""
        first = len(self._committed) == self._place.target_begin
        return data.removeprefix(b" ") if first and self._target.edges.leading_space else data

    def _change(self, start: int, tail: Sequence[int]) -> None:
        """Let the draft's view go on with ``tail`` from ``start`` on."""
        if start < self._kept:
            self._kept = min(self._kept, start + accepted_length(self._ids[start:], tail))
        self._ids[start:] = tail

    def draft_context(self) -> DraftContext:
        """Return the committed text, but for an unfinished character, in canonical draft ids."""
        kept, self._kept = self._kept, len(self._ids)
        return DraftContext(self._ids, kept)

    def constraint(self) -> Constraint:
        """Return what a first draft token must begin with and may not merge with."""
        extensions = NO_IDS
        last = self._draft.surfaces[self._ids[-1]] if len(self._ids) > self._place.draft_begin else b""
        if self._heal and last:
            extensions = self._beginning_with(last + self._place.pending)
        first = self._beginning_with(self._unseen()) if self._place.pending else None
        allows: Allows = allow_any
        if self._head and not self._place.pending and not isinstance(self._target_engine, CanonicalText):
            allows = self._respects_boundary
        return Constraint(extensions, first, None, allows)

    def speller(self) -> "Speller | None":
        """Return what spells single draft tokens at the present frontier; None for a target without the lemma."""
        if isinstance(self._target_engine, CanonicalText):
            return None
        if self._speller is None:
            from spectool.runtime.translation.spelling import Speller, spelling_table

            inside, surfaces = self._proposed.inside, self._draft.surfaces
            assert isinstance(inside, IdLists) and isinstance(surfaces, Surfaces)  # mapped
            table = spelling_table(inside, self._to_target, surfaces)
            self._speller = partial(Speller, table, surfaces, self._target_engine, {})
        place = self._place
        start = self._proposed.text_start if len(self._committed) == place.target_begin else None
        first = self._head and not place.pending
        behind = self._behind(False), self._behind(True) if len(self._ids) > place.draft_begin else b""
        return self._speller(self._committed, place.target_begin, behind, start, first, self._head)

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        """Return the target ids of what draft ids say beyond the frontier."""
        engine, place = self._target_engine, self._place
        if isinstance(engine, CanonicalText):
            return self._through_text(engine, drafts, healed)
        # They are appended to the committed ids themselves, and taken off again whatever happens.
        ids, floor = self._committed, len(self._committed)
        runs = self._token_runs(engine, drafts, healed) if place.begun and not place.pending else None
        try:
            if runs is None:
                behind = self._behind(healed, self._surface(drafts[0]) if drafts else b"")
                self._translate_with_care(engine, ids, drafts, behind)
            else:
                engine.extend(ids, runs, floor, place.target_begin)
            return ids[floor:]
        finally:
            del ids[floor:]

    def _token_runs(self, engine: CanonicalIds, drafts: Sequence[int], healed: bool) -> list[TokenRun] | None:
        """Return the spellings of drafts one after the other, tokens that split a character taken together.

        Returns:
            None where drafts have to be looked at with care. An unfinished character at the end is left out.
        """
        runs: list[TokenRun] = []
        if healed and drafts:
            first = self._beyond(drafts[0], len(self._draft.surfaces[self._ids[-1]]))
            if not first:
                return None
            runs.append(engine.token_run(first))
            drafts = drafts[1:]
        known = list(map(self._plain.get, drafts))
        if all(known):
            return [*runs, *known]  # type: ignore[list-item]  # none of them is None
        group: tuple[int, ...] = ()
        for token, run in zip(drafts, known, strict=True):
            if run is None or group:
                group += (token,)
                run = self._groups[group] if group in self._groups else self._spell_group(engine, group)
                if run is None:
                    if not self._surface(token):
                        return None
                    continue
                group = ()
            runs.append(run)
        if group:  # an unfinished character; what stands before it counts
            data = b"".join(map(self._surface, group))
            if whole := whole_characters(data):
                runs.append(engine.token_run(engine.spell(data[:whole])))
        return runs

    def _spell_group(self, engine: CanonicalIds, group: tuple[int, ...]) -> TokenRun | None:
        """Return the spelling of draft tokens that together are whole characters, None for others."""
        data = b"".join(map(self._surface, group))
        whole = all(map(self._surface, group)) and whole_characters(data) == len(data)
        found = None
        if whole:
            ids = self._proposed.inside[group[0]] if len(group) == 1 else ()
            found = engine.token_run(ids or engine.spell(data))
        if found and len(group) == 1:
            self._plain[group[0]] = found
        else:
            self._groups[group] = found
        return found

    def _translate_with_care(self, engine: CanonicalIds, ids: list[int], drafts: Sequence[int], behind: bytes) -> None:
        """Append to ``ids`` what drafts say behind ``behind``, which they begin with and the target has committed.

        Among them are special tokens, parts of characters, or tokens that were not met before.
        """
        floor, begin = len(ids), self._place.target_begin
        carried = b""  # an unfinished character
        for place, token in enumerate(drafts):
            surface = self._surface(token)
            if not surface:
                ids += [] if carried else self._counterpart(token)
                break
            if behind.startswith(surface):
                behind = behind[len(surface) :]
                continue
            if not surface.startswith(behind):  # says something else than what is committed
                break
            if behind:
                spelling = self._beyond(token, len(behind))
                surface, behind = surface[len(behind) :], b""
            elif place == 0 and floor == begin:
                spelling = self._proposed.text_start[token]
                surface = self._at_start(surface)
            else:
                spelling = self._proposed.inside[token]
            if spelling and not carried:
                start, tail = engine.join(ids, spelling, floor, begin)
            else:
                carried += surface
                whole = whole_characters(carried)
                if not whole:
                    continue
                start, tail = engine.join_bytes(ids, carried[:whole], floor, begin)
                carried = carried[whole:]
            ids[start:] = tail

    def _through_text(self, engine: CanonicalText, drafts: Sequence[int], healed: bool) -> list[int]:
        """Translate for a target without the lemma: encode the text beyond the frontier."""
        from spectool.runtime.translation.through_text import CONTEXT, Frontier, beyond

        end = next((place for place, token in enumerate(drafts) if not self._surface(token)), len(drafts))
        place, said = self._place, b"".join(map(self._surface, drafts[:end]))
        recent = self._committed[max(place.target_begin, len(self._committed) - CONTEXT - 1) :]
        frontier = Frontier(self._draft, self._target, recent, place.pending)
        ids, whole = beyond(frontier, engine, said, self._behind(healed, said))
        return ids + self._counterpart(drafts[end]) if whole and end < len(drafts) else ids

    def _commit_with_care(self, token: int) -> tuple[Change, _Place]:
        """Return what committing a special token, the first of a text, a part of a character, or a new one changes."""
        place, ids = self._place, self._ids
        if not self._spells(token):
            counterpart = int(self._to_draft[token]) if token < self._target.size else NONE
            known = [] if counterpart == NONE else [counterpart]
            return (len(ids), known), _Place(len(ids) + len(known), len(self._committed) + 1)
        first = len(self._committed) == place.target_begin
        data = place.pending + self._unstarted(self._target.surfaces[token])
        engine = self._draft_engine
        if isinstance(engine, CanonicalIds) and data and not place.pending and (place.begun or first):
            spelling = (self._spelled.inside if place.begun else self._spelled.text_start)[token]
            if spelling and place.begun and self._resync:
                self._back[token] = engine.token_run(spelling)
            if spelling:  # only whole characters have one
                change = engine.join(ids, spelling, begin=place.draft_begin) if self._resync else (len(ids), spelling)
                return change, place._replace(begun=True)
        return self._append(data)

    def _at_start(self, surface: bytes) -> bytes:
        """Exchange the artificial space that the draft puts before a text for the target's."""
        if self._draft.edges.leading_space:
            surface = surface.removeprefix(b" ")
        return b" " + surface if self._target.edges.leading_space else surface

    def _surface(self, token: int) -> bytes:
        """Return the bytes of a draft token; none for special ones and for those beyond the tokenizer."""
        return self._draft.surfaces[token] if token < self._draft.size else b""

    def _counterpart(self, token: int) -> list[int]:
        """Return the target's counterpart of a special draft token, if it has one."""
        counterpart = int(self._to_target[token]) if token < self._draft.size else NONE
        return [] if counterpart == NONE else [counterpart]

    def _behind(self, healed: bool, said: bytes = b" ") -> bytes:
        """Return the bytes that a draft begins with and the target has committed already; ``said`` is the draft's."""
        last = self._draft.surfaces[self._ids[-1]] if healed else b""
        return last + self._unseen(said)

    def _unseen(self, said: bytes = b" ") -> bytes:
        """Return committed bytes that the draft has not seen: an unfinished character, and an artificial space.

        A draft need not write such a space: a text that begins with an added token has none.
        """
        place = self._place
        if place.begun or not self._draft.edges.leading_space or len(self._committed) == place.target_begin:
            return place.pending
        return (b" " if said.startswith(b" ") else b"") + place.pending

    def _respects_boundary(self, token: int, healed: bool) -> bool:
        """Return whether a first draft token leaves the last committed target token as it is."""
        assert not isinstance(self._target_engine, CanonicalText)
        if not self._surface(token):
            return True
        overlap = len(self._behind(healed, self._surface(token)))
        spelling = self._beyond(token, overlap) if overlap else self._proposed.inside[token]
        return self._target_engine.boundary_holds(self._committed, spelling, self._place.target_begin)

    def _beyond(self, token: int, overlap: int) -> tuple[int, ...]:
        """Return the target ids of a draft token's bytes from ``overlap`` on; none for a part of a character."""
        found = self._surplus.get((token, overlap))
        if found is None:
            assert not isinstance(self._target_engine, CanonicalText)
            data = self._draft.surfaces[token][overlap:]
            found = self._target_engine.spell(data) if len(data) == whole_characters(data) else ()
            self._surplus[token, overlap] = found
        return found

    def _beginning_with(self, prefix: bytes) -> NDArray[np.int32]:
        """Return the draft ids whose bytes begin with ``prefix`` and go on: one range of the prefix index."""
        found = self._ranges.get(prefix)
        if found is None:
            index, surface = self._prefix_index.data, self._draft.surfaces.__getitem__
            low = bisect_right(index, prefix, key=surface)
            high = bisect_left(index, prefix + b"\xff" * 8, low, key=surface)
            found = self._ranges[prefix] = np.array(self._prefix_index[low:high])
        return found
