"""The stage behind ``build-dict``: what it writes, twice the same, and what a killed one leaves."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from spectool import ArtifactError, CorpusError, SpectoolError
from spectool.artifacts import Dictionary
from spectool.build import CountOptions, DictSpecOptions, build_dictspec, count_corpus
from spectool.build.dictionary.dictspec import ORDERS
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization import Tokenizer, open_tokenizer

TOKENIZER = demo_path("target") / "tokenizer.json"


def quiet(step: str) -> None:
    pass


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("personal computer. " * 62 + "personal committee. " * 9 + "a personal matter.", encoding="utf-8")
    return path


def test_the_papers_example_through_all_stages(tmp_path: Path, corpus: Path, bundled: Tokenizer) -> None:
    out = tmp_path / "x.dict"
    manifest = build_dictspec(bundled, count_corpus(open_corpus(str(corpus))), out, DictSpecOptions(), quiet)
    dictionary = Dictionary(out)
    dictionary.verify()
    match = dictionary.look_up(bundled.encode("we know a personal com"))
    assert match is not None
    assert bundled.bytes_of([*bundled.encode("com"), *match.tokens]).startswith((b"computer", b"comput"))
    assert manifest == dictionary.manifest
    assert manifest.arguments == {
        "method": "dictspec",
        "orders": "n123",
        "entries": 200_000,
        "min_probability": 0.2,
        "reading": DictSpecOptions().reading,
        "max_prefix": 8,
        "max_continuation": 8,
    }
    statistics = manifest.statistics
    assert statistics["words"] == 2 * 71 + 3
    assert statistics["distinct_ngrams"] == {"n1": 5, "n2": 4, "n3": 1}
    assert statistics["ngrams"] == 10
    assert statistics["smallest_count"] == 1
    assert statistics["entries"] == len(dictionary) <= statistics["entries_before_pruning"]
    assert manifest.inputs["documents"] == 1
    assert manifest.inputs["files"][0]["size"] == corpus.stat().st_size
    assert manifest.tokenizers == {"target": bundled.identity}


def test_every_entry_is_a_piece_of_an_ngram(tmp_path: Path, bundled: Tokenizer) -> None:
    counted = count_corpus(open_corpus("sample:uk"))
    options = DictSpecOptions(entries=500, min_probability=0.5)
    build_dictspec(bundled, counted, tmp_path / "x.dict", options, quiet)
    texts, _ = counted.most_frequent(500)
    spelled = {tuple(ids) for ids in bundled.encode_after_space(texts)}
    pieces = {ids[a:b] for ids in spelled for a in range(len(ids)) for b in range(a + 1, len(ids) + 1)}
    dictionary = Dictionary(tmp_path / "x.dict")
    assert len(dictionary) > 100
    for entry in dictionary.entries():
        assert (*entry.context, *entry.continuation) in pieces
        assert len(entry.context) <= 8
        assert len(entry.continuation) <= 8
        assert entry.probability >= 0.5 - 1 / 256
        assert entry.count >= 1


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gpt2", "t5-small"])
def test_real_tokenizers_propose_text_that_follows(
    name: str, tmp_path: Path, corpus: Path, real: Callable[[str], Tokenizer]
) -> None:
    tokenizer = real(name)
    build_dictspec(tokenizer, count_corpus(open_corpus(str(corpus))), tmp_path / "x.dict", DictSpecOptions(), quiet)
    match = Dictionary(tmp_path / "x.dict").look_up(tokenizer.encode("their personal"))
    assert match is not None
    proposed = b"".join(tokenizer.token_bytes[token] for token in match.tokens)
    assert b" computer".startswith(proposed)
    assert len(proposed) > 3


def test_special_tokens_are_never_proposed(tmp_path: Path) -> None:
    """A word of the text is a special token of the tokenizer, and another cannot be spelled."""
    names = ["[UNK]", "eos", "red", "cat", "dog"]
    backend = Backend(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[UNK]", "eos"])
    text = tmp_path / "text.txt"
    text.write_text("red cat eos dog. " * 20 + "red cat dog elephant. " * 3, encoding="utf-8")
    options = DictSpecOptions(min_probability=0.0)
    build_dictspec(open_tokenizer(backend), count_corpus(open_corpus(str(text))), tmp_path / "x.dict", options, quiet)
    used = {
        token for entry in Dictionary(tmp_path / "x.dict").entries() for token in (*entry.context, *entry.continuation)
    }
    assert used == {2, 3, 4}


def test_one_count_serves_lower_orders(tmp_path: Path, bundled: Tokenizer) -> None:
    corpus = open_corpus("sample:pl")
    sizes = []
    for orders in ORDERS:
        options = DictSpecOptions(orders=orders, entries=3000)
        shared = build_dictspec(bundled, count_corpus(corpus), tmp_path / "a", options, quiet)
        alone = build_dictspec(bundled, count_corpus(corpus, orders), tmp_path / "b", options, quiet)
        assert shared.files == alone.files
        sizes.append(shared.files["contexts.marisa"]["sha256"])
    assert len(set(sizes)) == 3


def test_two_builds_are_the_same_bytes(tmp_path: Path, bundled: Tokenizer) -> None:
    for name in "ab":
        counted = count_corpus(open_corpus("sample:uk"))
        build_dictspec(bundled, counted, tmp_path / name, DictSpecOptions(entries=2000), quiet)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(files) == 7
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_nothing_to_build_from(tmp_path: Path, bundled: Tokenizer) -> None:
    text = tmp_path / "text.txt"
    text.write_text("— … !", encoding="utf-8")
    out = tmp_path / "x.dict"
    counted = count_corpus(open_corpus(str(text)))
    with pytest.raises(SpectoolError, match=r"text\.txt: no entry to store from 0 words .*Give more text, or a lower"):
        build_dictspec(bundled, counted, out, DictSpecOptions(), quiet)
    assert not out.exists()
    text.write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"text\.txt"):
        count_corpus(open_corpus(str(text)))


def test_a_foreign_folder_is_not_replaced(tmp_path: Path, bundled: Tokenizer) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="exists and is not a spectool artifact"):
        build_dictspec(bundled, count_corpus(open_corpus("sample:pl"), "n1"), tmp_path, DictSpecOptions(), quiet)


def spectool(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "spectool.cli", *map(str, arguments)]


def build_command(out: Path, corpus: str) -> list[str]:
    return spectool("build-dict", "--tokenizer", TOKENIZER, "--corpus", corpus, "--entries", 5000, "-o", out)


def kill_at_random(rng: random.Random, number: int, command: list[str], out: Path, longest: float) -> float | None:
    """Start a build and kill it anywhere, while it writes or as it replaces, by turns; None if it ended before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = time.monotonic()
    scratch = out.with_name(f".{out.name}.{process.pid}.partial")
    moments = ((scratch / "manifest.json", 0.02), (None, longest), (scratch, longest / 3))
    awaited, patience = moments[number % 3]
    while awaited is not None and process.poll() is None and not awaited.exists():
        time.sleep(0.0002)
    time.sleep(rng.uniform(0, patience))
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return None if ended else time.monotonic() - started


