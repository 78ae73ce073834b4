"""From the runs of a sweep to a page of tables, and plots where matplotlib is installed.

report.md                the tables; the paper's figures beside ours where it has the pair
NAME.svg  NAME.png       the plots of `plots`
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader

from spectool.artifacts.replacing import renaming
from spectool.measure.emulate.sweep import tables
from spectool.measure.emulate.sweep.paper import figures
from spectool.measure.emulate.sweep.results import SCHEMA, Row

REPORT = "report.md"


def write_report(rows: Sequence[Row], out: Path) -> list[str]:
    """Write tables and plots of ``rows`` into ``out``.

    Returns:
        Names of the files. Without matplotlib there are no plots among them.
    """
    plots: list[str] = []
    if find_spec("matplotlib") is not None:
        from spectool.measure.emulate.sweep.plots import write_plots

        plots = write_plots(rows, out)
    with renaming(out / REPORT) as partial:
        partial.write_text(markdown(rows, [name for name in plots if name.endswith(".svg")]), encoding="utf-8")
    return [REPORT, *plots]


def markdown(rows: Sequence[Row], plots: Sequence[str] = ()) -> str:
    """Lay the runs out as a page: fertility, best of the sweep, orders, sizes and thresholds."""
    templates = Environment(
        loader=PackageLoader(__package__),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return templates.get_template("report.md.j2").render(
        runs=pd.DataFrame(rows, columns=SCHEMA.names),
        series=tables.by_series(rows),
        tables=tables,
        paper=figures(),
        plots=plots,
    )
