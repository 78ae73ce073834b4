"""``merge-dict``, as a user runs it."""

import json
from pathlib import Path

import pytest

from spectool.artifacts.artifact import verify_artifact
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
    return tmp_path


def test_merge(folder: Path) -> None:
    result = run("merge-dict", folder / "a.dict", folder / "b.dict", "-o", folder / "m", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["path"] == str(folder / "m") and facts["statistics"]["entries"] > 0
    verify_artifact(folder / "m")
    assert run("merge-dict", folder / "a.dict", "-o", folder / "n").exit_code == 2
    assert run("merge-dict", folder / "a.dict", folder / "nothing", "-o", folder / "n").exit_code == 1
    assert not (folder / "n").exists()


def test_inspect_and_verify_know_what_was_merged(folder: Path) -> None:
    run("merge-dict", folder / "a.dict", folder / "b.dict", "-o", folder / "m")
    assert run("verify", folder / "m").exit_code == 0
    shown = run("inspect", folder / "m")
    assert shown.exit_code == 0, shown.output
    assert "merge" in shown.stdout
