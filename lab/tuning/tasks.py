"""The text of a tuning's tasks: rows to train on and rows to measure on, made once in the work directory.

    N.train.parquet  N.valid.parquet     rows of a task (`examples`)
    continued-N-side-FIRST.npy           the target's continuations of a batch of prompts
    tasks.json                           what was read, and how much of it could be compared

Some documents of every corpus are held out (`corpora.split`), the same ones whatever the seed; no text that
is held out is trained on. What the target goes on with depends on the seed and the number of the batch alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from spectool import CorpusError
from spectool.artifacts.resumable import load, read_json, save, write_json
from spectool.build.corpus_reading import Progress, Reader, describe_corpus
from spectool.corpora import Corpus
from spectool.lab.training.curves import write_rows
from spectool.lab.training.text import split_corpus
from spectool.lab.tuning.divergence import Pairing
from spectool.lab.tuning.examples import (
    ENDED,
    NOWHERE,
    Example,
    load_examples,
    paired_example,
    passages,
    plain_example,
    prompts_of,
    respelled_example,
    row_of,
    same_ids_example,
)
from spectool.lab.tuning.options import TuneOptions
from spectool.lab.tuning.tuned_model import Opened
from spectool.runtime.mlx_lm_compat import make_prompt_cache
from spectool.tokenization import Tokenizer

KEPT = "continued-*.npy"  # in the work directory
_MOST = 0.2  # of a small corpus that is held out
Rows = tuple[list[Example], int]
"""Rows, and how many passages or continuations were left out: too short, or not spelled by both tokenizers."""


class Task(NamedTuple):
    """One task."""

    name: str
    facts: dict[str, Any]  # what was read and made, for the record
    train: list[Example]  # rows to train on
    valid: list[Example]  # rows to measure on


class Maker(NamedTuple):
    """Makes rows out of text."""

    draft: Tokenizer  # the draft's tokenizer
    target: Opened
    pairing: Pairing | None  # how they are compared, if they can be
    options: TuneOptions
    work: Path  # work directory

    def learned(self, name: str, texts: Sequence[str], most: int) -> Rows:
        """Return at most ``most`` rows to train on."""
        if self.options.on == "completions":
            return self._of_target(name, texts, most)
        return self._of_text(texts, most, self.options.on == "distribution")

    def measured(self, name: str, texts: Sequence[str], most: int) -> Rows:
        """Return rows to measure on: text, if the two can be compared on it, else of what is learned."""
        return self.learned(name, texts, most) if self.pairing is None else self._of_text(texts, most, True)

    def _of_text(self, texts: Sequence[str], most: int, compared: bool) -> Rows:
        """Return rows of text; ``compared``: of the first ``most``, those where the target predicts something alike."""
        found: list[Example] = []
        left_out, length = 0, self.options.length
        for passage in (passage for text in texts for passage in passages(self.draft, text, length)):
            if self.pairing is None:
                example = plain_example(self.draft, passage, length)
            else:
                same = self.pairing.same_vocabulary
                example = paired_example(self.draft, self.target.tokenizer, same, passage, length)
            if example is None:
                left_out += 1
                continue
            found.append(example)
            if len(found) == most:
                break
        return [example for example in found if not compared or (example.at != NOWHERE).any()], left_out

    def _of_target(self, name: str, texts: Sequence[str], most: int) -> Rows:
        """Return rows of the target's continuations."""
        target = self.target.tokenizer
        prompts = prompts_of(target, texts, self.options.prompt_tokens, most)
        if not len(prompts):
            return [], 0
        pairs = list(zip(prompts, continued(self.work, name, self.target, prompts, self.options), strict=True))
        if self.pairing is not None and self.pairing.same_vocabulary:
            return [same_ids_example(target, *pair) for pair in pairs], 0
        made = (respelled_example(self.draft, target, *pair) for pair in pairs)
        examples = [example for example in made if example is not None]
        return examples, len(pairs) - len(examples)


def prepare(maker: Maker, corpora: dict[str, Corpus], progress: Progress, reader: Reader = iter) -> None:
    """Make the rows of all tasks, unless they are there. Holds one corpus at a time in memory.

    Raises:
        CorpusError: A corpus gives no rows to train on or to measure on.
    """
    work, options = maker.work, maker.options
    if (work / "tasks.json").exists():
        return
    rows = options.completions if options.on == "completions" else options.steps * options.batch
    facts: dict[str, Any] = {}
    for number, (name, corpus) in enumerate(corpora.items()):
        progress(f"{name}: reading text")
        texts, held_out = split_corpus(corpus, reader, options.valid_rows, _MOST)
        out = set(held_out)
        train = [text for text in texts if text not in out]
        order = np.random.default_rng([options.seed, number]).permutation(len(train))
        progress(f"{name}: making rows")
        learned, one = maker.learned(f"{number}-train", [train[place] for place in order], rows)
        measured, two = maker.measured(f"{number}-valid", held_out, options.valid_rows)
        if not learned or not measured:
            raise CorpusError(
                f"{corpus.spec}: gives {len(learned)} rows to train on and {len(measured)} to measure on, expected "
                f"some of both from {len(train)} and {len(held_out)} documents. Give more text or longer documents, or "
                "shorter prompts (--prompt-tokens)"
            )
        write_rows(work / f"{number}.train.parquet", Example, learned)
        write_rows(work / f"{number}.valid.parquet", Example, measured)
        facts[name] = {
            **describe_corpus(corpus),
            "rows": len(learned),
            "tokens": int(sum(example.counted.sum() for example in learned)),
            "valid_rows": len(measured),
            "valid_tokens": int(sum(example.counted.sum() for example in measured)),
            "left_out": one + two,
            "compared": None if maker.pairing is None else _compared(measured),
        }
    write_json(work / "tasks.json", facts)


def load_tasks(work: Path) -> list[Task]:
    """Read what `prepare` wrote."""
    return [
        Task(name, facts, *(load_examples(work / f"{number}.{side}.parquet") for side in ("train", "valid")))
        for number, (name, facts) in enumerate(read_json(work / "tasks.json").items())
    ]


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
    found = np.full((len(prompts), options.max_tokens), ENDED, dtype=np.int32)
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


def _compared(examples: Sequence[Example]) -> float:
    """Return the share of the places at which the target predicts the same."""
    return float(np.concatenate([example.at != NOWHERE for example in examples]).mean())
