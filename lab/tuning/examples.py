"""Rows to train and to measure on: ids of the draft, which of them count, and the target's side of them.

They are made of passages, pieces of text that are short enough, or of prompts, beginnings of documents, and what the
target went on with. A draft with another tokenizer gets that in its own spelling. Only tokens that lie wholly in the
continuation count.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spectool.tokenization import Tokenizer

NOWHERE = -1
ENDED = -1  # in the place of a continuation's tokens after its end
_CHARACTERS = 16  # looked at for each token of a passage; text has fewer in a token


class Example(NamedTuple):
    """One row."""

    draft: NDArray[np.int32]  # ids of the draft, int32 ``[n]``
    counted: NDArray[np.bool_]  # whether token i + 1 counts, bool ``[n - 1]``
    target: NDArray[np.int32]  # ids of the target for the same text, int32 ``[m]``; empty where it is not asked
    # the target's place that predicts what the draft's place i does, int32 ``[n - 1]``; -1 for none
    at: NDArray[np.int32]


class Batch(NamedTuple):
    """Rows of one shape, zeros at their ends, and the places that count."""

    draft: NDArray[np.int32]  # ids of the draft, int32 ``[rows, longest]``
    target: NDArray[np.int32]  # ids of the target, int32 ``[rows, longest]``
    rows: NDArray[np.int32]  # row of each place that counts, int32 ``[places]``
    places: NDArray[np.int32]  # its place in the draft's row, ``[places]``
    at: NDArray[np.int32]  # its place in the target's row, ``[places]``; -1 for none


def batch_of(examples: Sequence[Example], paired: bool) -> Batch:
    """Lay out at least one example; ``paired``: only places count at which the target predicts the same."""
    drafts, counts, targets, ats = zip(*examples, strict=True)
    draft, target, counted, at = _padded(drafts, 0), _padded(targets, 0), _padded(counts, False), _padded(ats, NOWHERE)
    rows, places = np.nonzero(counted & (at != NOWHERE) if paired else counted)
    return Batch(draft, target, rows.astype(np.int32), places.astype(np.int32), at[rows, places])


def _padded(rows: Sequence[NDArray[Any]], fill: int) -> NDArray[Any]:
    """Return rows of different lengths as one array, with ``fill`` at their ends."""
    found = np.full((len(rows), max(map(len, rows))), fill, rows[0].dtype)
    for place, row in enumerate(rows):
        found[place, : len(row)] = row
    return found


def drawn(step: int, number: int, batch: int, seed: Sequence[int]) -> list[int]:
    """Return which ``batch`` of ``number`` examples a step (from 0) takes, by the seed and the step alone.

    In random order; none is seen twice before all have been.
    """
    first, last = step * batch, (step + 1) * batch
    rounds = range(first // number, -(-last // number))
    orders = [np.random.default_rng([*seed, round_]).permutation(number) for round_ in rounds]
    skipped = rounds.start * number
    found: list[int] = np.concatenate(orders)[first - skipped : last - skipped].tolist()
    return found


def load_examples(path: Path) -> list[Example]:
    """Read what `write_rows` wrote of examples, as arrays."""
    columns = pq.read_table(path, memory_map=False, partitioning=None).columns
    return [Example(*row) for row in zip(*(column.to_numpy() for column in columns), strict=True)]


def row_of(tokenizer: Tokenizer, ids: list[int]) -> NDArray[np.int32]:
    """Return a text's ids with the token that begins a text, where the model has one."""
    begin = [] if tokenizer.roles.bos is None else [tokenizer.roles.bos]
    return np.array([*begin, *ids], dtype=np.int32)


def alone(draft: NDArray[np.int32], counted: NDArray[np.bool_]) -> Example:
    """Return a row of the draft without the target's side."""
    return Example(draft, counted, np.empty(0, np.int32), np.full(len(counted), NOWHERE, np.int32))


def plain_example(tokenizer: Tokenizer, text: str, most: int) -> Example | None:
    """Return a row of the draft alone, all of it counted; None where it is too short."""
    draft = row_of(tokenizer, tokenizer.encode(text)[:most])
    if len(draft) < 2:
        return None
    return alone(draft, np.ones(len(draft) - 1, bool))


