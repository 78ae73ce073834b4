"""Count how the repository looks: lines, rooms, what a generation imports, circles of imports.

    python benchmarks/house.py            as a table
    python benchmarks/house.py --json     for comparing two states of the repository

Lines are physical lines of Python, docstrings included. A room is a folder with an ``__init__.py``.
"""

import ast
import json
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import click
import grimp

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("tests", "benchmarks", "docs")


def sources() -> list[Path]:
    """Return the Python files of the package."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split() if Path(name).parts[0] not in OUTSIDE]


def lines(files: list[Path]) -> int:
    """Return the lines of files together."""
    return sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files)


def lines_by_kind(files: list[Path]) -> dict[str, int]:
    """Return how many lines are docstrings, imports, blank, and code with its comments."""
    kinds = {"docstrings": 0, "imports": 0, "blank": 0}
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            inside = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            kind = "docstrings" if inside else "imports" if isinstance(node, ast.Import | ast.ImportFrom) else None
            if kind:
                numbers = range(node.lineno - 1, (node.end_lineno or node.lineno))
                kinds[kind] += sum(bool(text.splitlines()[number].strip()) for number in numbers)
        kinds["blank"] += sum(not line.strip() for line in text.splitlines())
    return {"code": lines(files) - sum(kinds.values()), **kinds}


def undocumented(files: list[Path]) -> tuple[int, int]:
    """Return public functions of three parameters and more, and those of them without ``Args:``."""
    functions = [
        node
        for file in files
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and len([a for a in (*node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls")]) >= 3
        and not node.decorator_list
    ]
    return len(functions), sum("Args:" not in (ast.get_docstring(node) or "") for node in functions)


def counts() -> dict[str, Any]:
    """Return the counts by name."""
    files = sources()
    modules = [file for file in files if file.name != "__init__.py"]
    rooms = {file.parent for file in files if file.name == "__init__.py"}
    by_room = {room: len([file for file in modules if file.parent == room]) for room in rooms}
    fullest = max(by_room, key=lambda room: by_room[room])
    graph = grimp.build_graph("spectool")
    public, bare = undocumented(files)
    measured = lines([file for file in files if file.parts[0] == "measure"])
    return {
        "lines in the package": lines(files),
        **{f"  of {kind}": count for kind, count in lines_by_kind(files).items()},
        "modules": len(modules),
        "median lines of a module": median(lines([file]) for file in modules),
        "longest module": max((lines([file]), str(file)) for file in modules),
        "top level": sorted({file.parts[0] for file in files}),
        "rooms": len(rooms),
        "modules in the fullest room": (by_room[fullest], str(fullest)),
        "share of lines that measure": round(measured / lines(files), 3),
        "imports between modules": graph.count_imports(),
        "public functions of three parameters or more": public,
        "of them without Args": bare,
    }


@click.command()
@click.option("--json", "as_json", is_flag=True)
def main(as_json: bool) -> None:
    """Print the counts."""
    found = counts()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        click.echo(f"{name:<46}{value}")


if __name__ == "__main__":
    main()
