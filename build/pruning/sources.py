"""What says which tokens a language needs: text, or a pack, whose words are spelled in tokens with their counts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.artifacts.pack import Pack
from spectool.build.corpus_reading import describe_corpus, encoded, sample_texts, with_progress
from spectool.build.packs.compiling import spell
from spectool.build.packs.stage import described
from spectool.build.pruning.vocabulary import COVERAGE, PACK_COVERAGE
from spectool.corpora import Corpus
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.tokenizer import Tokenizer

COUNTED = 8_000_000  # characters of a corpus in which tokens are counted; documents are drawn from a larger one
SEED = 11  # of the draw
_TOGETHER = 256  # pieces of a pack that are compared as one text


class Source(Protocol):
    """A language's text, as far as pruning needs it.

    Attributes:
        name: What the user called it.
        characters: All that occur.
        counts: Occurrences of each token, ``[size]``.
        coverage: Share of them to keep.
    """

    name: str
    characters: frozenset[str]
    counts: NDArray[np.int64]
    coverage: float

    def compare(self, pruned: Tokenizer) -> dict[str, Any]:
        """Figures for the manifest, once the pruned tokenizer is known to decode the text as the whole one does.

        Raises:
            TokenizerError: It does not; the error names the place.
        """


class CountedText:
    """Documents of a corpus, drawn from all of them."""

    coverage = COVERAGE

    def __init__(self, corpus: Corpus, whole: Tokenizer) -> None:
        self._corpus, self._whole = corpus, whole
        self._texts = sample_texts((document.text for document in with_progress(corpus)), COUNTED, SEED)
        self._ids = [ids for _, ids in encoded(whole, self._texts)]
        self.name = corpus.spec
        self.characters = frozenset(char for text in self._texts for char in text)
        self.counts = np.bincount([token for ids in self._ids for token in ids], minlength=whole.size)

    def compare(self, pruned: Tokenizer) -> dict[str, Any]:
        """The characters that were counted, and their tokens before and after."""
        tokens = 0
        for (text, ids), old in zip(encoded(pruned, self._texts), self._ids, strict=True):
            tokens += len(ids)
            if pruned.bytes_of(ids) != self._whole.bytes_of(old):
                place = next((one.id for one in self._corpus if one.text.startswith(text)), text[:40])
                _refuse(place, "this document", pruned.bytes_of(ids), self._whole.bytes_of(old))
        characters = sum(map(len, self._texts))
        return {"corpus": self.name, "characters": characters, "before": int(self.counts.sum()), "after": tokens}


class CountedPack:
    """The pieces of a pack, each as often as the pack says."""

    coverage = PACK_COVERAGE

    def __init__(self, pack: Pack, whole: Tokenizer) -> None:
        self._pack, self._whole = pack, whole
        spelled = spell(pack, whole)
        times = np.repeat(pack.orders[0].count, spelled.length)
        text = spelled.symbols > 0  # a special token is no text
        counts = np.bincount(spelled.symbols[text] - 1, times[text], minlength=whole.size)
        self.name = pack.path.name
        self.characters = frozenset("".join(pack.pieces))
        self.counts = counts.astype(np.int64)

    def compare(self, pruned: Tokenizer) -> dict[str, Any]:
        """The pieces that were counted, and their tokens before."""
        pieces = self._pack.pieces
        texts = ["".join(pieces[at : at + _TOGETHER]) for at in range(0, len(pieces), _TOGETHER)]
        for (text, ids), (_, old) in zip(encoded(pruned, texts), encoded(self._whole, texts), strict=True):
            if pruned.bytes_of(ids) != self._whole.bytes_of(old):
                place = f"{self._pack.path}, pieces from {text[:20]!r} on"
                _refuse(place, "these", pruned.bytes_of(ids), self._whole.bytes_of(old))
        return {"pack": self.name, "pieces": len(pieces), "before": int(self.counts.sum())}


def describe_sources(corpora: Sequence[Corpus], packs: Sequence[Pack]) -> dict[str, Any]:
    """What a manifest says about corpora that have been read, and about packs."""
    each = [describe_corpus(corpus) for corpus in corpora]
    return {
        "corpus": ", ".join([*(one["corpus"] for one in each), *(pack.path.name for pack in packs)]),
        "files": [file for one in each for file in one["files"]],
        "documents": sum(one["documents"] for one in each),
        "characters": sum(one["characters"] for one in each),
        "repaired": dict(sum((Counter(one["repaired"]) for one in each), Counter[str]())),
        "packs": described(packs),
    }


def _refuse(place: str, what: str, given: bytes, expected: bytes) -> None:
    at = common_prefix(given, expected)
    raise TokenizerError(
        f"{place}: from byte {at} of {what}, expected the pruned tokenizer to decode {expected[at : at + 20]!r} like "
        f"the original one, got {given[at : at + 20]!r}. Keep more tokens with --ids"
    )
