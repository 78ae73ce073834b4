"""The counting stage against its slow twin, in every cut, and what it refuses."""

import json
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import ArtifactError, CorpusError, SpectoolError
from spectool.artifacts.artifact import verify_artifact
from spectool.artifacts.counts import Counts
from spectool.artifacts.resumable import load, work_path
from spectool.build.corpus_reading import in_parts
from spectool.build.counting.ngrams import count_part, merge_bucket, save_keys
from spectool.build.counting.options import CountOptions
from spectool.build.counting.plan import SAMPLE_EVERY, Plan, bucket_cuts, make_plan
from spectool.build.counting.stage import count_text
from spectool.build.counting.symbols import encode_tokens, number_tokens, token_symbols
from spectool.corpora import Corpus, Document, open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.build.counting.counting_twin import Windows, agree, token_windows
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

SMALL = Plan(threads=1, part_bytes=30_000, bucket_records=12_000)
UNEVEN = Plan(threads=1, part_bytes=15_000, bucket_records=40_000)
TINY = Plan(threads=1, part_bytes=1, bucket_records=1)
WORDS = ["a", "b", "c", "ż", "п'ять", "💶", "."]
lines = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join), min_size=1, max_size=9)


def words_of(*names: str) -> Tokenizer:
    """A tokenizer whose tokens are these words, with ids from 1 on."""
    backend = Backend(models.WordLevel({"[UNK]": 0, **{name: place for place, name in enumerate(names, 1)}}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return open_tokenizer(backend)


TARGET = open_tokenizer(demo_path("target") / "tokenizer.json")


def quiet(step: str) -> None:
    pass


def corpus_of(folder: Path, texts: list[str]) -> Corpus:
    path = folder / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return open_corpus(str(path))


def counted(
    corpus: Corpus, out: Path, options: CountOptions, tokenizer: Tokenizer = TARGET, plan: Plan | None = None
) -> Counts:
    manifest = count_text(corpus, out, options, tokenizer, quiet, plan=plan)
    counts = Counts(out)
    verify_artifact(counts.path)
    assert counts.manifest == manifest
    assert not work_path(out).exists()
    return counts


def beginning(shared: Path, name: str, number: int) -> list[str]:
    return [document.text for document in islice(open_corpus(str(shared / "corpora" / name)), number)]


@pytest.mark.parametrize("sample", ["pl", "uk"])
@pytest.mark.parametrize("min_count", [1, 2, 3])
def test_windows_of_the_samples(sample: str, min_count: int, tmp_path: Path) -> None:
    corpus = open_corpus(f"sample:{sample}")
    texts = [document.text for document in corpus]
    options = CountOptions(orders=4, min_count=min_count)
    agree(counted(corpus, tmp_path / "x", options), [token_windows(texts, TARGET, order) for order in range(1, 5)])


def test_windows_of_a_real_corpus_in_every_cut(tmp_path: Path, shared: Path) -> None:
    texts = beginning(shared, "uk.valid.txt.zst", 60)
    expected = [token_windows(texts, TARGET, order) for order in range(1, 9)]
    in_every_cut(corpus_of(tmp_path, texts), tmp_path / "x", TARGET, expected)


@pytest.mark.system
@pytest.mark.parametrize("name", ["bielik-11b-v2.5", "qwen2.5"])
def test_windows_of_real_tokenizers_in_every_cut(
    name: str, tmp_path: Path, shared: Path, real: Callable[[str], Tokenizer]
) -> None:
    texts = beginning(shared, "pl.valid.txt.zst", 60)
    expected = [token_windows(texts, real(name), order) for order in range(1, 9)]
    counts = in_every_cut(corpus_of(tmp_path, texts), tmp_path / "x", real(name), expected)
    assert counts.fingerprint == real(name).fingerprint


def in_every_cut(corpus: Corpus, out: Path, tokenizer: Tokenizer, expected: list[Windows]) -> Counts:
    """Compare with the twin; further plans give the same bytes, so one look at the contents is enough."""
    for min_count in (1, 2, 5):
        counts = counted(corpus, out, CountOptions(min_count=min_count), tokenizer)
        agree(counts, expected)
        for plan in (SMALL, UNEVEN):
            count_text(corpus, out, CountOptions(min_count=min_count), tokenizer, quiet, plan=plan)
            assert Counts(out).file.sha256 == counts.file.sha256
    return counts


@settings(max_examples=20, deadline=None)
@given(lines, st.integers(1, 4), st.integers(1, 5), st.sampled_from([None, TINY]))
def test_random_texts(texts: list[str], min_count: int, orders: int, plan: Plan | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        options, tokenizer = CountOptions(orders=orders, min_count=min_count), words_of(*WORDS)
        counts = counted(corpus_of(Path(scratch), texts), Path(scratch) / "x", options, tokenizer, plan)
        agree(counts, [token_windows(texts, tokenizer, order) for order in range(1, orders + 1)])


def test_by_hand(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, ["u nas w domu", "u nas", "w", "u nas w lesie"])
    tokenizer = words_of("nas", "u", "w", "domu", "lesie")
    counts = counted(corpus, tmp_path / "x", CountOptions(orders=3), tokenizer)
    assert [column.tolist() for column in counts.level(1)] == [[0, 0, 0], [2, 3, 4], [3, 3, 3]]
    assert [column.tolist() for column in counts.level(2)] == [[0, 1], [4, 2], [2, 3]]
    assert [column.tolist() for column in counts.level(3)] == [[1], [4], [2]]
    assert counts.spelled(3, np.array([0])).tolist() == [[3, 2, 4]]
    assert counts.total == 11
    assert counts.manifest.statistics["orders"]["2"] == {"kept": 2}


def test_special_tokens_are_breaks(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"[UNK]": 0, "eos": 1, "red": 2, "cat": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[UNK]", "eos"])
    corpus = corpus_of(tmp_path, ["red cat eos cat red", "red cat elephant cat"])
    counts = counted(corpus, tmp_path / "x", CountOptions(orders=2, min_count=1), open_tokenizer(backend))
    uses = counts.level(2).count
    pairs = map(tuple, (counts.spelled(2, np.arange(len(uses))) - 1).tolist())
    assert dict(zip(pairs, uses.tolist(), strict=True)) == {(2, 3): 2, (3, 2): 1}
    assert counts.total == 7


@pytest.mark.parametrize("texts", [["— … !"], ["a"], ["a a"], ["a", "a"]])
def test_almost_nothing(texts: list[str], tmp_path: Path) -> None:
    for min_count in (1, 2, 3):
        counts = counted(corpus_of(tmp_path, texts), tmp_path / "x", CountOptions(min_count=min_count))
        agree(counts, [token_windows(texts, TARGET, order) for order in range(1, 9)])


def test_many_words_do_not_overflow(tmp_path: Path) -> None:
    """Keys grow as vocabulary times n-grams: beyond 32 bits here."""
    rng = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 70_000, 200)) for _ in range(100)]
    texts.append(" ".join(f"w{n}" for n in range(70_000)))
    tokenizer = words_of(*(f"w{n}" for n in range(70_000)))
    counts = counted(corpus_of(tmp_path, texts), tmp_path / "x", CountOptions(orders=3, min_count=1), tokenizer)
    assert len(counts.level(2).count) * counts.symbols > 2**32
    agree(counts, [token_windows(texts, tokenizer, order) for order in range(1, 4)])


def test_a_corpus_without_a_document(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"text\.txt"):
        count_text(open_corpus(str(tmp_path / "text.txt")), tmp_path / "x", CountOptions(), TARGET, quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_a_foreign_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="exists and is not a whole artifact"):
        count_text(open_corpus("sample:pl"), tmp_path / "x", CountOptions(), TARGET, quiet)
    assert not work_path(tmp_path / "x").exists()


@pytest.mark.parametrize("gigabytes", [0.3, 0.6, 1, 4, 64])
def test_sizes_stay_within_the_memory(gigabytes: float) -> None:
    plan = make_plan(int(gigabytes * 1e9))
    assert plan.threads >= 1
    share = (gigabytes * 1e9 - 220e6) / plan.threads
    assert share >= 64e6
    assert 64 * plan.part_bytes <= share
    assert 64 * plan.bucket_records <= share
    assert plan.part_bytes >= 1_000_000


def test_too_little_memory_is_said() -> None:
    with pytest.raises(SpectoolError, match=r"--memory is 280 MB, expected at least 284 MB"):
        make_plan(280 * 10**6)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=50), st.integers(1, 1000))
