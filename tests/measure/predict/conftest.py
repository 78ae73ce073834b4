"""Texts to replay, and arguments that replay one."""

from pathlib import Path

import pytest

from spectool.corpora import sample_path
from spectool.tests.measure.predict.predicting import TARGET


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text to replay."""
    folder = tmp_path_factory.mktemp("work")
    for name in ("pl", "uk"):
        lines = sample_path(name).read_text(encoding="utf-8").splitlines()
        (folder / f"{name}.txt").write_text("\n".join(lines[:24]), encoding="utf-8")
        (folder / f"{name}.few.txt").write_text("\n".join(lines[:5]), encoding="utf-8")
    return folder


@pytest.fixture
def replaying(work: Path) -> list[object]:
    return ["--tokenizer", TARGET, "--corpus", work / "uk.few.txt"]