def kills(rounds: int, out: Path) -> None:
    """Kill builds of two different dictionaries in turn, and look at what is there after each.

    More than a third of ``rounds`` must be killed in time: where builds end sooner than they did at first, there are
    more rounds.
    """
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    whole: dict[str, bytes] = {}
    longest = 0.0
    for corpus in ("sample:pl", "sample:uk"):
        started = time.monotonic()
        subprocess.run(build_command(out, corpus), check=True, capture_output=True)
        longest = max(longest, time.monotonic() - started)
        whole[corpus] = (out / "manifest.json").read_bytes()
    before: bytes | None = whole["sample:uk"]
    number = killed = 0
    while number < rounds or killed <= rounds // 3:
        corpus = ("sample:pl", "sample:uk")[number % 2]
        if number % 5 == 1 and out.exists():
            for file in out.iterdir():
                file.unlink()
            out.rmdir()
            before = None
        moment = kill_at_random(rng, number, build_command(out, corpus), out, longest)
        killed += moment is not None
        where = f"round {number}, killed after {moment} s"
        previous = out.with_name(f".{out.name}.previous")
        if out.exists():
            now = (out / "manifest.json").read_bytes()
            assert now in (before, whole[corpus]), where
            Dictionary(out).verify()
        else:
            # Between the two renames of a replacement the old one lies beside.
            assert before is None or (previous / "manifest.json").read_bytes() == before, where
            now = before if previous.exists() else b""
        before = now or None
        number += 1
        assert number < 10 * rounds, f"{killed} builds killed in time"
    subprocess.run(build_command(out, "sample:pl"), check=True, capture_output=True)
    assert (out / "manifest.json").read_bytes() == whole["sample:pl"]
    done = subprocess.run(spectool("verify", out), check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"{out}: whole (spectool-dictionary 3, ")
    assert [path.name for path in out.parent.iterdir()] == [out.name], "scratch of the killed ones is removed"


@pytest.mark.system
def test_killed_builds_leave_the_old_artifact_or_the_new_one(tmp_path: Path) -> None:
    kills(6, tmp_path / "x.dict")


@pytest.mark.slow
def test_many_killed_builds(tmp_path: Path) -> None:
    kills(60, tmp_path / "x.dict")


def test_the_manifest_is_plain_json(tmp_path: Path, corpus: Path, bundled: Tokenizer) -> None:
    out = tmp_path / "x.dict"
    counted = count_corpus(open_corpus(str(corpus)), options=CountOptions(min_count=1))
    build_dictspec(bundled, counted, out, DictSpecOptions(), quiet)
    text = (out / "manifest.json").read_text(encoding="utf-8")
    value = json.loads(text)
    assert text == json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
