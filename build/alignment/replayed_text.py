"""Real text spelled token by token in the other vocabulary: merge sites, absorption, and a proof.

Each document is encoded by one tokenizer; its tokens are translated by table and joined, repairs
included; what comes out must equal what the other tokenizer encodes. On the way are counted the
boundaries that would have been wrong without repair, and what following text does to boundaries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from spectool.artifacts.canonical.by_ids import CanonicalIds
from spectool.artifacts.canonical.by_text import CanonicalText
from spectool.artifacts.formats.alignment import Absorption, Spellings
from spectool.artifacts.tokenizer.tokenizer import Tokenizer

WINDOW = 4  # source tokens that count as one cycle for the string-free rate
_CONTEXT = 64  # tokens before a frontier that can matter to it
Engine = CanonicalIds | CanonicalText


@dataclass
class Replayed:
    """Counts of one direction.

    Attributes:
        texts: Documents replayed.
        lossy_texts: Documents left out, since one of the two tokenizers does not keep their bytes.
        different_texts: Documents whose ids differ from the other tokenizer's own encoding.
        tokens: Tokens of the source.
        several: Those spelled by several ids of the other side.
        merge_sites: Boundaries between two of them where the spellings side by side are not canonical.
        windows: Runs of `WINDOW` tokens.
        windows_with_strings: Those in which text had to be encoded or decoded.
    """

    texts: int = 0
    lossy_texts: int = 0
    different_texts: int = 0
    tokens: int = 0
    several: int = 0
    merge_sites: int = 0
    windows: int = 0
    windows_with_strings: int = 0

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the counts and their ratios as JSON values; None where there was nothing to count."""
        return {
            **{name: getattr(self, name) for name in ("texts", "lossy_texts", "different_texts", "tokens")},
            "several": share(self.several, self.tokens),
            "merge_sites": share(self.merge_sites, self.tokens - self.texts),
            "string_free": share(self.windows - self.windows_with_strings, self.windows),
        }


@dataclass
class _Text:
    """A document in one vocabulary: ids and the byte, in the real text, at which each ends."""

    ids: list[int]
    ends: list[int] = field(default_factory=list)


class Reader:
    """Encodes documents as one tokenizer spells them, without reading special tokens out of text."""

    def __init__(self, tokenizer: Tokenizer, lemma: bool) -> None:
        """Prepare for ``tokenizer``; with the lemma, normalizers are left out, so that bytes are kept."""
        self._surfaces = tokenizer.surfaces
        self._leading = tokenizer.edges.leading_space
        self._prefix = " " * (self._leading and lemma)
        self._backend = tokenizer.text_backend if lemma else tokenizer.backend

    def read(self, texts: Sequence[str]) -> list[_Text | None]:
        """Encode documents; None where the ids do not spell the text's bytes."""
        encoded = self._backend.encode_batch_fast([self._prefix + text for text in texts], add_special_tokens=False)
        return [self._located(encoding.ids, text.encode()) for encoding, text in zip(encoded, texts, strict=True)]

    def _located(self, ids: list[int], data: bytes) -> _Text | None:
        joined = b"".join(map(self._surfaces.__getitem__, ids))
        shift = 1 if self._leading and joined.startswith(b" ") else 0
        if joined[shift:] != data:
            return None
        ends = np.cumsum([len(self._surfaces[token]) for token in ids], dtype=np.int64) - shift
        return _Text(ids, ends.tolist())


def replay_text(
    source: Tokenizer,
    other: Tokenizer,
    engine: Engine,
    spellings: Spellings,
    documents: Iterable[tuple[bytes, _Text | None, _Text | None]],
    absorption: Absorption | None = None,
) -> Replayed:
    """Spell documents of ``source`` in ids of ``other``.

    Args:
        source: Whose tokens are translated.
        other: Into whose vocabulary.
        engine: Joins ids of ``other``.
        spellings: The translation table.
        documents: Bytes, and the document as ``source`` and as ``other`` encode it (`Reader`).
        absorption: Counts by id of ``other`` to add to.
    """
    counts = Replayed()
    prefix = b" " * other.edges.leading_space
    for data, mine, theirs in documents:
        if mine is None or theirs is None:
            counts.lossy_texts += 1
            continue
        counts.texts += 1
        ids: list[int] = []
        done, started = 0, False
        calls = [engine.string_calls]
        tokens_at = dict(zip(theirs.ends, theirs.ids, strict=True))
        for token, end in zip(mine.ids, mine.ends, strict=True):
            piece = (spellings.inside if started else spellings.text_start)[token]
            fresh = data[done:end]
            counts.tokens += 1
            counts.several += len(piece) > 1
            if not is_whole(fresh):  # wait for the rest of the character
                calls.append(engine.string_calls)
                continue
            if isinstance(engine, CanonicalText):
                start, tail = engine.join(ids, data[:done], fresh)
            elif done == end or is_whole(source.surfaces[token]):
                start, tail = engine.join(ids, piece)
            else:
                start, tail = engine.join_bytes(ids, fresh if started else prefix + fresh)
            counts.merge_sites += start < len(ids) or tuple(tail) != piece
            ids[start:] = tail
            done, started = end, True
            calls.append(engine.string_calls)
            if absorption is not None and ids:
                last = ids[-1]
                absorption.ends[last] += 1
                if tokens_at.get(end) != last and end < len(data):
                    absorption.absorbed[last] += 1
                    absorption.next_bytes[last, data[end] >> 3] |= 1 << (data[end] & 7)
        counts.different_texts += ids != theirs.ids
        windows = range(0, len(calls) - 1, WINDOW)
        counts.windows += len(windows)
        counts.windows_with_strings += sum(calls[min(i + WINDOW, len(calls) - 1)] > calls[i] for i in windows)
        if absorption is not None and isinstance(engine, CanonicalIds):
            _count_refusals(engine, absorption, data, mine, theirs)
    return counts


def _count_refusals(engine: CanonicalIds, absorption: Absorption, data: bytes, mine: _Text, theirs: _Text) -> None:
    """Count frontiers after which the right draft, cut after one token, would seem to be absorbed."""
    upcoming = 0
    for count, end in enumerate(theirs.ends[:-1], 1):
        while mine.ends[upcoming] <= end:
            upcoming += 1
        surplus = data[end : mine.ends[upcoming]]
        if is_whole(surplus):
            last = theirs.ids[count - 1]
            absorption.frontiers[last] += 1
            context = theirs.ids[max(0, count - _CONTEXT) : count]
            absorption.refused[last] += not engine.stays(context, engine.spell(surplus))


def share(part: int, whole: int) -> float | None:
    """Return a ratio to six places, None of nothing."""
    return round(part / whole, 6) if whole > 0 else None


def is_whole(data: bytes) -> bool:
    """Tell whether bytes are whole characters."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
