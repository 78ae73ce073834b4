"""Small tokenizers made for the tests of this folder, and what joins ids of the real ones."""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool.artifacts import Tokenizer
from spectool.artifacts.canonical.by_ids import CanonicalIds
from spectool.artifacts.canonical.pretokens import BoundaryTable, boundary_table
from spectool.artifacts.tokenizer.surfaces import byte_symbols
from spectool.build.alignment.merge_table import merge_table
from spectool.corpora import open_corpus


@pytest.fixture
def byte_level() -> Backend:
    """Byte-level BPE with all 256 bytes, `` kot`` as one token and two added tokens."""
    names = [*byte_symbols(), "ko", "kot", "Ġkot"]
    merges = [("k", "o"), ("ko", "t"), ("Ġ", "kot")]
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>"])
    backend.add_tokens([AddedToken("<think>", normalized=False)])
    return backend


@pytest.fixture
def sentence_piece() -> Backend:
    """SentencePiece-style BPE with byte fallback, laid out like Llama 2."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["▁", "k", "o", "t", "\n", "ko", "kot", "▁kot"]
    merges = [("k", "o"), ("ko", "t"), ("▁", "kot")]
    vocabulary = {name: place for place, name in enumerate(names)}
    backend = Backend(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


@pytest.fixture(scope="session")
def boundaries(real: Callable[[str], Tokenizer]) -> Callable[[str], BoundaryTable]:
    """The boundary table of a real tokenizer; kept for the whole run, since it takes seconds."""

    @cache
    def prepared(name: str) -> BoundaryTable:
        return boundary_table(real(name))

    return prepared


@pytest.fixture(scope="session")
def engine(
    real: Callable[[str], Tokenizer], boundaries: Callable[[str], BoundaryTable]
) -> Callable[[str], CanonicalIds]:
    """What joins ids of a real tokenizer; kept for the whole run."""

    @cache
    def prepared(name: str) -> CanonicalIds:
        return CanonicalIds(real(name), merge_table(real(name)), boundaries(name))

    return prepared


@pytest.fixture(scope="session")
def lines(shared: Path) -> list[str]:
    """Real lines, Ukrainian, Polish and of many kinds, in an order that is the same in every run."""
    found = [text for _, text in json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))]
    for language in ("uk", "pl"):
        corpus = open_corpus(str(shared / "corpora" / f"{language}.valid.txt.zst"))
        found += [document.text for document, _ in zip(corpus, range(400), strict=False)]
    random.Random(1).shuffle(found)
    return found


@pytest.fixture
def rng() -> random.Random:
    """Random numbers, another sequence in every run; a test that fails shows the seed."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    return random.Random(seed)
