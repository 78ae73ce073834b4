"""A tiny model and a text of it."""

from typing import Any

import pytest

from spectool.tests.runtime.decoding.tiny_texts import PROMPT
from spectool.tests.runtime.models import plain, tiny_model


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.fixture(scope="module")
def text(model: Any) -> list[int]:
    """Forty tokens of plain decoding after PROMPT."""
    return plain(model, PROMPT, 40)
