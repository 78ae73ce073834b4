"""The text of a tuning's tasks: rows to train on and rows to measure on, made once in the work directory.

    TASK.train.npz  TASK.valid.npz     rows (`examples`)
    tasks.json                         what was read, and how much of it could be compared

Some documents of every corpus are held out (`corpora.split`), the same ones whatever the seed; no text that
is held out is trained on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from spectool import CorpusError
from spectool.artifacts import Tokenizer
from spectool.artifacts.work import read_json, write_json
from spectool.build.inputs import Progress, Reader, describe_corpus
from spectool.build.training.examples.continuations import continued, prompts_of, respelled_example, same_ids_example
from spectool.build.training.examples.examples import NOWHERE, Example, load_examples, save_examples
from spectool.build.training.examples.pairing import Pairing, paired_example, plain_example
from spectool.build.training.examples.passages import passages
from spectool.corpora import Corpus, in_valid

Supervision = Literal["text", "completions", "distribution"]

_SHARE, _MOST = 0.01, 0.2  # of a corpus that is held out: of a large one, of a small one


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        name: Its name.
        train: Rows to train on.
        valid: Rows to measure on.
    """

    name: str
    train: list[Example]
    valid: list[Example]


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes rows out of text.

    Attributes:
        draft: The draft's tokenizer.
        target: The target's.
        model: The target.
        pairing: How they are compared, if they can be.
        on: What the draft learns from.
        length: Tokens in a row.
        prompt_tokens: The target's tokens in a prompt.
        max_tokens: Tokens that it goes on for.
        temperature: Of that.
        batch: Prompts at once.
        seed: Seeds it.
    """

    draft: Tokenizer
    target: Tokenizer
    model: Any
    pairing: Pairing | None
    on: Supervision
    length: int
    prompt_tokens: int
    max_tokens: int
    temperature: float
    batch: int
    seed: int

    def learned(self, work: Path, name: str, texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Return rows to train on, and how many passages or continuations could not become rows."""
        if self.on == "completions":
            return self._of_target(work, name, texts, most)
        found, left_out = self._of_text(texts, most)
        return (_with_places(found) if self.on == "distribution" else found), left_out

    def measured(self, work: Path, name: str, texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Return rows to measure on: text, if the two can be compared on it, else of what is learned."""
        if self.pairing is None:
            return self.learned(work, name, texts, most)
        found, left_out = self._of_text(texts, most)
        return _with_places(found), left_out

    def _of_text(self, texts: Iterable[str], most: int) -> tuple[list[Example], int]:
        """Return at most ``most`` rows of text, with the target's side where the two can be compared.

        Returns:
            The rows; how many passages were left out, too short or not spelled by both.
        """
        found: list[Example] = []
        left_out = 0
        for text in _each_passage(self.draft, texts, self.length):
            if len(found) == most:
                break
            if self.pairing is None:
                example = plain_example(self.draft, text, self.length)
            else:
                same = self.pairing.same_vocabulary
                example = paired_example(self.draft, self.target, same, text, self.length)
            if example is None:
                left_out += 1
            else:
                found.append(example)
        return found, left_out

    def _of_target(self, work: Path, name: str, texts: Sequence[str], most: int) -> tuple[list[Example], int]:
        """Return at most ``most`` rows of what the target goes on with.

        Returns:
            The rows; how many continuations were left out, since the draft cannot spell them.
        """
        prompts = prompts_of(self.target, texts, self.prompt_tokens, most)
        if not len(prompts):
            return [], 0
        seed = [self.seed, *name.encode()]
        args = (self.model, self.target, prompts, self.max_tokens, self.temperature, seed, self.batch)
        pairs = list(zip(prompts, continued(work, name, *args), strict=True))
        if self.pairing is not None and self.pairing.same_vocabulary:
            return [same_ids_example(self.target, *pair) for pair in pairs], 0
        made = (respelled_example(self.draft, self.target, *pair) for pair in pairs)
        examples = [example for example in made if example is not None]
        return examples, len(pairs) - len(examples)


def prepare(
    work: Path,
    corpora: dict[str, Corpus],
    maker: Maker,
    rows: int,
    valid_rows: int,
    progress: Progress,
    reader: Reader = iter,
) -> None:
    """Make the rows of all tasks, unless they are there. Holds one corpus at a time in memory.

    Args:
        work: The work directory.
        corpora: Text by task.
        maker: Makes rows.
        rows: Rows to train on, for each task; fewer where there is no more text.
        valid_rows: Rows to measure on, for each task.
        progress: Called with a phrase when something begins.
        reader: Iterates over a corpus.

    Raises:
        CorpusError: A corpus gives no rows to train on or to measure on.
    """
    if (work / "tasks.json").exists():
        return
    facts: dict[str, Any] = {}
    for number, (name, corpus) in enumerate(corpora.items()):
        progress(f"{name}: reading text")
        train, held_out = _split(corpus, reader, valid_rows, np.random.default_rng([maker.seed, number]))
        progress(f"{name}: making rows")
        learned, one = maker.learned(work, f"{number}-train", train, rows)
        measured, two = maker.measured(work, f"{number}-valid", held_out, valid_rows)
        if not learned or not measured:
            raise CorpusError(
                f"{corpus.spec}: gives {len(learned)} rows to train on and {len(measured)} to measure on, expected "
                f"some of both from {len(train)} and {len(held_out)} documents. Give more text or longer documents, or "
                "shorter prompts (--prompt-tokens)"
            )
        save_examples(work / f"{number}.train.npz", learned)
        save_examples(work / f"{number}.valid.npz", measured)
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
    tasks = [
        Task(name, load_examples(work / f"{number}.train.npz"), load_examples(work / f"{number}.valid.npz"))
        for number, name in enumerate(facts)
    ]
    return tasks, facts


def _split(corpus: Corpus, reader: Reader, valid_rows: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return the documents to train on, in random order, and those that are held out."""
    documents = [(document.id, document.text) for document in reader(corpus)]
    share = max(_SHARE, min(_MOST, valid_rows / max(1, len(documents))))
    held_out = [text for name, text in documents if in_valid(name, share)]
    out = set(held_out)
    train = [text for _, text in documents if text not in out]
    return [train[place] for place in rng.permutation(len(train))], held_out


def _each_passage(tokenizer: Tokenizer, texts: Iterable[str], most: int) -> Iterator[str]:
    for text in texts:
        yield from passages(tokenizer, text, most)


def _with_places(examples: Sequence[Example]) -> list[Example]:
    """Return the rows at some place of which the target predicts the same."""
    return [example for example in examples if (example.at != NOWHERE).any()]


def _compared(examples: Sequence[Example]) -> float | None:
    """Return the share of the places at which the target predicts the same; None where it was not asked."""
    if not any(len(example.target) for example in examples):
        return None
    return float(np.concatenate([example.at != NOWHERE for example in examples]).mean())
