"""Reading a page back from its Markdown: what a reader sees, by section."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from spectool.artifacts.benchmark import Benchmark
from spectool.cli import main
from spectool.measure.page import MARKDOWN
from spectool.measure.report.run_page import run_page
from spectool.measure.report.trials import read_trials


@dataclass
class Section:
    """A section: its paragraphs (captions of tables and plots among them) and its tables, rows by name."""

    text: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    tables: list[pd.DataFrame] = field(default_factory=list)

    def row(self, name: str, number: int = 0) -> dict[str, str]:
        """Return a row of the number-th table, by column."""
        found: dict[str, str] = self.tables[number].loc[name].to_dict()
        return found


def read_page(markdown: str) -> dict[str, Section]:
    """Return the sections by title."""
    found: dict[str, Section] = {}
    for part in re.split(r"^## ", markdown, flags=re.MULTILINE)[1:]:
        title, *blocks = (block.strip() for block in re.split(r"\n\n+", part))
        section = found[title] = Section()
        for block in blocks:
            if block.startswith("|"):
                header, _, *rows = (_cells(line) for line in block.splitlines())
                frame = pd.DataFrame([row[1:] for row in rows], [row[0] for row in rows], header[1:])
                section.captions.append(section.text.pop())
                section.tables.append(frame)
            elif block:
                section.text.append(block)
    return found


def _cells(line: str) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def page_of(path: Path) -> dict[str, Section]:
    return read_page(run_page(read_trials(Benchmark(path)))[MARKDOWN])


def call(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["report", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout
