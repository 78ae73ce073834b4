"""Documents drawn from a corpus, so that little text stands for all of it."""

import random
from collections.abc import Iterable
from heapq import heappop, heappush

from spectool.corpora.documents import Document

SEED = 11


def sample_documents(documents: Iterable[Document], first: int, drawn: int) -> tuple[list[str], list[str]]:
    """The ``first`` characters of a corpus, and at most ``drawn`` characters of documents from all of it.

    Each document is equally likely to be drawn, and every run draws the same ones.
    """
    beginning: list[str] = []
    rng = random.Random(SEED)
    heap: list[tuple[float, str]] = []  # where there are too many, those with the highest numbers go
    size = 0
    for document in documents:
        if first > 0:
            beginning.append(document.text[:first])
            first -= len(document.text)
        heappush(heap, (-rng.random(), document.text))
        size += len(document.text)
        while size > drawn and len(heap) > 1:
            size -= len(heappop(heap)[1])
    return beginning, [text[:drawn] for _, text in heap]
