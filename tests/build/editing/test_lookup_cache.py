"""Dictionaries and llama.cpp's lookup caches: n-grams, thresholds, smoothing, and llama.cpp's own code."""

import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from spectool import ArtifactError, SpectoolError
from spectool.artifacts import Dictionary
from spectool.artifacts.dictionary import Entry
from spectool.artifacts.llama_cpp import NO_TOKEN, read_cache, write_cache
from spectool.build.dictionary.options import Limits
from spectool.build.dictionary.selection import as_text
from spectool.build.editing.lookup_cache import import_cache, to_ngrams, to_predictions
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.build.dictionaries import rows_of, written
from spectool.tokenization import Tokenizer

ENTRIES = [
    Entry((1,), (2,), 0.5, 100),
    Entry((3, 1), (4,), 0.9, 1),
    Entry((5, 3, 1), (6,), 0.1, 30),
    Entry((9,), (8,), 0.1, 30),
    Entry((1, 1, 1, 1, 1), (2,), 0.9, 30),
]


def quiet(step: str) -> None:
    pass


def test_certain_entries_are_the_only_tokens() -> None:
    exported = to_ngrams(ENTRIES, "dynamic", True, 0.0)
    assert exported.ngrams == {(1,): {2: 100}, (3, 1): {4: 3}, (5, 3, 1): {6: 30}, (9,): {8: 30}}, "at least 4, 3, 2, 2"
    assert exported.entries == 4
    assert exported.left_out == {"their contexts are longer than the 4 tokens of a dynamic cache of llama.cpp": 1}


def test_counted_entries_leave_the_rest_to_no_token() -> None:
    exported = to_ngrams(ENTRIES, "dynamic", False, 0.0)
    assert exported.ngrams == {
        (1,): {2: 50, NO_TOKEN: 50},
        (3, 1): {4: 3},
        (5, 3, 1): {6: 3, NO_TOKEN: 27},
        (9,): {8: 3, NO_TOKEN: 27},
    }


def test_improbable_entries_stay_where_a_worse_one_would_speak() -> None:
    exported = to_ngrams(ENTRIES, "dynamic", True, 0.3)
    assert set(exported.ngrams) == {(1,), (3, 1), (5, 3, 1)}
    assert exported.left_out["they are less probable than 0.3"] == 1


def test_a_static_cache_has_contexts_of_two_tokens() -> None:
    exported = to_ngrams(ENTRIES, "static", True, 0.0)
    assert exported.ngrams == {(3, 1): {4: 3}}
    assert exported.entries == 1
    assert exported.left_out == {
        "their contexts are longer than the 2 tokens of a static cache of llama.cpp": 2,
        "a static cache has contexts of exactly 2 tokens": 2,
    }


def test_long_continuations_become_chains_and_add_up_where_they_meet() -> None:
    entries = [Entry((1,), (2, 3, 4), 0.5, 40), Entry((9, 1), (2, 5), 0.5, 10), Entry((7, 2), (3,), 1.0, 4)]
    exported = to_ngrams(entries, "dynamic", True, 0.0)
    assert exported.ngrams == {
        (1,): {2: 40},
        (1, 2): {3: 40},
        (1, 2, 3): {4: 40},
        (9, 1): {2: 10},
        (9, 1, 2): {5: 10},
        (7, 2): {3: 4},
    }
    static = to_ngrams(entries, "static", True, 0.0).ngrams
    assert static == {(1, 2): {3: 50}, (2, 3): {4: 40}, (9, 1): {2: 10}, (7, 2): {3: 4}}, "(1, 2) of two entries"


def test_counts_are_scaled_to_what_llama_cpp_can_multiply() -> None:
    exported = to_ngrams([Entry((1,), (2,), 0.25, 2**20)], "dynamic", False, 0.0)
    assert exported.ngrams == {(1,): {2: 250, NO_TOKEN: 750}}


def test_probabilities_of_raw_counts_are_smoothed() -> None:
    cache = [((1,), {2: 3, 5: 1}), ((9, 1), {2: 1, 7: 1}), ((8, 1), {7: 2})]
    predictions = to_predictions(cache, 1, frozenset())
    after_one = (3 - 0.5) / 4
    assert predictions[as_text([1])].probability == pytest.approx(after_one)
    assert predictions[as_text([9, 1])] == ((2,), pytest.approx((0.5 + after_one) / 2), 2)
    assert predictions[as_text([8, 1])] == ((7,), pytest.approx((2 - 0.5) / 2), 2)
    assert set(to_predictions(cache, 3, frozenset())) == {as_text([1])}
    specials = to_predictions(cache, 1, frozenset({2, 8}))
    assert {context: row.continuation for context, row in specials.items()} == {
        as_text([1]): (5,),
        as_text([9, 1]): (7,),
    }


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_counted_export_comes_back(tmp_path: Path, bundled: Tokenizer, kind: str) -> None:
    choice = random.Random(11)
    length = {"dynamic": (1, 4), "static": (2, 2)}[kind]
    contexts = {tuple(choice.choices(range(20, 30), k=choice.randint(*length))) for _ in range(100)}
    rows = [
        (c, (choice.randrange(20, 200),), choice.randint(10, 90) / 100, 2 ** choice.randint(5, 9)) for c in contexts
    ]
    dictionary = written(tmp_path / "x", rows, tokenizer=bundled.identity)
    write_cache(tmp_path / "x.lookup", to_ngrams(dictionary.entries(), kind, False, 0.0).ngrams.items())  # type: ignore[arg-type]
    import_cache(tmp_path / "x.lookup", bundled, tmp_path / "y", 1, Limits(), quiet)
    back, there = rows_of(Dictionary(tmp_path / "y")), rows_of(dictionary)
    for context, (continuation, probability, count) in back.items():
        assert there[context][0] == continuation
        assert there[context][1] == pytest.approx(probability, abs=0.05)
        assert there[context][2] == count
    drafters = [LookupDrafter(Dictionary(tmp_path / name)) for name in ("x", "y")]
    for context in contexts:
        for drafter in drafters:
            drafter.start(context)
        assert drafters[0].propose(1).tokens == drafters[1].propose(1).tokens, "only redundant entries are gone"


