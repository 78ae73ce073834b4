"""Values of a parameter that are tried in the nightly tier alone."""

from typing import Any

import pytest


def nightly(*values: Any) -> list[Any]:
    """Return the values, of several parameters where they are tuples, with the mark of that tier."""
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=pytest.mark.nightly) for row in rows]
