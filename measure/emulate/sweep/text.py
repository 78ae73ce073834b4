"""The text of one language in a sweep, as every process of it sees it.

Word n-grams are counted once for each language; the most frequent ones wait in files of the
sweep's folder for the groups that are built from them.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spectool import CorpusError
from spectool.artifacts.manifest import read_manifest
from spectool.artifacts.replacing import renaming
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.build.dictionary.dictspec_stage import ORDERS, count_corpus, open_counts
from spectool.corpora import Corpus, Document, OnError, open_corpus
from spectool.measure.emulate.sweep.grid import Language, Script

_BATCH = 512  # documents encoded at once


@dataclass(frozen=True, slots=True)
class SweptText:
    """Text to build from and text to replay.

    Attributes:
        language: Where they come from.
        folder: Where counts wait.
        sizes: N-grams to keep of each order.
        on_error: As for `open_corpus`.
        text_field: Likewise.
    """

    language: Language
    folder: Path
    sizes: tuple[tuple[str, int], ...] = ()
    on_error: OnError = "stop"
    text_field: str | None = None

    def open(self, spec: str) -> Corpus:
        """Open one of the two corpora."""
        return open_corpus(spec, on_error=self.on_error, text_field=self.text_field)

    def count(self, note: Callable[[str], None]) -> None:
        """Count the words of the text to build from, and keep the most frequent n-grams of every order asked for."""
        missing = [(order, size) for order, size in self.sizes if not self._counts(order).exists()]
        if not missing:
            return
        longest = max((order for order, _ in missing), key=ORDERS.__getitem__)
        if self.language.counts is not None:
            counted = open_counts(Path(self.language.counts), longest)
        elif self.language.build is not None:
            note(f"counting the words of {self.language.build}")
            counted = count_corpus(self.open(self.language.build), longest, self.language.split_as, self._reader)
        for order, size in missing:
            texts, counts = counted.ngrams.most_frequent(size, ORDERS[order])
            table = pa.table({"ngram": pa.array(texts, pa.string()), "count": pa.array(counts)})
            path = self._counts(order)
            with renaming(path) as partial:
                pq.write_table(table.replace_schema_metadata({"words": str(counted.ngrams.total_words)}), partial)

    def most_frequent(self, order: str) -> tuple[list[str], NDArray[np.int64]]:
        """Return the most frequent word n-grams up to ``order``, by falling count: texts and counts."""
        table = pq.read_table(self._counts(order), partitioning=None)
        return table["ngram"].to_pylist(), table["count"].combine_chunks().to_numpy()

    def words(self) -> int | None:
        """Return the number of words that were counted; None where none were."""
        for order, _ in self.sizes:
            return int(pq.read_schema(self._counts(order)).metadata[b"words"])
        return None

    def documents(self) -> tuple[Corpus, Callable[[Corpus], Iterator[Document]]]:
        """Return the text to build from, and how to read it.

        Raises:
            CorpusError: There is none: the grid names counts of words in its place.
        """
        if self.language.build is None:
            raise CorpusError("expected a text to build from, got counts of words. Name it in the grid: build = …")
        return self.open(self.language.build), self._reader

    def replayed(self, tokenizer: Tokenizer, limit: int) -> tuple[list[list[int]], int]:
        """Return the documents to replay, whole ones until there are ``limit`` tokens (0: all), and their words.

        Raises:
            CorpusError: It cannot be read, or no line of it is in the script asked for.
        """
        documents: list[list[int]] = []
        words = tokens = 0
        for texts in _batches(document.text for document in self._reader(self.open(self.language.replay))):
            for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
                documents.append(ids)
                words += len(text.split())
                tokens += len(ids)
                if 0 < limit <= tokens:
                    return documents, words
        if not documents:
            raise CorpusError(
                f"{self.language.replay}: expected lines in {self.language.script} script, got none. Name another "
                "text to replay, or another script"
            )
        return documents, words

    def _reader(self, corpus: Corpus) -> Iterator[Document]:
        script = self.language.script
        return (document for document in corpus if script is None or script_of(document.text) == script)

    def measured_on(self) -> dict[str, Any]:
        """Return the columns of a run that say which text this is. Finds its files and reads none of them."""
        language = self.language
        size = None if language.build is None else self.open(language.build).total_bytes
        if language.counts is not None:
            size = read_manifest(Path(language.counts)).total_bytes
        return {
            "build_corpus": language.counts or language.build,
            "build_bytes": size,
            "replay_corpus": language.replay,
            "replay_bytes": self.open(language.replay).total_bytes,
            "script": language.script,
            "split_as": language.split_as,
        }

    def _counts(self, order: str) -> Path:
        what = (sorted(self.measured_on().items()), order, dict(self.sizes)[order])
        return self.folder / f"counts.{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}.parquet"


def script_of(text: str) -> Script:
    """Tell whether most letters of a text are Cyrillic or not.

    >>> script_of("Qırım — Крым, Украина")
    'cyrillic'
    """
    letters = [_is_cyrillic(char) for char in text if char.isalpha()]
    return "cyrillic" if 2 * sum(letters) > len(letters) else "latin"


@cache
def _is_cyrillic(char: str) -> bool:
    return unicodedata.name(char, "").startswith("CYRILLIC")


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(texts, _BATCH)):
        yield batch
