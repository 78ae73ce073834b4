"""The text of a task: some of its documents, and passages of them that every tokenizer spells exactly.

Target and drafts are measured on the same passages. Documents are drawn from the whole corpus by the seed, and each in
turn gives one passage.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spectool import CorpusError
from spectool.build.corpus_reading import describe_corpus, with_progress
from spectool.corpora import Corpus
from spectool.lab.tuning.examples import passages
from spectool.tokenization.tokenizer import Tokenizer

_DOCUMENTS = 8  # kept for each passage wanted


@dataclass(frozen=True, slots=True)
class TaskText:
    """Text to measure a task on."""

    documents: tuple[str, ...]  # whole documents
    passages: tuple[str, ...]  # passages of them
    left_out: int  # passages that some tokenizer does not spell
    inputs: dict[str, Any]  # what was read, for the record


def read_task_text(
    corpus: Corpus, target: Tokenizer, others: Sequence[Tokenizer], rows: int, length: int, seed: int
) -> TaskText:
    """At most ``rows`` passages of a corpus, of at most ``length`` of the target's tokens each, drawn by ``seed``.

    A passage of one long word may have more tokens. The corpus is read once; corpora with equally many documents give
    documents from the same places, so parallel texts stay parallel.

    Raises:
        CorpusError: It gives fewer than two passages that all tokenizers spell.
    """
    rng = random.Random(seed)
    drawn = ((rng.random(), place, document) for place, document in enumerate(with_progress(corpus)))
    documents = [text for _, _, text in heapq.nsmallest(rows * _DOCUMENTS, drawn)]
    found: list[str] = []
    left_out = 0
    turns = deque(_shuffled(passages(target, text, length), rng) for text in documents)
    while turns and len(found) < rows:
        passage = next(turns[0], None)
        if passage is None:
            turns.popleft()
            continue
        turns.rotate(-1)
        if any(each.bytes_of(each.encode(passage)) != passage.encode() for each in (target, *others)):
            left_out += 1
        elif len(target.encode(passage)) > 1:
            found.append(passage)
    if len(found) < 2:
        raise CorpusError(
            f"{corpus.spec}: gives {len(found)} passages of at most {length} tokens, expected at least 2; {left_out} "
            "are left out because a tokenizer does not keep their bytes. Give more text, or see what a tokenizer "
            "keeps: spectool inspect TOKENIZER"
        )
    return TaskText(tuple(documents), tuple(found), left_out, describe_corpus(corpus))


def _shuffled(items: Iterable[str], rng: random.Random) -> Iterator[str]:
    listed = list(items)
    rng.shuffle(listed)
    yield from listed
