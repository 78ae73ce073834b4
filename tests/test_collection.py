"""Every folder of tests is run."""

from fnmatch import fnmatch
from pathlib import Path

import pytest


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    """Folders named like pytest's own exceptions (``build``) would be skipped without a word."""
    folders = {path.parent.name for path in Path(__file__).parent.rglob("test_*.py")}
    skipped = [name for name in folders for pattern in pytestconfig.getini("norecursedirs") if fnmatch(name, pattern)]
    assert folders >= {"alignment", "artifacts", "corpora", "dictionary", "runtime", "training"}
    assert skipped == []
