"""The target's own text: it goes on from prompts cut out of a corpus, and the draft learns how.

Prompts are the first tokens of documents, all equally many, so that a batch is one array. A batch is made
once, kept in the work directory and depends on the seed and its number alone. A draft with another tokenizer
gets the target's text in its own spelling; only tokens that lie wholly in the continuation count.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from spectool.artifacts import Tokenizer
from spectool.artifacts.work import load, save
from spectool.build.training.examples.examples import NOWHERE, Example
from spectool.build.training.examples.pairing import row_of
from spectool.build.training.examples.passages import byte_ends
from spectool.runtime.host.generation import make_prompt_cache

KEPT = "continued-*.npy"  # in the work directory
_ENDED = -1  # in the place of tokens after the end


def prompts_of(target: Tokenizer, texts: Sequence[str], tokens: int, most: int) -> NDArray[np.int32]:
    """Return the first ``tokens`` ids of at most ``most`` texts that are longer, int32 ``[prompts, tokens]``.

    Texts whose beginning would end within a character, or that the tokenizer cannot spell, are left out.
    """
    found: list[list[int]] = []
    for text in texts:
        if len(found) == most:
            break
        ids = target.encode(text[: tokens * 32])
        if len(ids) > tokens and text.encode().startswith(target.bytes_of(ids[:tokens])):
            try:
                target.bytes_of(ids[:tokens]).decode()
            except UnicodeDecodeError:
                continue
            found.append(ids[:tokens])
    return np.array(found, dtype=np.int32).reshape(-1, tokens)


def continued(
    work: Path,
    name: str,
    model: Any,
    target: Tokenizer,
    prompts: NDArray[np.int32],
    most: int,
    temperature: float,
    seed: Sequence[int],
    rows: int,
) -> NDArray[np.int32]:
    """Return what the target goes on with, int32 ``[prompts, most]``; -1 after its end.

    Args:
        work: The work directory; batches that are there are not made again.
        name: Names them.
        model: The target.
        target: Its tokenizer.
        prompts: Ids ``[prompts, tokens]``.
        most: Tokens to go on for.
        temperature: Of sampling; 0 takes the most probable token.
        seed: Seeds the sampling.
        rows: Prompts in a batch.
    """
    parts = []
    for first in tqdm(range(0, len(prompts), rows), desc="continuing", unit=" batches", disable=None):
        file = f"continued-{name}-{first}"
        if not (work / f"{file}.npy").exists():
            batch = np.stack([row_of(target, ids.tolist()) for ids in prompts[first : first + rows]])
            key = int(np.random.SeedSequence([*seed, first]).generate_state(1)[0])
            save(work, file, _go_on(model, target, batch, most, temperature, mx.random.key(key)))
        parts.append(load(work, file))
    return np.concatenate(parts)


def _go_on(
    model: Any, target: Tokenizer, prompts: NDArray[np.int32], most: int, temperature: float, key: mx.array
) -> NDArray[np.int32]:
    cache = make_prompt_cache(model)
    feed = mx.array(prompts)
    found = np.full((len(prompts), most), _ENDED, dtype=np.int32)
    going = np.ones(len(prompts), dtype=bool)
    for place in range(most):
        logits = model(feed, cache=cache)[:, -1, : target.size].astype(mx.float32)
        key, now = mx.random.split(key)
        chosen = mx.random.categorical(logits / temperature, key=now) if temperature else mx.argmax(logits, axis=-1)
        tokens = np.array(chosen).astype(np.int32)
        found[going, place] = tokens[going]
        going &= ~np.isin(tokens, target.roles.eos)
        if not going.any():
            break
        feed = mx.array(tokens[:, None])
    return found


def same_ids_example(target: Tokenizer, prompt: NDArray[np.int32], tokens: NDArray[np.int32]) -> Example:
    """Return a row in which the continuation counts, for a draft with the target's ids."""
    row = row_of(target, [*prompt.tolist(), *tokens[tokens != _ENDED].tolist()])
    begin = len(row_of(target, prompt.tolist()))
    counted = np.arange(1, len(row)) >= begin
    return Example(row, counted, np.empty(0, np.int32), np.full(len(counted), NOWHERE, np.int32))


def respelled_example(
    draft: Tokenizer, target: Tokenizer, prompt: NDArray[np.int32], tokens: NDArray[np.int32]
) -> Example | None:
    """Return such a row in the draft's canonical spelling.

    The last token of a text that was cut off does not count: it might have been spelled together with what
    follows. None where the text is no text, the draft cannot spell it, or nothing counts.
    """
    made: list[int] = tokens[tokens != _ENDED].tolist()
    ended = bool(made) and made[-1] in target.roles.eos
    ids = [*prompt.tolist(), *(made[:-1] if ended else made)]
    data = target.bytes_of(ids)
    text = data.decode(errors="ignore") if not ended else data.decode(errors="replace")
    # Only a character that was cut off at the end may be missing.
    if not data.startswith(text.encode()) or len(data) - len(text.encode()) > 3:
        return None
    spelled = draft.encode(text)
    if draft.bytes_of(spelled) != text.encode():
        return None
    ends = byte_ends(draft, spelled)
    inside = np.concatenate([[0], ends[:-1]]) >= len(target.bytes_of(prompt.tolist())) if spelled else np.empty(0, bool)
    row, end = spelled, next(iter(draft.roles.eos), None)
    if ended and end is not None:
        row, inside = [*spelled, end], np.append(inside, True)
    elif not ended:
        inside[-1:] = False
    full = row_of(draft, row)
    counted = np.append(np.zeros(len(full) - len(row), bool), inside)[1:]
    if not counted.any():
        return None
    return Example(full, counted, np.empty(0, np.int32), np.full(len(counted), NOWHERE, np.int32))
