"""Translation for a target without the merge-site lemma (Unigram, WordPiece): text is encoded again."""

from collections.abc import Sequence
from typing import NamedTuple

from spectool.tokenization.incremental.by_text import CanonicalText
from spectool.tokenization.tokenizer import Tokenizer

CONTEXT = 64  # committed tokens before the frontier that are encoded again
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


class Frontier(NamedTuple):
    """Where the committed text ends."""

    draft: Tokenizer  # the draft's tokenizer
    target: Tokenizer  # the target's
    committed: Sequence[int]  # target ids of the present text: all, or the last ``CONTEXT + 1`` of more
    pending: bytes  # bytes of an unfinished character at its end


def beyond(frontier: Frontier, engine: CanonicalText, said: bytes, behind: bytes) -> tuple[list[int], bool]:
    """Return the target ids of what a draft says beyond the frontier.

    Args:
        frontier: The end of the committed text.
        engine: Encodes for the target.
        said: Bytes of the draft tokens.
        behind: Bytes that these begin with where they agree with the target, which has committed them.

    Returns:
        The ids, and whether they hold all that was said.
    """
    draft, target, committed, pending = frontier
    if not said.startswith(behind):
        return [], False
    data = said[len(behind) :]
    left = list(committed[-CONTEXT:])
    if not left and draft.edges.leading_space:
        data = data.removeprefix(b" ")
    # The oldest of these ids may begin inside a character.
    so_far = b"".join(map(target.surfaces.__getitem__, left)).lstrip(_CONTINUATIONS)
    if target.edges.leading_space and len(left) == len(committed):
        so_far = so_far.removeprefix(b" ")
    text = data[: max(0, _valid(pending + data) - len(pending))]
    ids, holds = engine.following(left, so_far, text) if text else ([], True)
    if pending and not holds:
        return [], False
    if ids and left and not so_far:  # only the artificial space is committed, which a text's ids begin with
        if ids[: len(left)] != left:
            return [], False
        ids = ids[len(left) :]
    return ids, text == data


def _valid(data: bytes) -> int:
    """Return where bytes stop being UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)
