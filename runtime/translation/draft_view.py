"""The draft's view of the committed text: the same bytes in canonical draft ids, kept up to date with every commit."""

from collections.abc import Sequence

from spectool.artifacts.alignment import Spellings
from spectool.runtime.translation.protocol import DraftContext
from spectool.tokenization.incremental.by_ids import IncrementalBPE, TokenRun
from spectool.tokenization.incremental.by_text import TailReencoder, recent, whole_characters
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.incremental.encoder import IncrementalEncoder


class DraftView:
    """The committed text in draft ids.

    A text is what stands between two special tokens. Bytes of an unfinished character are pending: they are left out
    of the view until the character is complete.

    Attributes:
        encoder: Joins draft ids.
        ids: Draft ids of all texts so far, with the counterparts of the special tokens between them.
        begin: Number of ids before the present text.
        begun: Whether there are whole characters in the present text.
        pending: Bytes of an unfinished character at its end.
    """

    def __init__(self, encoder: IncrementalEncoder, spellings: Spellings, leading_space: bool) -> None:
        """Join ids with ``encoder``.

        Args:
            encoder: Of the draft's tokenizer.
            spellings: Target ids in draft ids.
            leading_space: Whether the draft's tokenizer puts a space before a text.
        """
        self.encoder, self._spellings = encoder, spellings
        self._leading_space = leading_space
        self._runs: dict[int, TokenRun | None] = {}  # spellings of the target ids met so far
        self.start()

    def start(self) -> None:
        """Forget everything."""
        self.ids: list[int] = []
        self._kept = 0
        self._begin_text()

    def _begin_text(self) -> None:
        self.begin = len(self.ids)
        self.begun = False
        self.pending = b""
        self._text = b""  # the last words but for the pending bytes; kept only where text is encoded

    def context(self) -> DraftContext:
        """The ids, and how many of them are the same as at the previous call."""
        kept, self._kept = self._kept, len(self.ids)
        return DraftContext(self.ids, kept)

    def append_special(self, counterpart: Sequence[int]) -> None:
        """End the text with the draft's counterpart of a special token, where there is one."""
        self.ids += counterpart
        self._begin_text()

    def append_token(self, token: int, data: bytes) -> None:
        """Append a target token whose bytes are ``data``; its spelling is looked up once."""
        encoder = self.encoder
        if isinstance(encoder, IncrementalBPE) and self.begun and not self.pending:
            if token not in self._runs:
                spelling = self._spellings.inside[token]
                self._runs[token] = encoder.token_run(spelling) if spelling else None
            if (run := self._runs[token]) is not None:
                self._replace(*encoder.append(self.ids, run, 0, self.begin))
                return
        self.append_bytes(data)

    def append_bytes(self, data: bytes) -> None:
        """Append bytes, which need not be whole characters; many at once cost less than one by one."""
        data = self.pending + data
        whole = whole_characters(data)
        data, pending = data[:whole], data[whole:]
        if data:
            encoder, ids = self.encoder, self.ids
            if isinstance(encoder, TailReencoder):
                change = encoder.join(ids, self._text, data, self.begin)
                self._text = recent(self._text + data)
            else:
                if self._leading_space and not self.begun:
                    data = b" " + data
                change = encoder.join_bytes(ids, data, begin=self.begin)
            self._replace(*change)
            self.begun = True
        self.pending = pending

    def _replace(self, start: int, tail: Sequence[int]) -> None:
        """Let the view go on with ``tail`` from ``start`` on."""
        if start < self._kept:
            self._kept = min(self._kept, start + common_prefix(self.ids[start:], tail))
        self.ids[start:] = tail
