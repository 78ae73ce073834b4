"""An experiment, and its run."""

import json
from pathlib import Path

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.bench.recorded import TARGET, TOKENS, run


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dictionary, prompts and an experiment."""
    folder = tmp_path_factory.mktemp("bench")
    built = run("build-dict", "--tokenizer", TARGET, "--corpus", "sample:pl", "-o", folder / "pl.dict")
    assert built.exit_code == 0, built.output
    lines = ["Most w Jaworowcu zamknięty do", "Jak naprawić przebitą dętkę", "Wczoraj wieczorem w domu"]
    (folder / "prompts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "experiment.toml").write_text(
        f"""
        name = "demo"
        tokens = {TOKENS}
        num_draft_tokens = [2, "auto"]
        [[prompts]]
        source = "{folder / "prompts.txt"}"
        language = "pl"
        kinds = ["news"]
        [[models]]
        name = "target"
        path = "{TARGET}"
        [[models.drafters]]
        name = "dictionary"
        dictionary = "{folder / "pl.dict"}"
        history = true
        [[models.drafters]]
        name = "draft"
        draft_model = "{demo_path("draft")}"
        """,
        encoding="utf-8",
    )
    return folder


@pytest.fixture(scope="session")
def measured(work: Path) -> Path:
    out = work / "whole.bench"
    result = run("bench", work / "experiment.toml", "-o", out, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["blocks"], facts["generations"], facts["different"]) == (3, 15, 0)
    assert {(one["drafter"], one["num_draft_tokens"], one["prompts"]) for one in facts["configurations"]} == {
        (name, k, 3) for name in ("dictionary", "draft") for k in (2, None)
    }
    return out
