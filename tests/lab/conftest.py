"""Everything in this folder belongs to the laboratory, and to the nightly tier."""

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Do not even import these tests, and pandas and SciPy with them, where none of them is wanted."""
    wanted = config.option.markexpr
    return True if wanted and "nightly" not in wanted else None