def test_a_cache_of_another_model_and_one_with_nothing_in_it(tmp_path: Path, bundled: Tokenizer) -> None:
    write_cache(tmp_path / "x", [((1,), {bundled.size: 5})])
    with pytest.raises(ArtifactError, match=f"token id {bundled.size}"):
        import_cache(tmp_path / "x", bundled, tmp_path / "y", 1, Limits(), quiet)
    write_cache(tmp_path / "x", [((30,), {31: 5})])
    with pytest.raises(SpectoolError, match="Give a lower --min-count"):
        import_cache(tmp_path / "x", bundled, tmp_path / "y", 6, Limits(), quiet)
    assert not (tmp_path / "y").exists()


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
    """A chained dictionary over few tokens, and histories that it often knows."""
    choice = random.Random(seed)
    contexts = {tuple(choice.choices(range(6), k=choice.randint(1, longest))) for _ in range(150)}
    rows = [
        (c, (choice.randrange(6),), choice.randint(5, 250) / 256, choice.randint(1, 5000)) for c in sorted(contexts)
    ]
    return written(path, rows), [choice.choices(range(8), k=12) for _ in range(200)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_llama_cpp_drafts_from_an_export_what_the_dictionary_would(
    tmp_path: Path, cache_tool: Callable[..., str], seed: int
) -> None:
    dictionary, histories = a_dictionary(tmp_path / "x", 4, seed)
    write_cache(tmp_path / "cache", to_ngrams(dictionary.entries(), "dynamic", True, 0.0).ngrams.items())
    write_texts(tmp_path / "texts", histories)
    drafts = cache_tool("draft", tmp_path / "cache", "dynamic", tmp_path / "texts", 8).splitlines()
    drafter = LookupDrafter(dictionary)
    for history, line in zip(histories, drafts, strict=True):
        drafter.start(history)
        assert [int(token) for token in line.split()] == list(drafter.propose(8).tokens), (seed, history)
    assert any(drafts)


@pytest.mark.slow
def test_llama_cpp_holds_counts_against_its_thresholds(tmp_path: Path, cache_tool: Callable[..., str]) -> None:
    entries = [Entry((1,), (2,), p, 100) for p in (0.74, 0.76)] + [Entry((0, 1), (2,), p, 100) for p in (0.65, 0.67)]
    write_texts(tmp_path / "texts", [[5, 5, 0, 1]])
    drafted = []
    for entry in entries:
        write_cache(tmp_path / "cache", to_ngrams([entry], "dynamic", False, 0.0).ngrams.items())
        drafted.append(cache_tool("draft", tmp_path / "cache", "dynamic", tmp_path / "texts", 1).split())
    assert drafted == [[], ["2"], [], ["2"]]
    write_cache(tmp_path / "cache", to_ngrams([Entry((0, 1), (2,), 0.51, 2)], "static", True, 0.0).ngrams.items())
    assert cache_tool("draft", tmp_path / "cache", "static", tmp_path / "texts", 1).split() == ["2"]


@pytest.mark.slow
def test_llama_cpp_reads_and_writes_the_same_ngrams(tmp_path: Path, cache_tool: Callable[..., str]) -> None:
    dictionary, _ = a_dictionary(tmp_path / "x", 4, 9)
    ngrams = to_ngrams(dictionary.entries(), "dynamic", False, 0.0).ngrams
    write_cache(tmp_path / "ours", ngrams.items())
    cache_tool("copy", tmp_path / "ours", tmp_path / "theirs")
    assert dict(read_cache(tmp_path / "theirs")) == ngrams


@pytest.mark.slow
def test_a_cache_that_llama_cpp_counted_becomes_a_dictionary(
    tmp_path: Path, cache_tool: Callable[..., str], bundled: Tokenizer
) -> None:
    choice = random.Random(2)
    texts = [choice.choices(range(20, 26), k=300) for _ in range(4)]
    write_texts(tmp_path / "texts", texts)
    cache_tool("count", tmp_path / "texts", 1, 4, tmp_path / "cache")
    counts: dict[tuple[int, ...], dict[int, int]] = {}
    for text in texts:
        for length in range(1, 5):
            for end in range(length, len(text)):
                followers = counts.setdefault(tuple(text[end - length : end]), {})
                followers[text[end]] = followers.get(text[end], 0) + 1
    assert dict(read_cache(tmp_path / "cache")) == counts
    manifest = import_cache(tmp_path / "cache", bundled, tmp_path / "y", 2, Limits(), quiet)
    imported = Dictionary(tmp_path / "y")
    imported.verify()
    assert imported.chained and manifest.statistics["ngrams"] == len(counts)
    for entry in imported.entries():
        followers = counts[tuple(entry.context)]
        assert followers[entry.continuation[0]] > 0
        assert entry.count == pytest.approx(sum(followers.values()), rel=0.1)
