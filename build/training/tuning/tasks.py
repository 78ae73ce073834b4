"""The text of a tuning's tasks: rows to train on and rows to measure on, made once in the work directory.

    N.train.parquet  N.valid.parquet     rows of a task (`examples`)
    tasks.json                           what was read, and how much of it could be compared

Some documents of every corpus are held out (`corpora.split`), the same ones whatever the seed; no text that
is held out is trained on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spectool import CorpusError
from spectool.artifacts import Tokenizer
from spectool.artifacts.work import read_json, write_json
from spectool.build.inputs import Progress, Reader, describe_corpus
from spectool.build.training.curves import write_rows
from spectool.build.training.tuning.continuations import continued, prompts_of, respelled_example, same_ids_example
from spectool.build.training.tuning.divergence import Pairing
from spectool.build.training.tuning.examples import (
    NOWHERE,
    Example,
    load_examples,
    paired_example,
    passages,
    plain_example,
)
from spectool.build.training.tuning.options import TuneOptions
from spectool.build.training.tuning.tuned_model import Opened
from spectool.corpora import Corpus, in_valid

_SHARE, _MOST = 0.01, 0.2  # of a corpus that is held out: of a large one, of a small one


class Task(NamedTuple):
    """One task."""

    name: str  # its name
    train: list[Example]  # rows to train on
    valid: list[Example]  # rows to measure on


class Maker(NamedTuple):
    """Makes rows out of text."""

    draft: Tokenizer  # the draft's tokenizer
    target: Opened  # the target
    pairing: Pairing | None  # how they are compared, if they can be
    options: TuneOptions  # the tuning's
    work: Path  # its work directory

    def learned(self, name: str, texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Return rows to train on, and how many passages or continuations could not become rows."""
        if self.options.on == "completions":
            return self._of_target(name, texts, most)
        found, left_out = self._of_text(texts, most)
        return (_with_places(found) if self.options.on == "distribution" else found), left_out

    def measured(self, name: str, texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Return rows to measure on: text, if the two can be compared on it, else of what is learned."""
        if self.pairing is None:
            return self.learned(name, texts, most)
        found, left_out = self._of_text(texts, most)
        return _with_places(found), left_out

    def _of_text(self, texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Return at most ``most`` rows of text, with the target's side where the two can be compared.

        Returns:
            The rows; how many passages were left out, too short or not spelled by both.
        """
        found: list[Example] = []
        left_out, length = 0, self.options.length
        for passage in (passage for text in texts for passage in passages(self.draft, text, length)):
            if len(found) == most:
                break
            if self.pairing is None:
                example = plain_example(self.draft, passage, length)
            else:
                same = self.pairing.same_vocabulary
                example = paired_example(self.draft, self.target.tokenizer, same, passage, length)
            if example is None:
                left_out += 1
            else:
                found.append(example)
        return found, left_out

    def _of_target(self, name: str, texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Return at most ``most`` rows of the target's continuations.

        Returns:
            The rows; how many continuations were left out, since the draft cannot spell them.
        """
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

    Args:
        maker: Makes rows.
        corpora: Text by task.
        progress: Called with a phrase when something begins.
        reader: Iterates over a corpus.

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
        train, held_out = _split(corpus, reader, options.valid_rows, np.random.default_rng([options.seed, number]))
        progress(f"{name}: making rows")
        learned, one = maker.learned(f"{number}-train", train, rows)
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
            "compared": _compared(measured),
        }
    write_json(work / "tasks.json", facts)


def load_tasks(work: Path) -> tuple[list[Task], dict[str, Any]]:
    """Read what `prepare` wrote: the tasks, and what is known of them by name."""
    facts: dict[str, Any] = read_json(work / "tasks.json")
    sides = [
        [load_examples(work / f"{number}.{side}.parquet") for side in ("train", "valid")]
        for number in range(len(facts))
    ]
    return [Task(name, train, valid) for name, (train, valid) in zip(facts, sides, strict=True)], facts


def _split(corpus: Corpus, reader: Reader, valid_rows: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return the documents to train on, in random order, and those that are held out."""
    documents = [(document.id, document.text) for document in reader(corpus)]
    share = max(_SHARE, min(_MOST, valid_rows / max(1, len(documents))))
    held_out = [text for name, text in documents if in_valid(name, share)]
    out = set(held_out)
    train = [text for _, text in documents if text not in out]
    return [train[place] for place in rng.permutation(len(train))], held_out


def _with_places(examples: Sequence[Example]) -> list[Example]:
    """Return the rows at some place of which the target predicts the same."""
    return [example for example in examples if (example.at != NOWHERE).any()]


def _compared(examples: Sequence[Example]) -> float | None:
    """Return the share of the places at which the target predicts the same; None where it was not asked."""
    if not any(len(example.target) for example in examples):
        return None
    return float(np.concatenate([example.at != NOWHERE for example in examples]).mean())
