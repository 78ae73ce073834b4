"""Pairs of tokenizers of some hundred ids, with a draft and a target that know a dozen of them each."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers

from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.lab.drawing.drafter import DrawingTranslator
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

TEXT = "kot kota kotek ko ta tak oto żeto ża żo taż kto tko akta\n" * 4
_SHARPNESS = 1.3  # standard deviation of the logits


def byte_level(*merges: str) -> Tokenizer:
    """Byte-level BPE; nothing is cut before the merges, each of two tokens joined by `+`."""
    pairs = [tuple(merge.replace(" ", "Ġ").replace("ż", "Å¼").replace("Å+¼", "Å+¼").split("+")) for merge in merges]
    names = [*byte_symbols(), *("".join(pair) for pair in pairs)]
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>"])
    return open_tokenizer(backend)


def sentence_piece(*merges: str) -> Tokenizer:
    """SentencePiece-style BPE with byte fallback; no space before a text."""
    pairs = [tuple(merge.replace(" ", "▁").split("+")) for merge in merges]
    names = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"kotae", *map("".join, pairs)]
    backend = Backend(
        models.BPE({name: place for place, name in enumerate(names)}, pairs, byte_fallback=True, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(["<unk>", "</s>"])
    return open_tokenizer(backend)


class Table:
    """A model that knows some ids: logits at random, from a seed and the last two ids."""

    def __init__(self, seed: int, known: Sequence[int], size: int) -> None:
        self.known, self.size, self._seed = list(known), size, seed
        self._after: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def logits(self, ids: Sequence[int]) -> NDArray[np.float64]:
        """Return the logits after ``ids``, -inf for what is not known [size]; not to be changed."""
        last = tuple(map(int, ids[-2:]))
        if last not in self._after:
            rng = np.random.default_rng([self._seed, zlib.crc32(repr(last).encode())])
            self._after[last] = np.full(self.size, -np.inf)
            self._after[last][self.known] = rng.normal(0, _SHARPNESS, len(self.known))
        return self._after[last]


class TableScorer:
    """A `Table` over draft ids as a `Scorer`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._root: list[int] = []

    def begin(self, ids: Sequence[int], healing: bool) -> tuple[int, ...] | None:
        healing = healing and len(ids) > 1
        self._root = list(ids[:-1] if healing else ids)
        return tuple(ids[len(self._root) :])

    def best(
        self, path: tuple[int, ...], among: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        ids = np.arange(self._table.size, dtype=np.int32) if among is None else among
        return ids, self._table.logits([*self._root, *path])[ids]

    def score(self, path: tuple[int, ...], token: int) -> float:
        return float(self._table.logits([*self._root, *path])[token])


@dataclass(frozen=True)
class ToyPair:
    """Two tokenizers, a draft and a target, and prompts after which they are tried.

    Attributes:
        draft_tokens: What the draft knows, by raw.
        target_tokens: What the target knows.
        prompts: Target tokens by raw.
    """

    draft: Tokenizer
    target: Tokenizer
    draft_tokens: tuple[bytes, ...]
    target_tokens: tuple[bytes, ...]
    prompts: tuple[tuple[bytes, ...], ...]

    def translator(self, folder: Path) -> DrawingTranslator:
        """Align the two in ``folder``."""
        (folder / "text.txt").write_text(TEXT, encoding="utf-8")
        build_alignment(self.draft, self.target, open_corpus(str(folder / "text.txt")), folder / "a", lambda step: None)
        return DrawingTranslator(Alignment(folder / "a"), self.draft, self.target)

    @cached_property
    def draft_model(self) -> Table:
        return Table(1, [*ids_of(self.draft, self.draft_tokens), self.draft.roles.eos[0]], self.draft.size)

    @cached_property
    def target_model(self) -> Table:
        return Table(2, [*ids_of(self.target, self.target_tokens), self.target.roles.eos[0]], self.target.size)

    @cached_property
    def prompt_ids(self) -> list[list[int]]:
        return [ids_of(self.target, prompt) for prompt in self.prompts]


def ids_of(tokenizer: Tokenizer, token_bytes: Sequence[bytes]) -> list[int]:
    """Return the first id with each of some bytes; where there are two, the one that is no byte token."""
    found = []
    for raw in token_bytes:
        ids = [token for token, other in enumerate(tokenizer.token_bytes) if other == raw]
        assert ids, raw
        found.append(max(ids))
    return found


_LONG = ("k+o", "ko+t", "kot+a", "t+a", "t+o", "ta+k", "a+k", " +k", " k+o", " ko+t")
_SHORT = ("k+o", "t+a")
_Z = ("Å+¼", "ż+e", "ż+a")
PAIRS = {
    "byte-level to SentencePiece": ToyPair(
        byte_level(*_LONG),
        sentence_piece(" +k", "o+t", "t+a", "ot+a"),
        (b"k", b"ko", b"kot", b"kota", b"ta", b"to", b"tak", b" k", b" ko", b" kot", b" ", b"o"),
        (b"k", b"o", b"t", b"a", b" ", b" k", b"ot", b"ta", b"ota"),
        ((b"k",), (b"ot", b"a"), (b"t", b"o", b" "), (b"k", b"ota"), (b"a", b" k", b"o")),
    ),
    "SentencePiece to byte-level": ToyPair(
        sentence_piece(*_LONG),
        byte_level(" +k", "o+t", "t+a", "ot+a"),
        (b"k", b"ko", b"kot", b"kota", b"ta", b"to", b"tak", b" k", b" ko", b" kot", b" ", b"o"),
        (b"k", b"o", b"t", b"a", b" ", b" k", b"ot", b"ta", b"ota"),
        ((b"k",), (b"ot", b"a"), (b"t", b"o", b" "), (b"k", b"ota"), (b"a", b" k", b"o")),
    ),
    "byte fallback": ToyPair(
        byte_level(*_SHORT, *_Z),
        sentence_piece("k+o", "t+a"),
        (b"k", b"ko", b"ta", "ż".encode(), "że".encode(), "ża".encode(), b"o", b"a", b"\xc5", b"\xbc", b" "),
        (b"k", b"o", b"ta", b"a", b"e", b"ko", b" ", b"\xc5", b"\xbc"),
        ((b"k",), (b"ta", b"\xc5", b"\xbc"), (b"ko", b" "), (b"a", b"e")),
    ),
    "pending bytes": ToyPair(
        byte_level("k+o", *_Z, "o+Å"),
        byte_level("k+o", "¼+e", "a+Å", "Å+¼"),
        (b"k", b"ko", b"o", b"a", "ż".encode(), "że".encode(), "ża".encode(), b"\xc5", b"\xbc", b"o\xc5", b"e"),
        (b"k", b"o", b"ko", b"a", b"e", b"\xc5", b"\xbc", b"\xbce", b"a\xc5"),
        (
            (b"o", b"\xc5"),
            (b"k", b"\xc5"),
            (b"ko", b"a\xc5"),
            (b"\xc5",),
            (b"o", b"\xc5", b"\xbc"),
            (b"k", b"a", b"\xc5"),
        ),
    ),
    "healing": ToyPair(
        byte_level("k+o", "ko+t", "kot+a", "t+a", "kot+e", "kote+k", "ta+k", "tak+t"),
        byte_level("e+k"),
        (b"k", b"ko", b"kot", b"kota", b"kote", b"kotek", b"t", b"ta", b"tak", b"takt", b"a"),
        (b"k", b"o", b"t", b"a", b"e", b"ek"),
        ((b"k",), (b"a", b"k", b"o"), (b"k", b"o", b"t"), (b"o", b"t", b"a"), (b"t",), (b"e", b"k", b"o", b"t")),
    ),
    "head filter": ToyPair(
        byte_level("o+t", "t+a", "k+t"),
        byte_level("k+o", "ko+t", "t+a", "kot+a", "a+k", "o+t"),
        (b"k", b"o", b"t", b"a", b"ot", b"ta", b"kt", b" "),
        (b"k", b"o", b"t", b"a", b"ko", b"kot", b"ta", b"kota", b"ak", b" ", b"ot"),
        ((b"k",), (b"ko",), (b"a",), (b"kot",), (b"ak", b"o"), (b" ", b"t")),
    ),
}
