"""The house: no module imports itself, by however many others."""

from fnmatch import fnmatch
from pathlib import Path

import grimp
import pytest


def test_no_circle_of_imports() -> None:
    graph = grimp.build_graph("spectool")
    waiting = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    # What imports nothing that is left is taken away; a circle is what never gets there.
    while free := {module for module, imported in waiting.items() if not imported & waiting.keys()}:
        waiting = {module: imported for module, imported in waiting.items() if module not in free}
    assert not waiting, sorted(waiting)


# Every folder of tests is run.


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    """Folders named like pytest's own exceptions (``build``) would be skipped without a word."""
    folders = {path.parent.name for path in Path(__file__).parent.rglob("test_*.py")}
    skipped = [name for name in folders for pattern in pytestconfig.getini("norecursedirs") if fnmatch(name, pattern)]
    assert folders >= {"alignment", "artifacts", "corpora", "dictionary", "runtime", "training"}
    assert skipped == []
