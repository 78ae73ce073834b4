"""The translators of the toy pairs."""

from collections.abc import Callable
from functools import cache

import pytest

from spectool.lab.drawing.drafter import DrawingTranslator
from spectool.tests.lab.drawing.toy_pairs import PAIRS


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], DrawingTranslator]:
    """The translator of a pair of toy tokenizers, by its name."""
    return cache(lambda name: PAIRS[name].translator(tmp_path_factory.mktemp("pair")))
