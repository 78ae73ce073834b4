"""Rows to train and to measure on: a passage of text in ids of the draft and in ids of the target.

A passage is a piece of text that is short enough. Places of the two rows that predict from the same text are paired.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool.tokenization.tokenizer import Tokenizer

NOWHERE = -1
_CHARACTERS = 16  # encoded for each token of a passage; tokens of text are shorter


class Example(NamedTuple):
    """One row."""

    draft: NDArray[np.int32]  # ids of the draft, int32 ``[n]``
    target: NDArray[np.int32]  # ids of the target for the same text, int32 ``[m]``
    # the target's place that predicts from the same text as the draft's place i, int32 ``[n - 1]``; -1 for none
    at: NDArray[np.int32]


class Padded(NamedTuple):
    """Rows padded to one length with zeros, and the places whose predictions count."""

    draft: NDArray[np.int32]  # ids of the draft, int32 ``[rows, longest]``
    target: NDArray[np.int32]  # ids of the target, int32 ``[rows, longest]``
    rows: NDArray[np.int32]  # row of each place that counts, int32 ``[places]``
    places: NDArray[np.int32]  # its place in the draft's row, ``[places]``
    at: NDArray[np.int32]  # its place in the target's row, ``[places]``


def batch_of(examples: Sequence[Example]) -> Padded:
    """A batch of at least one example; only places count that have one in the target's row."""
    drafts, targets, ats = zip(*examples, strict=True)
    at = _padded(ats, NOWHERE)
    rows, places = np.nonzero(at != NOWHERE)
    return Padded(
        _padded(drafts, 0), _padded(targets, 0), rows.astype(np.int32), places.astype(np.int32), at[rows, places]
    )


def _padded(rows: Sequence[NDArray[Any]], fill: int) -> NDArray[Any]:
    """Rows of different lengths as one array, with ``fill`` at their ends."""
    found = np.full((len(rows), max(map(len, rows))), fill, rows[0].dtype)
    for place, row in enumerate(rows):
        found[place, : len(row)] = row
    return found


def examples_of_step(step: int, number: int, batch: int, seed: Sequence[int]) -> list[int]:
    """The ``batch`` of ``number`` examples that a step (from 0) takes, which depends on the seed and the step alone.

    The order is random, and no example comes again before all others have come.
    """
    first, last = step * batch, (step + 1) * batch
    rounds = range(first // number, -(-last // number))
    orders = [np.random.default_rng([*seed, round_]).permutation(number) for round_ in rounds]
    skipped = rounds.start * number
    found: list[int] = np.concatenate(orders)[first - skipped : last - skipped].tolist()
    return found


def row_of(tokenizer: Tokenizer, ids: list[int]) -> NDArray[np.int32]:
    """The ids of a text after the token that begins a text, if there is one."""
    begin = [] if tokenizer.roles.bos is None else [tokenizer.roles.bos]
    return np.array([*begin, *ids], dtype=np.int32)


def paired_example(draft: Tokenizer, target: Tokenizer, same: bool, text: str, most: int) -> Example | None:
    """A row of at most ``most`` tokens of the draft with the target's side; ``same``: they have one vocabulary.

    None where the row is too short or one of the tokenizers cannot spell the text.
    """
    if same:
        row = row_of(target, target.encode(text)[:most])
        places = np.arange(len(row) - 1, dtype=np.int32)
        return Example(row, row, places) if len(row) > 1 else None
    draft_ids, target_ids = draft.encode(text), target.encode(text)
    if not draft.bytes_of(draft_ids) == target.bytes_of(target_ids) == text.encode():
        return None
    row, other = row_of(draft, draft_ids[:most]), row_of(target, target_ids)
    if len(row) < 2:
        return None
    there = {end: place for place, end in enumerate(_ends(target, target_ids, len(other)))}
    at = [there.get(end, NOWHERE) for end in _ends(draft, draft_ids[:most], len(row))[:-1]]
    return Example(row, other, np.array(at, dtype=np.int32))


def _ends(tokenizer: Tokenizer, ids: list[int], places: int) -> list[int]:
    """The number of bytes of text before each place of a row's predictions."""
    ends: list[int] = byte_ends(tokenizer, ids).tolist()
    return [0] * (places - len(ids)) + ends


def byte_ends(tokenizer: Tokenizer, ids: Sequence[int]) -> NDArray[np.int64]:
    """Number of UTF-8 bytes of the text up to the end of each token, int64 ``[tokens]``.

    Valid where ``tokenizer.bytes_of(ids)`` is the text.
    """
    token_bytes = [tokenizer.token_bytes[number] for number in ids]
    ends = np.cumsum([len(raw) for raw in token_bytes], dtype=np.int64)
    if tokenizer.leading_space and next(filter(None, token_bytes), b"").startswith(b" "):
        ends = np.maximum(ends - 1, 0)
    return np.minimum(ends, len(tokenizer.bytes_of(ids)))


def passages(tokenizer: Tokenizer, text: str, most: int) -> Iterator[str]:
    """The text cut between words into passages of at most ``most`` tokens, or of one word that has more.

    White space at the cuts is left out.
    """
    rest = text.strip()
    while rest:
        head = rest[: most * _CHARACTERS]
        ids = tokenizer.encode(head)
        if len(ids) <= most and len(head) == len(rest):
            yield rest
            return
        ends = byte_ends(tokenizer, ids)
        fit = head.encode()[: ends[min(most, len(ids)) - 1] if ids else 0].decode(errors="ignore")
        cut = max(fit.rfind(" "), fit.rfind("\n"))
        passage = fit[:cut] if cut > 0 else fit or head[:most]
        if passage.strip():
            yield passage.rstrip()
        rest = rest[len(passage) :].lstrip()
