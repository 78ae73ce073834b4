"""Every strategy with a draft that knows the text reaches what the ceiling says; names, directions, order."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest

from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.lab.ngram_model import DraftSource
from spectool.lab.strategies import STRATEGIES, make_translator
from spectool.measure.replay import replay
from spectool.runtime import FirstTokenRule
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.tests.lab.ceiling_twin import translation_ceiling
from spectool.tests.runtime.translation.translation_twin import encode_inside
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

LENGTHS = (1, 2, 4)
PAIRS = ("other:target", "target:other")


class Pair:
    """Two tokenizers, their alignment, and a few lines of text."""

    def __init__(self, draft: Tokenizer, target: Tokenizer, alignment: Alignment, texts: list[str]) -> None:
        self.draft, self.target, self.alignment, self.texts = draft, target, alignment, texts
        self.documents = [target.encode(text) for text in texts]
        self.ceiling = translation_ceiling(draft, target, texts, alignment.draft.counterpart, LENGTHS)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("pairs")
    texts = [document.strip()[:200].rstrip() for name in ("pl", "uk") for document in _first(name, 12)]
    (folder / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    opened = {name: open_tokenizer(demo_path(name)) for name in ("other", "target")}  # type: ignore[arg-type]
    made = {}
    for pair in PAIRS:
        draft, target = map(opened.__getitem__, pair.split(":"))
        path = folder / pair
        build_alignment(draft, target, open_corpus(str(folder / "text.txt")), path, lambda step: None, sample=0)
        made[pair] = Pair(draft, target, Alignment(path), texts)
    return made


def _first(sample: str, count: int) -> list[Any]:
    return [document for document, _ in zip(open_corpus(f"sample:{sample}"), range(count), strict=False)]


class Reference(DraftSource):
    """A draft that knows the text: it says what lies between the frontier and the end of its k-th token.

    ``none`` gets the text's own draft ids, ``intersection`` those of the text restarted at the frontier,
    the others any ids that spell the piece.
    """

    def __init__(self, pair: Pair, strategy: str) -> None:
        self._draft, self._target, self._strategy = pair.draft, pair.target, strategy
        self._documents = list(zip(pair.texts, pair.documents, strict=True))
        self._number = -1
        self.committed = 0

    def start(self) -> None:
        self._number += 1
        self.committed = 0
        text, ids = self._documents[self._number % len(self._documents)]
        self._text = text.encode()
        self._target_ends = ends_in_text(self._target, ids)
        self._ids = self._draft.encode(text)
        self._ends = ends_in_text(self._draft, self._ids)

    def draft(self, context: Sequence[int], constraint: FirstTokenRule, limit: int) -> tuple[list[int], bool]:
        frontier = self._target_ends[self.committed - 1] if self.committed else 0
        straddling = next(place for place, end in enumerate(self._ends) if end > frontier or not self.committed)
        if self._strategy == "none":
            return self._ids[straddling : straddling + limit], False
        end = whole(self._text, self._ends[min(straddling + limit, len(self._ends)) - 1])
        if self._strategy == "intersection":
            return self._restarted(frontier, limit), False
        if end <= frontier:
            return [], False
        begin = whole(self._text, frontier) if self._strategy == "byte-aligned" else frontier
        piece = self._text[begin:end].decode(errors="replace")
        return (encode_inside(self._draft, [piece])[0] if begin else self._draft.encode(piece)), False

    def _restarted(self, frontier: int, limit: int) -> list[int]:
        if whole(self._text, frontier) != frontier:
            return []
        rest = self._text[frontier:].decode()
        return (encode_inside(self._draft, [rest])[0] if self.committed else self._ids)[:limit]


class Watched:
    """A translator that tells an oracle how far the target has come."""

    def __init__(self, translator: Any, oracle: Reference) -> None:
        self._translator, self._oracle = translator, oracle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._translator, name)

    def start(self) -> None:
        self._oracle.start()
        self._translator.start()

    def commit(self, tokens: Sequence[int]) -> None:
        self._oracle.committed += len(tokens)
        self._translator.commit(tokens)


def ends_in_text(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Where each token ends, in bytes of the text."""
    token_bytes = [tokenizer.token_bytes[token] for token in ids]
    artificial = tokenizer.leading_space and token_bytes[0].startswith(b" ")
    return [end - artificial for end in accumulate(map(len, token_bytes))]


def whole(text: bytes, end: int) -> int:
    """The last character boundary at or before ``end``."""
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    return end


def reached(pair: Pair, strategy: str, length: int) -> float:
    oracle = Reference(pair, strategy)
    translator: Any = Watched(make_translator(strategy, pair.alignment, pair.draft, pair.target), oracle)
    drafter = TranslatedDrafter(oracle, translator, length)
    return replay(pair.documents, drafter, 16 * length).tokens_per_pass


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_perfect_draft_reaches_the_ceiling(pairs: dict[str, Pair], strategy: str, name: str, length: int) -> None:
    pair = pairs[name]
    ceiling = pair.ceiling[strategy][length]
    found = reached(pair, strategy, length)
    # The ceiling's window of `context` is the text's own; the strategy's comes from its way back, piece by piece.
    assert found == pytest.approx(ceiling, rel=0.02 if strategy == "context" else 1e-9)


def test_the_ceiling_tells_strategies_apart(pairs: dict[str, Pair]) -> None:
    for pair in pairs.values():
        at_4 = {name: lengths[4] for name, lengths in pair.ceiling.items()}
        assert 1 <= at_4["none"] < at_4["naive"] <= at_4["context"] <= at_4["byte-aligned"] > at_4["intersection"] > 1
