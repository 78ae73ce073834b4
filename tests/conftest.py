"""Fixtures shared by all tests: the optional folder of real tokenizers and corpora, and its tokenizers."""

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from spectool.artifacts import Tokenizer, open_tokenizer
from spectool.runtime.demo_models import demo_path

SHARED = Path(os.environ.get("SPECTOOL_SHARED", Path(__file__).resolve().parents[2] / "shared"))


# Vocabularies of 128,000 ids and more take seconds to open and to walk through.
BIG = ("gemma-3", "gpt4o-o200k", "llama-3.2", "mistral-nemo", "nanochat-pl-ours6-nfkc", "qwen2.5", "xlm-roberta-base")


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes of tests; a shell makes what it starts in the background ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests on the big real tokenizers to the system tier."""
    for item in items:
        values = (
            item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        )
        if any(name in str(value) for value in values for name in BIG):
            item.add_marker(pytest.mark.system)


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


@pytest.fixture(scope="session")
def bundled() -> Tokenizer:
    """The demo target's tokenizer: SentencePiece-style BPE of a few hundred tokens."""
    return open_tokenizer(demo_path("target") / "tokenizer.json")


@pytest.fixture(scope="session")
def other_bundled() -> Tokenizer:
    """Another bundled tokenizer, byte-level."""
    return open_tokenizer(demo_path("other") / "tokenizer.json")
