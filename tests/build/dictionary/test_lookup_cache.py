"""Dictionaries as llama.cpp's lookup caches: n-grams, thresholds, and llama.cpp's own code."""

import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from spectool.artifacts.dictionary import Dictionary, Entry
from spectool.artifacts.llama_cpp import write_cache
from spectool.build.dictionary.lookup_cache import to_ngrams
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.artifacts.lookup_caches import read_cache
from spectool.tests.build.dictionaries import written

ENTRIES = [
    Entry((1,), 2, 0.5, 100),
    Entry((3, 1), 4, 0.9, 1),
    Entry((5, 3, 1), 6, 0.1, 30),
    Entry((9,), 8, 0.1, 30),
    Entry((1, 1, 1, 1, 1), 2, 0.9, 30),
]


def test_entries_are_the_only_tokens() -> None:
    exported = to_ngrams(ENTRIES, 0.0)
    assert exported.ngrams == {(1,): {2: 100}, (3, 1): {4: 3}, (5, 3, 1): {6: 30}, (9,): {8: 30}}, "at least 4, 3, 2, 2"
    assert exported.entries == 4
    assert exported.left_out == {"their contexts are longer than the 4 tokens of a cache of llama.cpp": 1}


def test_improbable_entries_stay_where_a_worse_one_would_speak() -> None:
    exported = to_ngrams(ENTRIES, 0.3)
    assert set(exported.ngrams) == {(1,), (3, 1), (5, 3, 1)}
    assert exported.left_out["they are less probable than 0.3"] == 1


def test_counts_are_scaled_to_what_llama_cpp_can_multiply() -> None:
    exported = to_ngrams([Entry((1,), 2, 0.25, 2**20)], 0.0)
    assert exported.ngrams == {(1,): {2: 1000}}


@pytest.fixture(scope="module")
def cache_tool(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """llama.cpp's own cache, built from the source in llama-cpp-python's source distribution."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("llama")
    fetch = [sys.executable, "-m", "pip", "download", "llama-cpp-python", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run([*fetch, "-d", folder], capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if done.returncode or not archives:
        pytest.skip(f"llama.cpp's source cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
    with tarfile.open(archives[0]) as archive:
        wanted = ("/llama.cpp/common/", "/llama.cpp/include/", "/llama.cpp/ggml/include/")
        members = [member for member in archive if any(part in member.name for part in wanted)]
        archive.extractall(folder, members, filter="data")
    source = next(folder.glob("*/vendor/llama.cpp"))
    tool = folder / "cache_tool"
    include = [f"-I{source / part}" for part in ("common", "include", "ggml/include")]
    sources = [Path(__file__).parent / "llama_cpp" / "cache_tool.cpp", source / "common" / "ngram-cache.cpp"]
    subprocess.run([compiler, "-std=c++17", "-O1", *include, *sources, "-o", tool], check=True)

    def run(*arguments: object) -> str:
        return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=True).stdout

    return run


def write_texts(path: Path, texts: Sequence[Sequence[int]]) -> None:
    path.write_bytes(b"".join(np.array([len(text), *text], dtype="<i4").tobytes() for text in texts))


def a_dictionary(path: Path, longest: int, seed: int) -> tuple[Dictionary, list[list[int]]]:
    """A dictionary over few tokens, and histories that it often knows."""
    choice = random.Random(seed)
    contexts = {tuple(choice.choices(range(6), k=choice.randint(1, longest))) for _ in range(150)}
    rows = [(c, choice.randrange(6), choice.randint(5, 250) / 256, choice.randint(1, 5000)) for c in sorted(contexts)]
    return written(path, rows), [choice.choices(range(8), k=12) for _ in range(200)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_llama_cpp_drafts_from_an_export_what_the_dictionary_would(
    tmp_path: Path, cache_tool: Callable[..., str], seed: int
) -> None:
    dictionary, histories = a_dictionary(tmp_path / "x", 4, seed)
    write_cache(tmp_path / "cache", to_ngrams(dictionary.entries(), 0.0).ngrams.items())
    write_texts(tmp_path / "texts", histories)
    drafts = cache_tool("draft", tmp_path / "cache", "dynamic", tmp_path / "texts", 8).splitlines()
    drafter = LookupDrafter(dictionary)
    for history, line in zip(histories, drafts, strict=True):
        drafter.start(history)
        assert [int(token) for token in line.split()] == list(drafter.propose(8).tokens), (seed, history)
    assert any(drafts)


@pytest.mark.slow
def test_llama_cpp_reads_and_writes_the_same_ngrams(tmp_path: Path, cache_tool: Callable[..., str]) -> None:
    dictionary, _ = a_dictionary(tmp_path / "x", 4, 9)
    ngrams = to_ngrams(dictionary.entries(), 0.0).ngrams
    write_cache(tmp_path / "ours", ngrams.items())
    cache_tool("copy", tmp_path / "ours", tmp_path / "theirs")
    assert dict(read_cache(tmp_path / "theirs")) == ngrams
