"""Tokenizers for the tests of this folder: the small bundled ones."""

import pytest

from spectool.artifacts import Tokenizer, open_tokenizer
from spectool.runtime.demo_models import demo_path


@pytest.fixture(scope="session")
def bundled() -> Tokenizer:
    """The demo target's tokenizer: SentencePiece-style BPE of a few hundred tokens."""
    return open_tokenizer(demo_path("target") / "tokenizer.json")


@pytest.fixture(scope="session")
def other_bundled() -> Tokenizer:
    """Another bundled tokenizer, byte-level."""
    return open_tokenizer(demo_path("other") / "tokenizer.json")
