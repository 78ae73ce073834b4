"""The house: few modules in a room, none loose, no circle of imports."""

from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
TOP = {"artifacts", "build", "corpora", "measure", "runtime"}
MOST = 12  # modules in a room


def modules() -> list[Path]:
    return [file.relative_to(ROOT) for room in sorted(TOP) for file in (ROOT / room).rglob("*.py")]


def test_no_room_is_crowded_and_every_room_says_what_it_is_for() -> None:
    rooms = Counter(file.parent for file in modules() if file.name != "__init__.py")
    print(rooms.most_common(5))
    assert len(rooms) > 20
    assert not {str(room): count for room, count in rooms.items() if count > MOST}
    for room in rooms:
        text = (ROOT / room / "__init__.py").read_text(encoding="utf-8")
        assert text.startswith('"""') and len(text.split()) > 8, f"{room}: say what it is for"


def test_no_room_of_tests_is_crowded() -> None:
    rooms = Counter(file.parent for file in (ROOT / "tests").rglob("*.py"))
    assert not {str(room): count for room, count in rooms.items() if count > MOST}


def test_no_module_lies_loose() -> None:
    assert {file.name for file in ROOT.glob("*.py")} == {"__init__.py", "cli.py"}


def test_no_circle_of_imports() -> None:
    graph = grimp.build_graph("spectool")
    waiting = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    # What imports nothing that is left is taken away; a circle is what never gets there.
    while free := {module for module, imported in waiting.items() if not imported & waiting.keys()}:
        waiting = {module: imported for module, imported in waiting.items() if module not in free}
    assert not waiting, sorted(waiting)
