"""The byte-aligned translator: both tokenizers stay on the same bytes.

    committed text   | t1 | t2 | t3 |                 target ids: never changed, never encoded again
    draft's view     |  d1  | d2 | d3               canonical draft ids of the same bytes
                                    ^ frontier: the bytes committed, all that both agree on
    proposal                  d3' d4 d5               healed: d3' begins with d3's bytes and goes beyond
                                    | t4 | t5 | t6 |  target ids of what lies beyond the frontier

The three steps are those of docs/design.md: resync, healing and head absorption. A draft begins with the *overlap*:
bytes that the target has committed and the draft says again, those of a replaced token and those of an unfinished
character. What is translated are the bytes after it.
"""

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import NONE, Alignment, Side
from spectool.runtime.translation.absorption import Absorption
from spectool.tokenization.incremental.by_ids import IncrementalBPE, encoder_of
from spectool.tokenization.incremental.by_text import TailReencoder, whole_characters
from spectool.tokenization.incremental.translated_text import TranslatedText
from spectool.tokenization.tokenizer import Tokenizer

_AT_ONCE = 4096  # tokens of a prompt that are encoded at once: another thread waits for that long
_CONTEXT = 32  # committed tokens before the frontier that are encoded again for a target through text
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character
_NO_IDS: NDArray[np.int32] = np.zeros(0, dtype=np.int32)


class FirstTokenRule(NamedTuple):
    """What a draft model may propose next.

    A first token is *plain* when it follows the whole context, and *healed* when it replaces the last context token. It
    then begins with that token's bytes and goes beyond them.

    Attributes:
        extensions: Draft ids that a healed first token may be; empty where there is no healing. int32.
        first: Draft ids that a plain first token may be; None for any. int32.
        allows: ``allows(token, healed)`` says whether a first token respects the boundary that the target has just set.
            It is asked about the best candidates, in order, until one passes.
    """

    extensions: NDArray[np.int32] = _NO_IDS
    first: NDArray[np.int32] | None = None
    allows: Callable[[int, bool], bool] = lambda token, healed: True


