"""Everything in this folder belongs to the laboratory, which `make test-lab` tests."""

from pathlib import Path

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Do not even import these tests, and pandas and SciPy with them, where none of them is wanted."""
    return True if "not lab" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)
