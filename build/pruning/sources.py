"""What says which tokens a language needs: text, or a pack, whose words are spelled in tokens with their counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.artifacts.pack import Pack
from spectool.build.corpus_reading import sample_texts, with_progress
from spectool.build.packs.compiling import spell
from spectool.build.pruning.vocabulary import COVERAGE, PACK_COVERAGE
from spectool.corpora import Corpus
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.tokenizer import Tokenizer

COUNTED = 8_000_000  # characters of a corpus in which tokens are counted; documents are drawn from a larger one
SEED = 11  # of the draw
_TOGETHER = 256  # pieces of a pack that are compared as one text


@dataclass(frozen=True)
class Source:
    """A language's text, as far as pruning needs it."""

    name: str  # in errors
    facts: Mapping[str, Any]  # what the manifest says of it
    characters: frozenset[str]  # all that occur
    counts: NDArray[np.int64]  # occurrences of each token, ``[size]``
    coverage: float  # share of them to keep
    texts: Sequence[str]  # what a pruned tokenizer has to decode as the whole one does

    def compare(self, whole: Tokenizer, pruned: Tokenizer) -> dict[str, int]:
        """The tokens of all texts ``before`` and ``after`` pruning, once both are found to decode them alike.

        Raises:
            TokenizerError: They do not; the error names the place.
        """
        tokens = {"before": 0, "after": 0}
        for (text, ids), (_, old) in zip(pruned.encode_each(self.texts), whole.encode_each(self.texts), strict=True):
            tokens["before"] += len(old)
            tokens["after"] += len(ids)
            given, expected = pruned.bytes_of(ids), whole.bytes_of(old)
            if given != expected:
                at = common_prefix(given, expected)
                raise TokenizerError(
                    f"{self.name}, {text[:40]!r}…: from byte {at} on, expected the pruned tokenizer to decode "
                    f"{expected[at : at + 20]!r} like the original one, got {given[at : at + 20]!r}. Keep more tokens "
                    "with --ids"
                )
        return tokens


def counted_text(corpus: Corpus, whole: Tokenizer) -> Source:
    """Documents of a corpus, drawn from all of them."""
    texts = sample_texts(with_progress(corpus), COUNTED, SEED)
    tokens = (token for _, ids in whole.encode_each(texts) for token in ids)
    return Source(
        corpus.spec,
        {"corpus": corpus.spec, "characters": sum(map(len, texts))},
        frozenset(char for text in texts for char in text),
        np.bincount(np.fromiter(tokens, np.int64), minlength=whole.size),
        COVERAGE,
        texts,
    )


def counted_pack(pack: Pack, whole: Tokenizer) -> Source:
    """The pieces of a pack, each as often as the pack says."""
    symbols, spelled = spell(pack, whole)
    times = np.repeat(pack.orders[0].count, spelled)
    is_text = symbols > 0  # a special token is none
    counts = np.bincount(symbols[is_text] - 1, times[is_text], minlength=whole.size)
    pieces = pack.pieces
    return Source(
        str(pack.path),
        {"pack": pack.name, "pieces": len(pieces)},
        frozenset("".join(pieces)),
        counts.astype(np.int64),
        PACK_COVERAGE,
        ["".join(pieces[at : at + _TOGETHER]) for at in range(0, len(pieces), _TOGETHER)],
    )
