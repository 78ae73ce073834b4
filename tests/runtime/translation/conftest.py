"""Pairs of tokenizers, aligned once for all tests."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.runtime.translation.translation_twin import TranslationTwin
from spectool.tests.runtime.translation.worlds import BUNDLED, World
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Callable[[str], World]]:
    """Align a pair, ``draft:target``; kept for the whole run. What is derived from one tokenizer is derived once."""
    folder = tmp_path_factory.mktemp("alignments")
    bundled: Callable[[str], Tokenizer] = cache(lambda name: open_tokenizer(demo_path(name) / "tokenizer.json"))  # type: ignore[arg-type]

    @cache
    def aligned(pair: str) -> World:
        names = pair.split(":")
        opened = bundled if pair in BUNDLED else request.getfixturevalue("real")
        draft, target = map(opened, names)
        build_alignment(draft, target, open_corpus("sample:pl"), folder / pair, lambda step: None, sample=2000)
        return World(draft, target, Alignment(folder / pair), TranslationTwin(draft, target))

    return aligned
