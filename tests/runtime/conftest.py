"""What the tests of the runtime share."""

from collections.abc import Iterator

import mlx.core as mx
import pytest


@pytest.fixture
def interpreted() -> Iterator[None]:
    """Leave mlx-lm's filters uncompiled: on a CPU each takes seconds to compile."""
    mx.disable_compile()
    yield
    mx.enable_compile()
