"""Dictionaries of ``generate``: several that are named, and those in the user's folder that are found."""

import json
from pathlib import Path

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter
from spectool.tests.running import OTHER, TOKENIZER, run
from spectool.tokenization.tokenizer import Tokenizer

TARGET = str(demo_path("target"))
ASK = ("generate", "--model", TARGET, "-p", "Most w", "-m", 24, "--num-draft-tokens", 4, "--min-draft-prob", 0.05)


@pytest.fixture
def folder(cache: Path) -> Path:
    cache.mkdir(parents=True)
    return cache


def build(out: Path, tokenizer: str = TOKENIZER, corpus: str = "sample:pl", *more: object) -> Path:
    result = run("build-dict", "--tokenizer", tokenizer, "--corpus", corpus, "--max-bytes", "14KB", "-o", out, *more)
    assert result.exit_code == 0, result.output
    return out


def sources(*arguments: object) -> tuple[list[str], str]:
    """The drafters of a generation, and what it says on stderr."""
    result = run(*ASK, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return sorted(json.loads(result.stdout)["sources"]), result.stderr


def test_a_dictionary_for_the_model_is_found_and_named(folder: Path) -> None:
    build(folder / "mine.dict")
    build(folder / "others.dict", OTHER)
    drafted, said = sources("--no-history")
    assert drafted == ["dictionary"]
    (line,) = [line for line in said.splitlines() if ".dict" in line]
    assert "mine.dict" in line and str(folder) in line and "--no-dict" in line
    assert "others.dict" not in line
    assert sources("--no-history", "--no-dict") == ([], "")


def test_one_that_is_named_is_taken_alone(folder: Path, tmp_path: Path) -> None:
    build(folder / "mine.dict")
    named = build(tmp_path / "named.dict", TOKENIZER, "sample:uk")
    assert "mine.dict" not in sources("--dict", named)[1]
    assert "mine.dict" in sources("--dict", named, "--dict", "auto")[1]


def test_a_damaged_one_is_left_out_with_a_warning(folder: Path) -> None:
    build(folder / "mine.dict")
    whole = (folder / "mine.dict").read_bytes()
    (folder / "short.dict").write_bytes(whole[:-1])
    (folder / "changed.dict").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    drafted, said = sources("--no-history")
    assert drafted == ["dictionary"]
    assert [line for line in said.splitlines() if "warning" in line and "short.dict" in line]
    assert [line for line in said.splitlines() if "warning" in line and "changed.dict" in line]
    with pytest.warns(RuntimeWarning, match=r"changed\.dict"):
        assert load_drafter(TARGET, dictionary="auto") is not None


def test_no_fingerprint_is_computed_for_one_of_another_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(folder / "others.dict", OTHER)

    def never(self: Tokenizer) -> None:
        raise AssertionError("a fingerprint was computed")

    monkeypatch.setattr(Tokenizer, "fingerprint", property(never))
    assert load_drafter(TARGET, dictionary="auto", history=False) is None
