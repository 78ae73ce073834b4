"""Compares joining and translating with whole strings, which the tokenizers themselves encode; for `conformance.py`.

A text is committed token by token. At each place two things must hold. The draft's view equals what the draft's
tokenizer encodes for the text so far, and the translation of a right draft of 1 to 8 tokens equals what the target's
tokenizer encodes after the place. Two cases are counted separately: places that are no boundary once the drafted text
is added, and committed ids made by splitting tokens at random. There, committed ids must stay and the bytes must agree.
"""

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from tqdm import tqdm

from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator, whole_characters
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.tokenizer import Tokenizer


class Reference:
    """Whole-string encoding by one tokenizer, special tokens not read out of text.

    Attributes:
        tokenizer: The tokenizer.
        through_text: Whether its ids are joined through text, which may come out changed.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wrap ``tokenizer``."""
        self.tokenizer = tokenizer
        self.through_text = bool(reasons_for_text(tokenizer))
        self._backend = tokenizer.backend
        self._backend.encode_special_tokens = True

    @cached_property
    def by_bytes(self) -> dict[bytes, int]:
        """The lowest id with the same bytes."""
        return {raw: i for i, raw in reversed(list(enumerate(self.tokenizer.token_bytes))) if raw}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode whole texts."""
        return [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def spelled(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids from the beginning of a text."""
        joined = b"".join(self.tokenizer.token_bytes[i] for i in ids)
        return joined.removeprefix(b" ") if self.tokenizer.edges.leading_space else joined

    def keeps(self, ids: Sequence[int], data: bytes) -> bool:
        """Whether ``ids`` spell the text: its bytes, and no unknown token."""
        return self.tokenizer.roles.unk not in ids and self.spelled(ids) == data

    def ends(self, ids: Sequence[int]) -> list[int]:
        """The byte of the text at which each id ends."""
        joined = b"".join(self.tokenizer.token_bytes[i] for i in ids)
        shift = int(self.tokenizer.edges.leading_space and joined.startswith(b" "))
        return [end - shift for end in accumulate(len(self.tokenizer.token_bytes[i]) for i in ids)]


def check_document(
    text: str,
    draft: Reference,
    target: Reference,
    translator: ByteAlignedTranslator,
    rng: random.Random,
    counts: Counter[str],
) -> None:
    """Check every frontier of one document."""
    data = text.encode()
    (ids,), (draft_ids,) = target.encode([text]), draft.encode([text])
    if not target.keeps(ids, data):
        # A target that normalizes never writes such text, so use what it would write.
        data = target.spelled(ids)
        text = data.decode("utf-8", "ignore")
        (ids,), (draft_ids,) = target.encode([text]), draft.encode([text])
        if text.encode() != data or not target.keeps(ids, data):
            counts["texts left out"] += 1
            return
    if not draft_ids:
        counts["texts left out"] += 1
        return
    lossy_draft = not draft.keeps(draft_ids, data)
    counts["texts whose draft view is lossy"] += lossy_draft
    ends, draft_ends = target.ends(ids), draft.ends(draft_ids)
    committed = [0, *ends[:-1]]
    cases = []
    for place, start in enumerate(committed):
        upto = bisect_right(draft_ends, start)
        end = draft_ends[min(len(draft_ends), upto + rng.randint(1, 8)) - 1]
        cases.append((place, start, max(whole_characters(data[:end]), start)))
    texts = [data[:end].decode("utf-8", "ignore") for _, _, end in cases]
    wholes = target.encode(texts)
    views = draft.encode([data[: whole_characters(data[:start])].decode() for _, start, _ in cases])
    translator.start()
    for (place, start, end), whole, view, before in zip(cases, wholes, views, [None, *ids], strict=False):
        if before is not None:
            translator.commit([before])
        context = list(translator.draft_context().ids)
        known = data[: whole_characters(data[:start])]
        if draft.spelled(view) == known or draft.through_text:
            counts["views"] += 1
            if context != view:
                counts["view mismatches"] += 1
                _show("view", draft.tokenizer, context, view)
        if end <= start or lossy_draft:
            continue
        drafts, healed = _right_draft(draft, context, data, start, len(known), draft_ids, draft_ends, end)
        if drafts is None:
            counts["no right draft in whole tokens"] += 1
            continue
        calls = translator.string_calls
        found = translator.translate(drafts, healed)
        counts["string-free"] += translator.string_calls == calls
        counts["frontiers"] += 1
        if (
            b"".join(target.tokenizer.token_bytes[i] for i in found).removeprefix(
                b" " if place == 0 and target.tokenizer.edges.leading_space else b""
            )
            != data[start:end]
        ):
            if target.through_text:
                counts["not spelled by the target"] += 1
            else:
                counts["byte mismatches"] += 1
                _show("bytes", target.tokenizer, found, [])
        if whole[:place] != ids[:place]:
            counts["moved frontiers"] += 1
        elif not target.keeps(whole, data[:end]):  # it never writes the text so far, such as a blank that it strips
            counts["prefixes not kept"] += 1
        elif found != whole[place:]:
            counts["mismatches"] += 1
            _show("ids", target.tokenizer, found, whole[place:])


