"""The command pack, and what is built from packs."""

from pathlib import Path

import pytest

from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.pack import Pack
from spectool.tests.running import TOKENIZER, error_of, figures, run

TEXT = "W tym roku wszyscy mieszkańcy miasta pójdą do kina i do teatru. "


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for number, path in enumerate(paths):
        path.write_text("\n".join([TEXT * 3, "Wczoraj wieczorem nie padało. "] * (10 + number)), encoding="utf-8")
    return paths


def pack(source: object, out: Path, *more: object) -> dict[str, object]:
    return figures("pack", source, "--language", "pl", "-o", out, *more)


def test_packs_of_parts_add_up(texts: list[Path], tmp_path: Path) -> None:
    parts = [tmp_path / "a.pack", tmp_path / "b.pack"]
    for text, part in zip(texts, parts, strict=True):
        pack(text, part, "--from", f"{text.name}, CC0", "--min-names", 0)
        assert str(tmp_path).encode() not in part.read_bytes(), "a private path"
    run("pack", *parts, "--language", "pl", "-o", tmp_path / "sum.pack", "--min-names", 0)
    run("pack", *texts, "--language", "pl", "-o", tmp_path / "both.pack", "--min-names", 0)
    added, counted = Pack(tmp_path / "sum.pack"), Pack(tmp_path / "both.pack")
    assert set(added.pieces) == set(counted.pieces)
    assert added.manifest.statistics["occurrences"] == counted.manifest.statistics["occurrences"]
    assert sum(added.orders[0].count) == pytest.approx(sum(counted.orders[0].count), rel=0.1)
    assert added.manifest.inputs["credits"] == ["a.txt, CC0", "b.txt, CC0"]
    assert [text["corpus"] for text in added.manifest.inputs["texts"]] == ["a.txt", "b.txt"]


def test_a_dictionary_from_a_pack_drafts_and_can_be_inspected(texts: list[Path], tmp_path: Path) -> None:
    pack(texts[0], tmp_path / "a.pack", "--min-names", 0)
    out = tmp_path / "a.dict"
    done = run("build-dict", "--tokenizer", TOKENIZER, "--pack", tmp_path / "a.pack", "-o", out)
    assert done.exit_code == 0, done.output
    assert figures("predict", "--dict", out, "--no-history", "--corpus", texts[1])["tokens_per_pass"] > 1.5
    assert figures("inspect", tmp_path / "a.pack")["statistics"]["ngrams"]
    both = tmp_path / "both.dict"
    run("build-dict", "--tokenizer", TOKENIZER, "--pack", tmp_path / "a.pack", "--corpus", texts[1], "-o", both)
    assert read_manifest(both).inputs["packs"][0]["name"] == "a.pack"


def test_what_is_missing_is_named(texts: list[Path], tmp_path: Path) -> None:
    out = ("-o", tmp_path / "x.dict")
    assert run("build-dict", "--tokenizer", TOKENIZER, *out).exit_code == 2
    assert "spectool pack" in error_of(run("build-dict", "--tokenizer", TOKENIZER, "--pack", "tlh", *out))
    assert "nothing.pack" in error_of(run("pack", "nothing.pack", "--language", "pl", "-o", tmp_path / "x.pack"))
    for text in ("a b c\n", "A B C 5\n" * 5):
        (tmp_path / "tiny.txt").write_text(text, encoding="utf-8")
        message = error_of(run("pack", tmp_path / "tiny.txt", "--language", "pl", "-o", tmp_path / "x.pack"))
        assert "or a lower --min-count or --min-names" in message and not (tmp_path / "x.pack").exists()


def test_an_unreadable_pack_is_no_dictionary(texts: list[Path], tmp_path: Path) -> None:
    pack(texts[0], tmp_path / "a.pack", "--min-names", 0)
    assert "spectool-pack" in error_of(run("predict", "--dict", tmp_path / "a.pack", "--corpus", texts[1]))
