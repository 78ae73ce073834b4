"""A run of the bundled models."""

import json
from pathlib import Path

import pytest

from spectool.tests.measure.bench.recorded import TARGET, options
from spectool.tests.running import run


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dictionary and prompts."""
    folder = tmp_path_factory.mktemp("bench")
    built = run("build-dict", "--tokenizer", TARGET, "--corpus", "sample:pl", "-o", folder / "pl.dict")
    assert built.exit_code == 0, built.output
    lines = ["Most w Jaworowcu zamknięty do", "Jak naprawić przebitą dętkę", "Wczoraj wieczorem w domu"]
    (folder / "prompts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def measured(work: Path) -> Path:
    out = work / "whole.bench"
    result = run(*options(work, out), "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["blocks"], facts["outputs"]) == (3, 12) and facts["different"] == 0
    assert {(one["drafter"], one["draft_length"], one["prompts"]) for one in facts["configurations"]} == {
        (name, k, 3) for name in ("dictionary", "draft") for k in (2, "auto")
    }
    return out
