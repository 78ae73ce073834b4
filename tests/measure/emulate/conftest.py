"""An alignment of the bundled pair and its texts, and a folder that must end up empty."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest
from click.testing import CliRunner
from mlx.utils import tree_flatten

from spectool.cli import main
from spectool.corpora import sample_path
from spectool.tests.measure.emulate.emulating import OTHER, TARGET
from spectool.tests.runtime.models import COMMON, tiny_model
from spectool.tokenization import open_tokenizer


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an alignment of the bundled pair, and text to replay."""
    folder = tmp_path_factory.mktemp("work")
    for name in ("pl", "uk"):
        lines = sample_path(name).read_text(encoding="utf-8").splitlines()
        (folder / f"{name}.txt").write_text("\n".join(lines[:24]), encoding="utf-8")
        (folder / f"{name}.few.txt").write_text("\n".join(lines[:5]), encoding="utf-8")
    align = ["align", "--draft", OTHER, "--target", TARGET, "--corpus", str(folder / "uk.txt")]
    result = CliRunner().invoke(main, [*align, "-o", str(folder / "x.align")])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def neural(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with the tokenizer of another family, as mlx-lm loads it."""
    folder = tmp_path_factory.mktemp("neural")
    for file in Path(OTHER).iterdir():
        shutil.copyfile(file, folder / file.name)
    size = open_tokenizer(OTHER).size
    weights = dict(tree_flatten(tiny_model(vocabulary=size).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size, **COMMON}))
    return folder


@pytest.fixture
def aligned(work: Path, neural: Path) -> list[object]:
    return ["--draft", neural, "--tokenizer", TARGET, "--alignment", work / "x.align", "--corpus", work / "uk.few.txt"]


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
