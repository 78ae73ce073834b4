"""Tokenizers for the tests of this folder: real ones, opened once, and the small bundled ones."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from spectool.artifacts import Tokenizer, open_tokenizer
from spectool.runtime.demo_models import demo_path


@pytest.fixture(scope="session")
def real(shared: Path) -> Callable[[str], Tokenizer]:
    """Open one of the real tokenizers from its ``tokenizer.json``; kept for the whole run."""

    @cache
    def opened(name: str) -> Tokenizer:
        return open_tokenizer(shared / "tokenizers" / name / "tokenizer.json")

    return opened


@pytest.fixture(scope="session")
def bundled() -> Tokenizer:
    """The demo target's tokenizer: SentencePiece-style BPE of a few hundred tokens."""
    return open_tokenizer(demo_path("target") / "tokenizer.json")


@pytest.fixture(scope="session")
def other_bundled() -> Tokenizer:
    """Another bundled tokenizer, byte-level."""
    return open_tokenizer(demo_path("other") / "tokenizer.json")
