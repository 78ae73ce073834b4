"""Values of a parameter that are tried in the longer tiers alone."""

from collections.abc import Sequence
from typing import Any

import pytest


def nightly(*values: Any) -> list[Any]:
    """Return the values, of several parameters where they are tuples, with the mark of the nightly tier."""
    return _marked(values, pytest.mark.nightly)


def slow(*values: Any) -> list[Any]:
    """The same for tests that `.ci/run` leaves to the night."""
    return _marked(values, pytest.mark.slow)


def _marked(values: Sequence[Any], mark: pytest.MarkDecorator) -> list[Any]:
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=mark) for row in rows]
