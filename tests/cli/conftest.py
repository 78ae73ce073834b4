"""A dictionary and an alignment, made by the commands."""

import json
from pathlib import Path

import pytest

from spectool.corpora import sample_path
from spectool.tests.running import OTHER, TOKENIZER, run


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dictionary and an alignment, made by the commands."""
    folder = tmp_path_factory.mktemp("work")
    built = run("build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:uk", "-o", folder / "uk.dict", "--json")
    lines = sample_path("uk").read_text(encoding="utf-8").splitlines()
    (folder / "few.txt").write_text("\n".join(lines[:20]), encoding="utf-8")
    few = ("--corpus", folder / "few.txt")
    aligned = run("align", "--draft", OTHER, "--target", TOKENIZER, *few, "-o", folder / "x.align", "--json")
    for result, name in ((built, "uk.dict"), (aligned, "x.align")):
        assert result.exit_code == 0, result.output
        (folder / f"{name}.json").write_text(result.stdout)
        facts = json.loads(result.stdout)
        assert facts["path"] == str(folder / name)
        assert facts["bytes"] == (folder / name).stat().st_size
        assert len(facts["target_fingerprint"]) == 64
    return folder
