"""Fixtures shared by all tests: the optional folder of real tokenizers and corpora."""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("SPECTOOL_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with real ``tokenizers/`` and ``corpora/``; tests that need it skip without it."""
    if not (SHARED / "tokenizers").is_dir():
        pytest.skip(f"no tokenizers and corpora at {SHARED}; set SPECTOOL_SHARED to their folder")
    return SHARED
