"""The page of a sweep: tables beside the paper's figures, and plots where matplotlib is installed."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from spectool.artifacts.replacing import renaming
from spectool.measure.emulate.sweep import tables
from spectool.measure.emulate.sweep.paper import figures
from spectool.measure.emulate.sweep.results import SCHEMA, Row
from spectool.measure.page import page_files


def write_page(rows: Sequence[Row], out: Path) -> list[str]:
    """Write the page of some runs into ``out``; return the names of its files."""
    series = tables.by_series(rows)
    plots: dict[str, str] = {}
    if find_spec("matplotlib") is not None:
        from spectool.measure.emulate.sweep.plots import draw_all

        plots = draw_all(series)
    given = {name: plots.get(name) for name in ("fertility", "sizes", "orders", "thresholds")}
    runs = pd.DataFrame(rows, columns=SCHEMA.names)
    files = page_files("sweep.jinja", "Sweep", runs=runs, series=series, tables=tables, paper=figures(), plots=given)
    for name, text in files.items():
        with renaming(out / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return list(files)
