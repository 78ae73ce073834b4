"""``merge-dict`` and ``inspect --export-llama-cpp``, as a user runs them."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from spectool.artifacts.formats import verify_artifact
from spectool.tests.artifacts.lookup_caches import read_cache
from spectool.tests.build.dictionaries import written
from spectool.tests.running import TOKENIZER, run
from spectool.tokenization.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path: Path, bundled: Tokenizer) -> Path:
    words = ["dzień dobry pani", "добрий вечір", "12 : 30"]
    rows = {}
    for word in words:
        tokens = bundled.encode(word)
        for end in range(1, len(tokens)):
            rows[tuple(tokens[max(0, end - 2) : end])] = tokens[end]
    entries = [(context, token, 0.5, 8) for context, token in rows.items()]
    identity = {**bundled.identity, "name": TOKENIZER}
    written(tmp_path / "a.dict", entries, tokenizer=identity)
    written(tmp_path / "b.dict", entries[::2], tokenizer=identity)
    written(tmp_path / "c.dict", [(tuple(range(20, 26)), 30, 0.5, 8)], tokenizer=identity)
    return tmp_path


def test_merge(folder: Path) -> None:
    result = run("merge-dict", folder / "a.dict", folder / "b.dict", "--weight", 1, "--weight", 2.5, "-o", folder / "m",
                 "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["path"] == str(folder / "m") and facts["statistics"]["entries"] > 0
    verify_artifact(folder / "m")
    wrong = run("merge-dict", folder / "a.dict", folder / "b.dict", "--weight", 1, "-o", folder / "n")
    assert wrong.exit_code == 2 and "1 weights for 2 dictionaries" in wrong.output
    assert run("merge-dict", folder / "a.dict", "-o", folder / "n").exit_code == 2
    assert run("merge-dict", folder / "a.dict", folder / "nothing", "-o", folder / "n").exit_code == 1
    assert not (folder / "n").exists()


def export(dictionary: Path, out: Path, *options: object) -> Result:
    return run("inspect", dictionary, "--export-llama-cpp", out, *options)


def test_export(folder: Path) -> None:
    result = export(folder / "a.dict", folder / "a.lookup", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["bytes"] == (folder / "a.lookup").stat().st_size and facts["entries_left_out"] == 0
    assert facts["n-grams"] == facts["entries"] == len(list(read_cache(folder / "a.lookup")))
    assert "llama.cpp will draft everything" in result.stderr


def test_what_an_export_leaves_out_is_said(folder: Path) -> None:
    nothing = export(folder / "c.dict", folder / "n")
    assert nothing.exit_code == 1 and "can be written" in nothing.output
    assert export(folder / "a.dict", folder / "n", "--min-prob", 0.6).exit_code == 1
    assert not (folder / "n").exists()
    assert export(folder / "a.dict", folder).exit_code == 1
    assert run("inspect", folder / "a.dict", "--min-prob", 0.6).exit_code == 2
    assert export(Path(TOKENIZER), folder / "n").exit_code == 2


def test_an_export_replaces_nothing(folder: Path) -> None:
    notes = folder / "README.md"
    notes.write_text("# My notes\n", encoding="utf-8")
    refused = export(folder / "a.dict", notes)
    assert refused.exit_code == 1 and f"{notes}: exists and is not replaced" in refused.stderr
    assert notes.read_text(encoding="utf-8") == "# My notes\n"


def test_inspect_and_verify_know_what_was_merged(folder: Path) -> None:
    run("merge-dict", folder / "a.dict", folder / "b.dict", "-o", folder / "m")
    assert run("verify", folder / "m").exit_code == 0
    shown = run("inspect", folder / "m")
    assert shown.exit_code == 0, shown.output
    assert "merge" in shown.stdout
