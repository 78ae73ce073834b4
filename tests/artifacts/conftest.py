"""A small artifact to damage or replace."""

from pathlib import Path

import pytest

from .small_artifact import build


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    build(tmp_path / "x.test")
    return tmp_path / "x.test"