class ByteAlignedTranslator:
    """Translates between two vocabularies without losing the target's boundaries.

    A text is what stands between two special tokens; these are mapped by name or role, and left out where the other
    side has no such token.
    """

    def __init__(self, alignment: Alignment, draft: Tokenizer, target: Tokenizer) -> None:
        """Translate with ``alignment``, which must have been built for these two tokenizers.

        Raises:
            FingerprintMismatch: It was built for others, or for the other direction.
        """
        self._draft, self._target = alignment.require(draft, target)
        self._alignment = alignment
        self._encoder = encoder_of(self._target, alignment.target.by_ids)
        self._draft_encoder = encoder_of(self._draft, alignment.draft.by_ids)
        self._absorption = Absorption(alignment, self._draft_encoder, self._encoder)
        self.start()

    def fork(self) -> "ByteAlignedTranslator":
        """A translator with the same tables for another text at the same time."""
        forked = copy.copy(self)
        forked._absorption = copy.copy(self._absorption)
        forked.start()
        return forked

    def start(self) -> None:
        """Begin a text; forget any earlier one."""
        self._text: list[int] = []  # committed target ids of the present text
        self._view = TranslatedText(self._draft_encoder, self._draft.leading_space)
        self._leading_space = self._target.leading_space  # whether the target puts one before the present text
        self._absorption.start()

    def commit(self, tokens: Sequence[int]) -> None:
        """Bring the draft's view up to committed target ids: some microseconds each, less for many at once."""
        self._absorption.count(tokens)
        for is_text, group in groupby(tokens, lambda token: bool(self._bytes(self._target, token))):
            run = list(group)
            if not is_text:
                for token in run:
                    self._view.append_special(self._counterpart(self._alignment.target, token))
                    if token != self._target.roles.bos:  # which may have been put before the text that was encoded
                        self._view.leading_space = self._draft.space_after_specials
                        self._leading_space = self._target.space_after_specials
                self._text = []
            for first in range(0, len(run) if is_text else 0, _AT_ONCE):
                part = run[first : first + _AT_ONCE]
                said = b"".join(map(self._target.token_bytes.__getitem__, part))
                self._view.append(said.removeprefix(b" ") if self._leading_space and not self._text else said)
                self._text += part

    def draft_context(self) -> Sequence[int]:
        """The committed text in canonical draft ids, but for an unfinished character: a list that `commit` changes."""
        return self._view.ids

    def unchanged(self) -> int:
        """Leading ids of the draft's context that have not changed since this was asked the last time."""
        view = self._view
        unchanged, view.unchanged = view.unchanged, len(view.ids)
        return unchanged

    def constraint(self) -> FirstTokenRule:
        """What a first draft token must begin with and may not merge with."""
        last, pending = self._last(), self._view.pending
        extensions = self._beginning_with(last + pending) if last else _NO_IDS
        if pending:
            return FirstTokenRule(extensions, self._beginning_with(self._overlap(False)))
        return FirstTokenRule(extensions, None, self._respects_boundary)

    def is_settled(self, tokens: Sequence[int]) -> bool:
        """Whether the last of proposed ids is unlikely to be absorbed by what follows. False for an empty list."""
        if not tokens:
            return False
        if not (data := self._bytes(self._target, tokens[-1])):
            return True
        encoder, alone = self._encoder, len(tokens) == 1 and data.isspace()
        if isinstance(encoder, IncrementalBPE) and alone and not encoder.boundary_holds(self._text, data):
            return False  # `may_hold` has let it pass for the sake of what follows
        return not self._absorption.is_likely(tokens[-1])

    def translate(self, drafts: Sequence[int], healed: bool = False) -> list[int]:
        """The target ids of what draft ids say beyond the frontier; none if they contradict the committed bytes.

        An unfinished character at the end is left out, and so is what follows a special token.
        """
        token_bytes = [self._bytes(self._draft, token) for token in drafts]
        end = token_bytes.index(b"") if b"" in token_bytes else len(drafts)
        said = b"".join(token_bytes[:end])
        overlap = self._overlap(healed, said)
        if not said.startswith(overlap):
            return []
        ids, complete = self._from_bytes(said[len(overlap) :])
        return ids + self._counterpart(self._alignment.draft, drafts[end]) if complete and end < len(drafts) else ids

    def probabilities(
        self, drafts: Sequence[int], healed: bool, likely: Sequence[float], tokens: Sequence[int]
    ) -> list[float]:
        """How probable the target ids of a draft are, each if those before it are right.

        ``likely`` has the log-probability that the draft is right up to each of its ids. Inside a draft id, it falls
        evenly from byte to byte. A special token counts as a byte.
        """
        token_bytes = [self._bytes(self._draft, token) for token in drafts]
        overlap = len(self._overlap(healed, b"".join(token_bytes)))
        said = np.maximum(0, np.cumsum([len(data) or 1 for data in token_bytes]) - overlap)
        ends = np.cumsum([len(self._bytes(self._target, token)) or 1 for token in tokens])
        steps = np.diff(np.interp(ends, [0, *said], [0.0, *likely]), prepend=0.0)
        return [float(each) for each in np.exp(steps)]

    def _from_bytes(self, data: bytes) -> tuple[list[int], bool]:
        """The target ids of bytes after the committed ones, and whether they are those of all bytes."""
        if not self._text and self._view.leading_space:
            data = data.removeprefix(b" ")
        if not data:
            return [], True
        if isinstance(self._encoder, TailReencoder):
            return self._through_text(self._encoder, data)
        whole = whole_characters(data)
        text = b" " + data[:whole] if self._leading_space and not self._text else data[:whole]
        _, ids = self._encoder.join(self._text, text, len(self._text), spaced=self._leading_space)
        return list(ids), whole == len(data)

    def _through_text(self, encoder: TailReencoder, data: bytes) -> tuple[list[int], bool]:
        """As `_from_bytes`, for a target whose ids are not joined on ids (Unigram, mostly): text is encoded again."""
        context, pending = self._text[-_CONTEXT:], self._view.pending
        # The oldest of these ids may begin inside a character.
        so_far = b"".join(map(self._target.token_bytes.__getitem__, context)).lstrip(_CONTINUATIONS)
        if self._leading_space and len(context) == len(self._text):
            so_far = so_far.removeprefix(b" ")
        text = data[: max(0, _valid(pending + data) - len(pending))]
        encoder = encoder if self._leading_space else encoder.unspaced
        ids = encoder.encode_after(so_far, text) if text else []
        if context and not so_far:  # only the artificial space is committed, which a text's ids begin with
            ids = ids[len(context) :] if ids[: len(context)] == context else []
        return ids, bool(ids) and text == data

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

        A lone artificial space of the target is one of them if the draft says it: before an added token it says none.
        """
        view = self._view
        space = not view.begun and view.leading_space and self._text and said.startswith(b" ")
        return (self._last() if healed else b"") + (b" " if space else b"") + view.pending

    def _respects_boundary(self, token: int, healed: bool) -> bool:
        """Whether a first draft token leaves the last committed target token as it is, as far as that can be told."""
        said, encoder = self._bytes(self._draft, token), self._encoder
        data = said[len(self._overlap(healed, said)) :]
        if isinstance(encoder, TailReencoder) or whole_characters(data) < len(data):
            return True
        return encoder.may_hold(self._text, data)

    def _beginning_with(self, prefix: bytes) -> NDArray[np.int32]:
        """The draft ids whose bytes begin with ``prefix`` and go on: one range of the prefix index."""
        index, bytes_of = self._alignment.prefix_index.data, self._draft.token_bytes.__getitem__
        low = bisect_right(index, prefix, key=bytes_of)
        high = bisect_left(index, prefix + b"\xff" * 8, low, key=bytes_of)
        return np.array(self._alignment.prefix_index[low:high])


def _valid(data: bytes) -> int:
    """Number of bytes before the first that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)
