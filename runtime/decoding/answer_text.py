"""The text of an answer, put together from the bytes of its tokens, and where it ends."""

import codecs
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from spectool import TokenizerError
from spectool.runtime.chat_template import has_channels
from spectool.runtime.decoding.marked_text import MarkedText
from spectool.runtime.per_model import once_per_model
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer


class AnswerText(MarkedText):
    """Tokens into text, up to a stop token, a number of tokens or a stop string.

    A character whose bytes are incomplete is held back until the next token, and so is what may be the beginning of a
    stop string. Tokenizers whose tokens do not make a text by their bytes alone are read by mlx-lm's detokenizer.
    """

    def __init__(
        self,
        tokenizer: Any,
        stop_strings: str | Sequence[str] = (),
        *,
        stop_tokens: Collection[int] = (),
        max_tokens: int = -1,
        own_text: bool = False,
        reasoning: bool | None = None,
    ) -> None:
        """Begin an answer in the tokens of mlx-lm's ``TokenizerWrapper``; its ends are those of `stream_generate`.

        It stops before the stop string that ends first and, of several that end there, begins first. With
        ``reasoning``, which is that of `Grammar`, those in what the model thinks before it answers, and in line ends
        after that, do not count. If it is ``own_text``, not the continuation of another one, its first space is left
        out where the tokenizer begins every text with a space.
        """
        super().__init__()
        self.written = self.certain = 0  # characters so far, and those that are not held back
        self.end: str | None = None  # "stop" or "length", as mlx-lm has it; None as long as the answer goes on
        self.stopped_by = ""  # the stop string that ended it
        self._stop_tokens, self._max_tokens, self._count = stop_tokens, max_tokens, 0
        self._tokens = _with_token_bytes(tokenizer)
        self._tokenizer, self._detokenizer = tokenizer, tokenizer.detokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left_out = " " if own_text and self._tokens and self._tokens.leading_space else ""
        begin, *ends = tokenizer.think_start, tokenizer.think_end
        if has_channels(tokenizer):
            begin, *ends = "<|channel|>", "<|channel|>final", "<|message|>"
        self._stop_strings = list(filter(None, [stop_strings] if isinstance(stop_strings, str) else stop_strings))
        marked = reasoning is not None and begin and all(ends) and self._stop_strings
        self._reasoning = ("" if reasoning else begin, *ends) if marked else ()

    def add(self, token: int) -> str:
        """The text that is certain now that ``token`` is there; all of it if it ends the answer."""
        self._count += 1
        if token in self._stop_tokens:
            self.end = "stop"
            return self.finish()
        if self._count == self._max_tokens:
            self.end = "length"
        return self._extended(token, last=self.end is not None)

    def preview(self, tokens: Sequence[int]) -> str:
        """The text that these tokens would add, without incomplete characters."""
        if self._tokens is None:
            return str(self._tokenizer.decode(list(tokens)))
        pending = self._decoder.getstate()[0]
        return (pending + b"".join(map(self._tokens.shown_bytes_of, tokens))).decode(errors="ignore")

    def finish(self) -> str:
        """The text that was held back."""
        return self._extended(None, last=True)

    def _extended(self, token: int | None, last: bool) -> str:
        text = self._read(token, last)
        if text:
            text, self._left_out = text.removeprefix(self._left_out), ""
        self.written += len(text)
        self._gained = ""
        self._extend(text, last)
        self.certain += len(self._gained)
        return self._gained

    def _take_apart(self) -> Iterator[None]:
        if self._reasoning and (yield from self._begins_with(self._reasoning[0])):
            for end in self._reasoning[1:]:
                self._write((yield from self._write_up_to(end)))
            self._write((yield from self._line_ends()))
        self.stopped_by = yield from self._write_up_to(*self._stop_strings)
        self.end = "stop"

    def _write(self, text: str) -> None:
        self._gained += text

    def _read(self, token: int | None, last: bool) -> str:
        if self._tokens is not None:
            return self._decoder.decode(b"" if token is None else self._tokens.shown_bytes_of(token), final=last)
        if token is not None:
            with suppress(IndexError, TypeError):  # a row of the model for which the tokenizer has no token
                self._detokenizer.add_token(token)
        if last:
            self._detokenizer.finalize()
        return str(self._detokenizer.last_segment)


def encode_answer(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text as an answer has them: without BOS, and with one space at most before it."""
    tokens = _with_token_bytes(tokenizer)
    # Such a tokenizer puts a space before every text, also before one that has it because it continues another.
    own = text.removeprefix(" ") if tokens and tokens.leading_space else text
    return list(tokenizer.encode(own, add_special_tokens=False))


@once_per_model
def _with_token_bytes(tokenizer: Any) -> Tokenizer | None:
    """The tokenizer as spectool reads it; None if the text is more than the bytes of its tokens, or less."""
    with suppress(TokenizerError):
        opened = open_tokenizer(tokenizer)
        opened.token_bytes_of(())  # refuses a decoder that it does not know
        return opened
    return None
