"""The text of a tuning's tasks: rows to train on and rows to measure on.

Some documents of each corpus are held out (`corpora.split`), the same ones with every seed, and never trained on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spectool import CorpusError
from spectool.build.corpus_reading import describe_corpus
from spectool.commands.shared.console import say
from spectool.corpora import Corpus
from spectool.lab.training.options import TuneOptions
from spectool.lab.training.text import split_corpus
from spectool.lab.tuning.examples import NOWHERE, Example, paired_example, passages
from spectool.runtime.drafters.draft_model import vocabulary_mismatch
from spectool.tokenization.tokenizer import Tokenizer

_MOST = 0.2  # of a small corpus that is held out


class TuningTask(NamedTuple):
    """The rows of a task."""

    name: str
    facts: dict[str, Any]  # what was read, for the record
    train: list[Example]  # rows to train on
    valid: list[Example]  # rows to measure on


def read_tasks(
    draft: Tokenizer, target: Tokenizer, corpora: Mapping[str, Corpus], options: TuneOptions
) -> list[TuningTask]:
    """The rows of all tasks, which depend only on the corpora and the options.

    Raises:
        CorpusError: A corpus gives no rows to train on or to measure on.
    """
    tasks = []
    same = vocabulary_mismatch(draft.vocabulary, target.vocabulary) is None

    def rows(texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Up to ``most`` rows, without those that have no place to compare; and the number of passages left out."""
        found: list[Example] = []
        left_out = 0
        for passage in (passage for text in texts for passage in passages(draft, text, options.length)):
            example = paired_example(draft, target, same, passage, options.length)
            if example is None:
                left_out += 1
                continue
            found.append(example)
            if len(found) == most:
                break
        return [example for example in found if (example.at != NOWHERE).any()], left_out

    for number, (name, corpus) in enumerate(corpora.items()):
        say(f"{name}: reading text")
        texts, held_out = split_corpus(corpus, options.valid_rows, _MOST)
        out = set(held_out)
        train = [text for text in texts if text not in out]
        order = np.random.default_rng([options.seed, number]).permutation(len(train))
        say(f"{name}: making rows")
        learned, one = rows([train[place] for place in order], options.steps * options.batch)
        measured, two = rows(held_out, options.valid_rows)
        if not learned or not measured:
            raise CorpusError(
                f"{corpus.spec}: gives {len(learned)} rows to train on and {len(measured)} to measure on, expected "
                f"some of both from {len(train)} and {len(held_out)} documents. Give more text or longer documents"
            )
        facts = {
            **describe_corpus(corpus),
            "rows": len(learned),
            "tokens": sum(len(example.at) for example in learned),
            "valid_rows": len(measured),
            "valid_tokens": sum(len(example.at) for example in measured),
            "left_out": one + two,
            "compared": float(np.concatenate([example.at != NOWHERE for example in measured]).mean()),
        }
        tasks.append(TuningTask(name, facts, learned, measured))
    return tasks
