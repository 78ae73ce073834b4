"""The target's own text: it continues prompts cut out of a corpus, and the draft learns how.

Prompts are the first tokens of documents, all equally many, so that a batch is one array. A batch is made
once, kept in the work directory and depends on the seed and its number alone. A draft with another tokenizer
gets the target's text in its own spelling; only tokens that lie wholly in the continuation count.
"""

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from spectool.artifacts import Tokenizer
from spectool.artifacts.work import load, save
from spectool.build.training.tuning.examples import Example, alone, byte_ends, row_of
from spectool.build.training.tuning.options import TuneOptions
from spectool.build.training.tuning.tuned_model import Opened
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
        data = target.bytes_of(ids[:tokens])
        whole = data.decode(errors="ignore").encode() == data
        if len(ids) > tokens and whole and text.encode().startswith(data):
            found.append(ids[:tokens])
    return np.array(found, dtype=np.int32).reshape(-1, tokens)


def continued(
    work: Path, name: str, target: Opened, prompts: NDArray[np.int32], options: TuneOptions
) -> NDArray[np.int32]:
    """Return the target's continuations of prompts ``[prompts, tokens]``, int32 ``[prompts, max_tokens]``.

    -1 stands after its end. Batches are kept in ``work`` and not made again; ``name`` seeds them beside the options'
    seed.
    """
    parts = []
    for first in tqdm(range(0, len(prompts), options.batch), desc="continuing", unit=" batches", disable=None):
        file = f"continued-{name}-{first}"
        if not (work / f"{file}.npy").exists():
            batch = np.stack([row_of(target.tokenizer, ids.tolist()) for ids in prompts[first : first + options.batch]])
            seed = np.random.SeedSequence([options.seed, *name.encode(), first])
            save(work, file, _continue(target, batch, options, mx.random.key(int(seed.generate_state(1)[0]))))
        parts.append(load(work, file))
    return np.concatenate(parts)


def _continue(target: Opened, prompts: NDArray[np.int32], options: TuneOptions, key: mx.array) -> NDArray[np.int32]:
    cache = make_prompt_cache(target.model)
    feed = mx.array(prompts)
    found = np.full((len(prompts), options.max_tokens), _ENDED, dtype=np.int32)
    going = np.ones(len(prompts), dtype=bool)
    for place in range(options.max_tokens):
        logits = target.model(feed, cache=cache)[:, -1, : target.tokenizer.size].astype(mx.float32)
        key, now = mx.random.split(key)
        heat = options.temperature
        chosen = mx.random.categorical(logits / heat, key=now) if heat else mx.argmax(logits, axis=-1)
        tokens = np.array(chosen).astype(np.int32)
        found[going, place] = tokens[going]
        going &= ~np.isin(tokens, target.tokenizer.roles.eos)
        if not going.any():
            break
        feed = mx.array(tokens[:, None])
    return found


def same_ids_example(target: Tokenizer, prompt: NDArray[np.int32], tokens: NDArray[np.int32]) -> Example:
    """Return a row in which the continuation counts, for a draft with the target's ids."""
    row = row_of(target, [*prompt.tolist(), *tokens[tokens != _ENDED].tolist()])
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
    made: list[int] = tokens[tokens != _ENDED].tolist()
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
