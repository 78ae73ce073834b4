"""A growing text in the ids of another tokenizer, canonical after every token.

Generation keeps the committed text in draft ids with it, and `spectool align` replays text with it.
"""

from collections.abc import Sequence

from spectool.tokenization.incremental.by_ids import IncrementalEncoder
from spectool.tokenization.incremental.by_text import TailReencoder, recent, whole_characters


class TranslatedText:
    """A text of a source tokenizer in ids of another one.

    A text is what stands between two special tokens. The bytes of an unfinished character are pending: they are left
    out until the character is complete.

    Attributes:
        encoder: Joins the ids.
        ids: Ids of all texts so far, with the counterparts of the special tokens between them.
        unchanged: Leading ids that have stayed since this was set.
        begin: Number of ids before the present text.
        begun: Whether there are whole characters in the present text.
        pending: Bytes of an unfinished character at its end.
        leading_space: Whether the other tokenizer puts a space before the present text.
    """

    def __init__(self, encoder: IncrementalEncoder, leading_space: bool) -> None:
        self.encoder, self.leading_space = encoder, leading_space
        self.ids: list[int] = []
        self.unchanged = 0
        self._begin_text()

    def _begin_text(self) -> None:
        self.begin = len(self.ids)
        self.begun = False
        self.pending = b""
        self._recent = b""  # the last words but for the pending bytes; kept only where text is encoded

    def append_special(self, counterpart: Sequence[int]) -> None:
        """End the text with the counterpart of a special token, where there is one."""
        self.ids += counterpart
        self._begin_text()

    def append(self, data: bytes) -> list[int]:
        """Append bytes, which need not be whole characters, and return the ids that this took away from the end."""
        data = self.pending + data
        whole = whole_characters(data)
        data, self.pending = data[:whole], data[whole:]
        if not data:
            return []
        if isinstance(self.encoder, TailReencoder):
            encoder = self.encoder if self.leading_space else self.encoder.unspaced
            start, tail = encoder.join(self.ids, self._recent, data, self.begin)
            self._recent = recent(self._recent + data)
        else:
            space = b" " if self.leading_space and not self.begun else b""
            start, tail = self.encoder.join(self.ids, space + data, begin=self.begin, spaced=self.leading_space)
        self.begun = True
        removed, self.unchanged = self.ids[start:], min(self.unchanged, start)
        self.ids[start:] = tail
        return removed
