"""An alignment of the bundled pair and its texts, and a folder that must end up empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from spectool.cli import main
from spectool.corpora import sample_path
from spectool.tests.measure.emulate.emulating import OTHER, TARGET


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an alignment of the bundled pair, text to replay, and other text to count on."""
    folder = tmp_path_factory.mktemp("work")
    for name in ("pl", "uk"):
        lines = sample_path(name).read_text(encoding="utf-8").splitlines()
        (folder / f"{name}.txt").write_text("\n".join(lines[:24]), encoding="utf-8")
        (folder / f"{name}.few.txt").write_text("\n".join(lines[:5]), encoding="utf-8")
        (folder / f"{name}.rest.txt").write_text("\n".join(lines[24:]), encoding="utf-8")
    align = ["align", "--draft", OTHER, "--target", TARGET, "--corpus", str(folder / "uk.txt")]
    result = CliRunner().invoke(main, [*align, "-o", str(folder / "x.align")])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def aligned(work: Path) -> list[object]:
    return ["--draft", OTHER, "--alignment", work / "x.align", "--corpus", work / "uk.txt"]


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
