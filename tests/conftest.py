"""Fixtures shared by all tests: the optional folder of real tokenizers and corpora, and its tokenizers."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from spectool.artifacts import Tokenizer, open_tokenizer

SHARED = Path(os.environ.get("SPECTOOL_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with real ``tokenizers/`` and ``corpora/``; tests that need it skip without it."""
    if not (SHARED / "tokenizers").is_dir():
        pytest.skip(f"no tokenizers and corpora at {SHARED}; set SPECTOOL_SHARED to their folder")
    return SHARED


@pytest.fixture(scope="session")
def real(shared: Path) -> Callable[[str], Tokenizer]:
    """Open one of the real tokenizers from its ``tokenizer.json``; kept for the whole run."""

    @cache
    def opened(name: str) -> Tokenizer:
        return open_tokenizer(shared / "tokenizers" / name / "tokenizer.json")

    return opened
