"""Packs of strangers: whatever they hold when decompressed, and hashes, the process lives, answers and stays small."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from spectool.artifacts.pack import Pack
from spectool.build.corpus_reading import quiet
from spectool.build.packs.options import PackOptions
from spectool.build.packs.stage import build_pack
from spectool.corpora import open_corpus
from spectool.tests.artifacts import hostile
from spectool.tests.artifacts.test_pack import packed, unpacked
from spectool.tests.running import TOKENIZER


def pack(path: Path, scratch: Path) -> Iterator[Callable[[], object]]:
    """What users do with a pack."""
    yield lambda: Pack(path)
    yield lambda: hostile.command("inspect", path)
    named = scratch / "y.pack"
    named.write_bytes(path.read_bytes())
    for out in ("y.dict", "z.pack"):
        (scratch / out).unlink(missing_ok=True)
    yield lambda: hostile.command("build-dict", "--tokenizer", TOKENIZER, "--pack", named, "-o", scratch / "y.dict")
    yield lambda: hostile.command("pack", named, "--language", "pl", "-o", scratch / "z.pack")


def decompressed(data: bytes, rng: random.Random, kind: str) -> bytes:
    """Change what a reader sees after decompression."""
    raw = bytearray(unpacked(data))
    for _ in range(rng.choice([1, 1, 3, 30])):
        if raw:
            raw[rng.randrange(len(raw))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    return packed(rng.choice(hostile.MUTATORS)(bytes(raw), rng) if raw and rng.random() < 0.3 else bytes(raw))


MUTATORS = (decompressed,)


@cache
def example(folder: Path) -> Path:
    options = PackOptions(max_bytes=12_000, min_names=0)
    about = {"language": "pl", "credits": ["a sample"]}
    build_pack([], [open_corpus("sample:pl")], about, folder / "x.pack", options, quiet)
    return folder / "x.pack"


@pytest.mark.parametrize("number", [40, pytest.param(400, marks=pytest.mark.nightly)])
def test_packs(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, number: int) -> None:
    assert_harmless(example(tmp_path_factory.mktemp("hostile")), number, tmp_path)


@pytest.mark.slow
def test_many_packs(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    assert_harmless(example(tmp_path_factory.mktemp("hostile")), 10_000, tmp_path)


def assert_harmless(path: Path, number: int, scratch: Path) -> None:
    seed = random.randrange(10**6)
    faults = hostile.fuzz(f"{__name__}:pack", path, range(number), seed, scratch, f"{__name__}:MUTATORS")
    assert not faults, f"seed {seed}: {len(faults)} faults\n" + "\n".join(faults[:20])
