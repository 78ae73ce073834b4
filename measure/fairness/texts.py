"""The text of a task: some of its documents, and passages of them that every tokenizer spells exactly.

Target and drafts are measured on the same passages, drawn with a seed: documents from the whole corpus, then one
passage of each by turns.
"""

import heapq
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pandas as pd

from spectool import CorpusError
from spectool.artifacts import Tokenizer
from spectool.build.inputs import Reader, describe_corpus
from spectool.build.training.tuning.examples import passages
from spectool.corpora import Corpus

_DOCUMENTS = 8  # kept for each passage wanted


@dataclass(frozen=True, slots=True)
class TaskText:
    """Text to measure a task on."""

    documents: tuple[str, ...]  # whole documents
    passages: tuple[str, ...]  # passages of them
    left_out: int  # passages that some tokenizer does not spell
    inputs: dict[str, Any]  # what was read, for the record

    @property
    def words(self) -> int:
        """Pieces of the documents between white space."""
        return sum(len(text.split()) for text in self.documents)


def read_text(
    corpus: Corpus, target: Tokenizer, others: Sequence[Tokenizer], reader: Reader, rows: int, length: int, seed: int
) -> TaskText:
    """Draw the text of a task.

    Args:
        corpus: Where it comes from; read once, some of its documents kept.
        target: The target's tokenizer; it counts the tokens of a passage.
        others: Tokenizers of the drafts.
        reader: Iterates over a corpus.
        rows: Passages at most.
        length: Tokens of a passage at most; one long word may have more.
        seed: Seeds the draw. Corpora of as many documents give documents of the same places.

    Raises:
        CorpusError: It gives fewer than two passages that all tokenizers spell.
    """
    rng = random.Random(seed)
    drawn = ((rng.random(), place, document.text) for place, document in enumerate(reader(corpus)))
    documents = [text for _, _, text in heapq.nsmallest(rows * _DOCUMENTS, drawn)]
    found: list[str] = []
    left_out = 0
    for passage in _by_turns(_shuffled(passages(target, text, length), rng) for text in documents):
        if not all(
            tokenizer.bytes_of(tokenizer.encode(passage)) == passage.encode() for tokenizer in (target, *others)
        ):
            left_out += 1
        elif len(target.encode(passage)) > 1:
            found.append(passage)
        if len(found) == rows:
            break
    if len(found) < 2:
        raise CorpusError(
            f"{corpus.spec}: gives {len(found)} passages of at most {length} tokens, expected at least 2; {left_out} "
            "are left out because a tokenizer does not keep their bytes. Give more text, or see what a tokenizer "
            "keeps: spectool inspect TOKENIZER --as-loaded"
        )
    return TaskText(tuple(documents), tuple(found), left_out, describe_corpus(corpus))


def _shuffled(items: Iterable[str], rng: random.Random) -> Iterator[str]:
    listed = list(items)
    rng.shuffle(listed)
    yield from listed


def _by_turns(sources: Iterable[Iterator[str]]) -> Iterator[str]:
    """Yield the first item of every source, then the second of those that have one, and so on."""
    while True:
        left = []
        for source in sources:
            for item in islice(source, 1):
                yield item
                left.append(source)
        if not left:
            return
        sources = left


def fertility(
    tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, TaskText], reference: str | None, parallel: bool
) -> dict[str, Any]:
    """Return fertility and tax of every tokenizer and task: how many tokens a language needs for what it says.

    Fertility is tokens per piece of text between white space (DictSpec, section 4.3). The tax is fertility over that of
    the reference. Where the corpora are parallel it is tokens over tokens of the reference for the same content, which
    needs no words. That is the premium of Petrov et al., 2023.

    Args:
        tokenizers: By name.
        texts: By task.
        reference: Task whose tax is 1; None for the least of each tokenizer.
        parallel: Whether the documents of all tasks say the same.

    Raises:
        CorpusError: Said to be parallel, the corpora have different numbers of documents.
    """
    counts = {task: text.inputs["documents"] for task, text in texts.items()}
    if parallel and len(set(counts.values())) > 1:
        said = ", ".join(f"{task} {count:,}" for task, count in counts.items())
        raise CorpusError(
            f"--parallel: expected corpora of as many documents, got {said}. Give translations, document by document, "
            "or leave it out"
        )
    words = pd.Series({task: text.words for task, text in texts.items()})
    found: dict[str, Any] = {}
    for name, tokenizer in tokenizers.items():
        tokens = {task: sum(map(len, tokenizer.encode_batch(list(text.documents)))) for task, text in texts.items()}
        table = pd.DataFrame({"tokens": tokens, "fertility": pd.Series(tokens) / words})
        compared = table["tokens" if parallel else "fertility"]
        table["tax"] = compared / (compared.min() if reference is None else compared[reference])
        found[name] = {task: row.to_dict() | {"tokens": tokens[task]} for task, row in table.iterrows()}
    return {"reference": reference, "parallel": parallel, "tokenizers": found}
