"""Text, and a draft with another tokenizer and its alignment."""

from pathlib import Path

import pytest

from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus, sample_path
from spectool.tests.lab.training.tiny_pair import stored, tokenizer_of


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``uk.txt`` and ``pl.txt``, and ``other`` with ``other.align``, aligned on other text."""
    folder = tmp_path_factory.mktemp("fairness")
    lines = [line for line in sample_path("uk").read_text(encoding="utf-8").splitlines() if line.strip()]
    (folder / "uk.built.txt").write_text("\n".join(lines[::2]), encoding="utf-8")
    (folder / "uk.txt").write_text("\n".join(lines[1::2]), encoding="utf-8")
    (folder / "pl.txt").write_text(sample_path("pl").read_text(encoding="utf-8"), encoding="utf-8")
    built = open_corpus(str(folder / "uk.built.txt"))
    build_alignment(tokenizer_of("other"), tokenizer_of("target"), built, folder / "other.align", lambda step: None)
    (folder / "other").mkdir()
    stored(folder / "other", "other", hidden=16, seed=3)
    return folder
