"""Translation for a target whose ids are not joined on ids (Unigram, mostly): text is encoded again."""

from collections.abc import Sequence

from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.tokenizer import Tokenizer

CONTEXT = 64  # committed tokens before the frontier that are encoded again
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


def ids_after(
    encoder: TailReencoder, target: Tokenizer, committed: Sequence[int], pending: bytes, data: bytes
) -> tuple[list[int], bool]:
    """The target ids of bytes after the committed text, and whether they are those of all bytes.

    Args:
        encoder: Encodes for the target.
        target: The target's tokenizer.
        committed: Target ids of the present text: all, or the last ``CONTEXT + 1`` of more.
        pending: Bytes of an unfinished character at their end.
        data: What follows, up to where it stops being UTF-8.
    """
    context = list(committed[-CONTEXT:])
    # The oldest of these ids may begin inside a character.
    so_far = b"".join(map(target.token_bytes.__getitem__, context)).lstrip(_CONTINUATIONS)
    if target.leading_space and len(context) == len(committed):
        so_far = so_far.removeprefix(b" ")
    text = data[: max(0, _valid(pending + data) - len(pending))]
    ids, boundary = encoder.encode_after(context, so_far, text) if text else ([], True)
    if pending and not boundary:
        return [], False
    if ids and context and not so_far:  # only the artificial space is committed, which a text's ids begin with
        if ids[: len(context)] != context:
            return [], False
        ids = ids[len(context) :]
    return ids, text == data


def _valid(data: bytes) -> int:
    """Number of bytes before the first that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)