def test_parts_hold_all_documents_in_order(sizes: list[int], largest: int) -> None:
    parts = list(in_parts(enumerate(sizes), lambda document: document[1], largest))
    assert [document for part in parts for document in part] == list(enumerate(sizes))
    assert all(len(part) == 1 or sum(size for _, size in part) <= largest for part in parts)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(200_000, 400_000), st.randoms())
def test_buckets_are_bounded(sources: int, largest: int, rng: object) -> None:
    """No bucket is larger than the plan allows, however the keys of the parts lie."""
    seed = rng.randrange(10**6)  # type: ignore[attr-defined]
    print(f"seed {seed}")
    dice = np.random.default_rng(seed)
    keys = [np.unique(dice.zipf(1.1 + dice.random(), 100_000) % 10**7 + dice.integers(10**6)) for _ in range(sources)]
    plan = Plan(1, 1, largest)
    records = sum(map(len, keys))
    cuts = bucket_cuts(records, [found[::SAMPLE_EVERY].tolist() for found in keys], plan)
    sizes = sum(np.diff(np.searchsorted(found, cuts), prepend=0, append=len(found)) for found in keys)
    assert np.max(sizes) <= largest


def peak_of(task: Callable[..., object], *arguments: object) -> int:
    """Return the bytes that a task takes at its peak, numpy's arrays included."""
    tracemalloc.start()
    try:
        task(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_tasks_stay_within_the_bytes_that_the_plan_reckons_with(tmp_path: Path) -> None:
    """The worst text for each: all n-grams differ."""
    dice, size = np.random.default_rng(1), 300_000
    tokens = np.arange(1, 2000)
    for part in range(2):
        save_keys(tmp_path, 1, part, tokens, tokens, dice.integers(0, len(tokens), size, dtype=np.int32))
    merge_bucket(tmp_path, 1, 0, None, None, 2, 1)
    number_tokens(tmp_path, 1)
    for part in range(2):
        assert peak_of(count_part, tmp_path, 2, part, 1, False) < 64 * size
    records = sum(len(load(tmp_path, f"n2.found-{part}")) for part in range(2))
    assert records > 1.8 * size
    assert peak_of(merge_bucket, tmp_path, 2, 0, None, None, 2, 1) < 64 * records
    assert peak_of(count_part, tmp_path, 3, 0, 1, False) < 64 * size

    symbol_of = token_symbols(TARGET.size, TARGET.specials)
    texts = [f"{number:06x} ".encode() * 100 for number in range(2000)]
    assert peak_of(encode_tokens, tmp_path, 9, texts, TARGET, symbol_of) < 64 * sum(map(len, texts))


@pytest.mark.parametrize("at", [0, 1, 5_000, 59_999])
def test_a_corpus_that_is_replaced_meanwhile_gives_an_error_or_its_own_hash(tmp_path: Path, at: int) -> None:
    path, out, tokenizer = (
        tmp_path / "a.txt",
        tmp_path / "x.counts",
        words_of("старе", "слово", "тут", "нове", "речення"),
    )
    path.write_text("старе слово тут\n" * 60_000, encoding="utf-8")
    old = open_corpus(str(path)).describe_inputs()[0].sha256

    def replacing(corpus: Corpus) -> Iterator[Document]:
        for number, document in enumerate(corpus):
            if number == at:
                (tmp_path / "new.txt").write_text("нове речення\n" * 60_000, encoding="utf-8")
                (tmp_path / "new.txt").replace(path)
            yield document

    try:
        corpus, options = open_corpus(str(path)), CountOptions(orders=1)
        manifest = count_text(corpus, out, options, tokenizer, quiet, replacing(corpus), SMALL)
    except CorpusError as error:
        assert "a.txt: expected a file that does not change" in str(error)
        assert not out.exists()
    else:
        assert manifest.inputs["files"][0]["sha256"] == old
        assert Counts(out).level(1).symbol.tolist() == [2, 3, 4]
    found = counted(open_corpus(str(path)), out, CountOptions(orders=1), tokenizer, SMALL)
    assert found.level(1).symbol.tolist() == [5, 6]
    assert found.manifest.inputs["files"][0]["sha256"] != old


def test_the_encoding_of_a_corpus_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("П'ять слів\n".encode("cp1251") * 3)
    options, tokenizer = CountOptions(), words_of("П'ять", "слів")
    found = counted(open_corpus(str(tmp_path / "a.txt"), encoding="windows-1251"), tmp_path / "x", options, tokenizer)
    assert found.manifest.inputs["encoding"] == "cp1251"
    assert found.level(1).symbol.tolist() == [2, 3]
    (tmp_path / "a.txt").write_text("слів слів\n", encoding="utf-8")
    again = counted(open_corpus(str(tmp_path / "a.txt"), encoding="utf-8"), tmp_path / "y", CountOptions())
    assert "encoding" not in again.manifest.inputs


def test_windows_cross_line_ends_and_no_ends_of_documents(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a\nb\n\nb\na\n\nc\n", encoding="utf-8")
    backend = Backend(models.WordLevel({"a": 0, "b": 1, "c": 2, "\n": 3, "\n\n": 4, "[UNK]": 5}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = open_tokenizer(tmp_path / "tokenizer.json")
    a, b, c, end, blank = range(1, 6)
    pairs = {
        "lines": set(),
        "blank-lines": {(a, end), (end, b), (b, end), (end, a)},
        "files": {(a, end), (end, b), (b, end), (end, a), (b, blank), (blank, b), (a, blank), (blank, c)},
    }
    for division, expected in pairs.items():
        corpus = open_corpus(str(path), documents=division)  # type: ignore[arg-type]
        counts = counted(corpus, tmp_path / division, CountOptions(orders=2, min_count=1), tokenizer)
        assert {tuple(pair) for pair in counts.spelled(2, np.arange(len(counts.level(2).symbol))).tolist()} == expected
        assert counts.manifest.inputs["plain_text"] == {division: 1}
    assert counted(open_corpus(str(path)), tmp_path / "x", CountOptions(orders=1)).manifest.inputs["plain_text"] == {
        "blank-lines": 1
    }
