"""Lines of JSON: the figures that benchmarks keep in ``results``, and what they read."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
BLAS = "OpenBLAS" if "openblas" in os.environ.get("LD_PRELOAD", "") else "reference"
"""What multiplies matrices on a CPU, as results name it."""


def save(name: str, row: Mapping[str, Any]) -> None:
    """Add a line to ``results/NAME.jsonl``."""
    with (RESULTS / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def json_lines(path: Path) -> list[Any]:
    """What the lines of a file say."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
