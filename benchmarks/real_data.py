"""Real tokenizers and corpora for the benchmarks, from the folder named by SPECTOOL_SHARED."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from spectool.corpora import Corpus, open_corpus
from spectool.tokenization import Tokenizer, open_tokenizer

SHARED = Path(os.environ.get("SPECTOOL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
_BATCH = 512  # documents encoded at once


def real_tokenizer(name: str) -> Tokenizer:
    """Open ``tokenizers/NAME/tokenizer.json``."""
    return open_tokenizer(SHARED / "tokenizers" / name / "tokenizer.json")


def real_corpus(language: str, part: str) -> Corpus:
    """Open ``corpora/LANGUAGE.PART.txt.zst``; part is train or valid."""
    return open_corpus(str(SHARED / "corpora" / f"{language}.{part}.txt.zst"))


def encoded(tokenizer: Tokenizer, corpus: Corpus, tokens: int) -> Iterator[list[int]]:
    """Yield ids of whole documents, from the corpus's beginning, until there are ``tokens`` of them."""
    texts = (document.text for document in corpus)
    while tokens > 0 and (batch := list(islice(texts, _BATCH))):
        for ids in tokenizer.encode_batch(batch):
            yield ids
            tokens -= len(ids)
            if tokens <= 0:
                return