def paired_example(draft: Tokenizer, target: Tokenizer, same: bool, text: str, most: int) -> Example | None:
    """Return a row of at most ``most`` tokens of the draft, with the target's side of it.

    ``same`` says whether they share their ids. None where the row is too short, or one of the tokenizers cannot spell
    the text.
    """
    if same:
        row = row_of(target, target.encode(text)[:most])
        places = np.arange(len(row) - 1, dtype=np.int32)
        return Example(row, np.ones(len(places), bool), row, places) if len(row) > 1 else None
    draft_ids, target_ids = draft.encode(text), target.encode(text)
    if not draft.bytes_of(draft_ids) == target.bytes_of(target_ids) == text.encode():
        return None
    row, other = row_of(draft, draft_ids[:most]), row_of(target, target_ids)
    if len(row) < 2:
        return None
    there = {end: place for place, end in enumerate(_ends(target, target_ids, len(other)))}
    at = [there.get(end, NOWHERE) for end in _ends(draft, draft_ids[:most], len(row))[:-1]]
    return Example(row, np.ones(len(at), bool), other, np.array(at, dtype=np.int32))


def same_ids_example(target: Tokenizer, prompt: NDArray[np.int32], tokens: NDArray[np.int32]) -> Example:
    """Return a row in which the continuation counts, for a draft with the target's ids."""
    row = row_of(target, [*prompt.tolist(), *tokens[tokens != ENDED].tolist()])
    begin = len(row_of(target, prompt.tolist()))
    return alone(row, np.arange(1, len(row)) >= begin)


def respelled_example(
    draft: Tokenizer, target: Tokenizer, prompt: NDArray[np.int32], tokens: NDArray[np.int32]
) -> Example | None:
    """Return such a row in the draft's canonical spelling.

    The last token of a text that was cut off does not count: it might have been spelled together with what
    follows. None where the text is no text, the draft cannot spell it, or nothing counts.
    """
    begin: list[int] = prompt.tolist()
    made: list[int] = tokens[tokens != ENDED].tolist()
    ended = bool(made) and made[-1] in target.roles.eos
    data = target.bytes_of([*begin, *(made[:-1] if ended else made)])
    text = data.decode(errors="replace" if ended else "ignore")
    said = text.encode()
    # Only a character that was cut off at the end may be missing.
    if not data.startswith(said) or len(data) - len(said) > 3:
        return None
    spelled = draft.encode(text)
    if draft.bytes_of(spelled) != said:
        return None
    inside = np.append(0, byte_ends(draft, spelled))[:-1] >= len(target.bytes_of(begin))
    if not ended:
        inside[-1:] = False
    end = draft.roles.eos[:1] if ended else ()
    row = row_of(draft, [*spelled, *end])
    before = np.zeros(len(row) - len(spelled) - len(end), bool)
    counted = np.concatenate([before, inside, np.ones(len(end), bool)])[1:]
    return alone(row, counted) if counted.any() else None


def _ends(tokenizer: Tokenizer, ids: list[int], places: int) -> list[int]:
    """Return the bytes of text before each place of a row's predictions."""
    ends: list[int] = byte_ends(tokenizer, ids).tolist()
    return [0] * (places - len(ids)) + ends


def byte_ends(tokenizer: Tokenizer, ids: Sequence[int]) -> NDArray[np.int64]:
    """Return the UTF-8 bytes of the text up to and with each token, int64 ``[tokens]``.

    Right where ``tokenizer.bytes_of(ids)`` is the text.
    """
    surfaces = [tokenizer.surfaces[number] for number in ids]
    ends = np.cumsum([len(surface) for surface in surfaces], dtype=np.int64)
    if tokenizer.edges.leading_space and next(filter(None, surfaces), b"").startswith(b" "):
        ends = np.maximum(ends - 1, 0)
    return np.minimum(ends, len(tokenizer.bytes_of(ids)))


def passages(tokenizer: Tokenizer, text: str, most: int) -> Iterator[str]:
    """Cut a text between words into passages of at most ``most`` tokens; one word may have more.

    Spaces at the cuts are left out.
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


def prompts_of(target: Tokenizer, texts: Sequence[str], tokens: int, most: int) -> NDArray[np.int32]:
    """Return the first ``tokens`` ids of at most ``most`` texts that are longer, int32 ``[prompts, tokens]``.

    All are equally long, so that a batch is one array. Texts whose beginning would end within a character, or that the
    tokenizer cannot spell, are left out.
    """
    found: list[list[int]] = []
    for text in texts:
        if len(found) == most:
            break
        ids = target.encode(text[: tokens * 32])
        data = target.bytes_of(ids[:tokens])
        whole = data.decode(errors="ignore").encode() == data
        if len(ids) > tokens and whole and text.encode().startswith(data):
            found.append(ids[:tokens])
    return np.array(found, dtype=np.int32).reshape(-1, tokens)
