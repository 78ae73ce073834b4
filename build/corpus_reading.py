"""How the stages read a corpus: document by document, encoded in batches, and described in manifests."""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

Progress = Callable[[str], None]
"""Called at the start of each step with a short description."""


def with_progress(corpus: Corpus) -> Iterator[str]:
    """Yield the documents of a corpus under a progress bar; silent if stderr is not a terminal."""
    from tqdm import tqdm

    with tqdm(total=corpus.total_bytes, unit="B", unit_scale=True, desc="reading", disable=None) as bar:
        for document in corpus:
            bar.update(corpus.counts.bytes_read - bar.n)
            yield document
        bar.update(corpus.counts.bytes_read - bar.n)


def encode_text(tokenizer: Tokenizer, texts: Iterable[str], limit: int = 0) -> list[list[int]]:
    """The canonical ids of documents, ``limit`` of all of them, so that the last one may be cut; all for 0."""
    documents, left = list[list[int]](), limit or sys.maxsize
    for _, ids in tokenizer.encode_each(texts):
        documents.append(ids[:left])
        left -= len(ids)
        if left <= 0:
            break
    return documents


def describe_corpus(*corpora: Corpus) -> dict[str, Any]:
    """What a manifest says about corpora that have been read: names, sizes, hashes, documents, repairs."""
    counts = [corpus.counts for corpus in corpora]
    return {
        "corpus": ", ".join(corpus.spec for corpus in corpora),
        "files": [file for corpus in corpora for file in corpus.describe_inputs()],
        "documents": sum(each.documents for each in counts),
        "characters": sum(each.characters for each in counts),
        "repaired": dict(sorted(sum((each.repaired for each in counts), Counter[str]()).items())),
    }


def sample_texts(texts: Iterable[str], most: int, seed: int) -> list[str]:
    """Texts of at most ``most`` characters together, drawn from all of them, each equally likely; one in any case."""
    rng = random.Random(seed)
    drawn: list[tuple[float, str]] = []  # a heap: where there are too many, those with the highest numbers go
    size = 0
    for text in texts:
        heappush(drawn, (-rng.random(), text))
        size += len(text)
        while size > most and len(drawn) > 1:
            size -= len(heappop(drawn)[1])
    return [text[:most] for _, text in drawn]


def quiet(step: str) -> None:
    """A `Progress` that shows nothing, for a stage that is a step of another one."""