def _right_draft(
    draft: Reference,
    context: list[int],
    data: bytes,
    start: int,
    known: int,
    ids: list[int],
    ends: list[int],
    end: int,
) -> tuple[list[int] | None, bool]:
    """Draft ids that spell ``data[known:end]`` after ``context``, and whether the first is healed.

    ``known`` is where the last whole character before the frontier ``start`` ends.
    """
    first = bisect_right(ends, known) if known else 0
    last = bisect_right(ends, end - 1)
    if last < len(ends) and ends[last] == end:
        start_of_text = -int(draft.tokenizer.edges.leading_space)
        begin = ends[first - 1] if first else start_of_text
        if max(begin, 0) == known:
            return ids[first : last + 1], False
        seen = draft.ends(context)
        if context and seen[-1] == known and (seen[-2] if len(seen) > 1 else start_of_text) == begin:
            return ids[first : last + 1], True
    if draft.tokenizer.edges.leading_space or known < start or start == 0:
        return None, False
    spelled = draft.encode([data[start:end].decode()])[0]
    return (spelled, False) if draft.spelled(spelled) == data[start:end] else (None, False)


def check_split_tokens(
    text: str,
    draft: Reference,
    target: Reference,
    translator: ByteAlignedTranslator,
    rng: random.Random,
    counts: Counter[str],
) -> None:
    """Commit a text whose tokens are split at random; bytes must agree, and the view must be the tokenizer's own."""
    data = text.encode()
    (ids,) = target.encode([text])
    token_bytes = target.tokenizer.token_bytes
    if not (target.keeps(ids, data) and draft.keeps(draft.encode([text])[0], data)):
        return
    by_bytes = target.by_bytes
    committed: list[int] = []
    for token in ids:
        raw = token_bytes[token]
        cut = rng.randrange(1, len(raw)) if len(raw) > 1 and rng.random() < 0.3 else 0
        halves = [by_bytes.get(raw[:cut]), by_bytes.get(raw[cut:])] if cut else [None]
        committed += [token] if None in halves else [half for half in halves if half is not None]
    if target.spelled(committed) != data:
        return
    translator.start()
    done = b""
    views, known = [], []
    for token in committed:
        translator.commit([token])
        done = target.spelled([*committed[: len(views) + 1]])
        views.append(list(translator.draft_context().ids))
        known.append(done[: whole_characters(done)].decode("utf-8", "replace"))
    for view, expected, text in zip(views, draft.encode(known), known, strict=True):
        counts["split views"] += 1
        if view != expected and (draft.through_text or draft.spelled(expected) == text.encode()):
            counts["split view mismatches"] += 1
            _show("split", draft.tokenizer, view, expected)


_shown = Counter[str]()


def _show(kind: str, tokenizer: Tokenizer, found: Sequence[int], expected: Sequence[int]) -> None:
    _shown[kind + tokenizer.name] += 1
    if _shown[kind + tokenizer.name] <= 3:
        at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), 0)
        pieces = [[tokenizer.token_bytes[i] for i in ids[max(0, at - 2) : at + 4]] for ids in (found, expected)]
        tqdm.write(f"{kind} {tokenizer.name}: found {pieces[0]}, expected {pieces[1]}")
