"""The text of one language in a sweep."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from spectool import CorpusError
from spectool.artifacts.default_paths import digest
from spectool.commands.shared.console import say
from spectool.corpora import Corpus, open_corpus
from spectool.lab.dictspec import ORDERS, WordNgrams
from spectool.lab.resumable import read_json, write_json
from spectool.lab.sweep.grid import Language
from spectool.tokenization.tokenizer import Tokenizer


class EncodedText(NamedTuple):
    """Documents to replay."""

    documents: list[list[int]]  # canonical target ids of each
    words: int  # white-space separated words in all of them


@dataclass(frozen=True, slots=True)
class SweptText:
    """Text to build from and text to replay."""

    language: Language  # names both corpora
    work: Path  # the sweep's work directory, which keeps the counts
    order: str = ""  # longest word n-grams that dictionaries are built from; empty where none are
    entries: int = 0  # number of the most frequent ones that the largest dictionary takes

    def open(self, spec: str) -> Corpus:
        """One of the two corpora, opened."""
        return open_corpus(spec)

    def read(self, corpus: Corpus) -> Iterator[str]:
        """The documents in the language's script."""
        script = self.language.script
        return (document for document in corpus if script is None or script_of(document) == script)

    def count(self) -> None:
        """Count the words of the text to build from, unless that was done before."""
        if self.order and not self._counts.exists():
            say(f"counting the words of {self.language.build}")
            texts = self.read(self.open(self.language.build))
            ngrams = WordNgrams(texts, ORDERS[self.order])
            orders = {name: order for name, order in ORDERS.items() if order <= ORDERS[self.order]}
            most = {name: ngrams.most_frequent(self.entries, order) for name, order in orders.items()}
            write_json(self._counts, {"words": ngrams.total, **most})

    @property
    def words(self) -> dict[str, Any]:
        """What `count` counted: the number of ``words``, and by `ORDERS` the most frequent n-grams with counts."""
        counts: dict[str, Any] = read_json(self._counts)
        return counts

    def replayed(self, tokenizer: Tokenizer, limit: int) -> EncodedText:
        """The documents to replay, encoded: whole ones until there are ``limit`` tokens, or all where that is 0.

        Raises:
            CorpusError: The text cannot be read, or no line of it is in the script asked for.
        """
        documents = self.read(self.open(self.language.replay))
        found, words, tokens = list[list[int]](), 0, 0
        for text, ids in tokenizer.encode_each(documents):
            found.append(ids)
            words += len(text.split())
            tokens += len(ids)
            if 0 < limit <= tokens:
                break
        if not found:
            raise CorpusError(
                f"{self.language.replay}: expected lines in {self.language.script} script, got none. Name another "
                "text to replay, or another script"
            )
        return EncodedText(found, words)

    def measured_on(self) -> dict[str, Any]:
        """The columns of a run that identify this text; looks at file sizes and reads no file."""
        language = self.language
        return {
            "build_corpus": language.build,
            "build_bytes": self.open(language.build).total_bytes,
            "replay_corpus": language.replay,
            "replay_bytes": self.open(language.replay).total_bytes,
            "script": language.script,
            "split_as": None,
        }

    @property
    def _counts(self) -> Path:
        return self.work / f"{digest(sorted(self.measured_on().items()), self.order, self.entries)}.words.json"


def script_of(text: str) -> str:
    """The script of most letters of a text, ``cyrillic`` or ``latin``.

    >>> script_of("Qırım — Крым, Украина")
    'cyrillic'
    """
    letters = [_is_cyrillic(char) for char in text if char.isalpha()]
    return "cyrillic" if 2 * sum(letters) > len(letters) else "latin"


@cache
def _is_cyrillic(char: str) -> bool:
    return unicodedata.name(char, "").startswith("CYRILLIC")
