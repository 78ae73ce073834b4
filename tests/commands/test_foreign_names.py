"""Files and folders whose names are not UTF-8, as old archives have them: they are read, and named with escapes."""

import json
import os
import shutil
from pathlib import Path

import pytest

from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.manifest import Manifest
from spectool.build.pruning.stage import read_record
from spectool.corpora import open_corpus, sample_path
from spectool.runtime.demo_models import demo_path
from spectool.tests.running import OTHER, TOKENIZER, process

NAME = b"\xbf\xf3\xb3w"  # "żółw" in CP1250
SHOWN = r"\xbf\xf3\xb3w"
BUILD = ("build-dict", "--tokenizer", TOKENIZER)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with such a name that holds a file with such a name."""
    folder = tmp_path / os.fsdecode(NAME)
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("the file system here has no such names")
    shutil.copy(sample_path("pl"), folder / f"{os.fsdecode(NAME)}.txt")
    return folder


def manifest_of(out: Path) -> Manifest:
    """The manifest of an artifact, or the record of a pruned draft model."""
    record = read_record(out) if out.is_dir() else read_manifest(out)
    assert record is not None
    return record


@pytest.mark.parametrize(
    "command",
    [
        BUILD,
        pytest.param(("align", "--draft", OTHER, "--target", TOKENIZER), marks=pytest.mark.nightly),
        pytest.param(("prune-draft", "--draft", str(demo_path("draft"))), marks=pytest.mark.nightly),
    ],
    ids=["build-dict", "align", "prune-draft"],
)
def test_the_text_is_read_and_named_with_escapes(texts: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    for number, corpus in enumerate((texts, next(texts.iterdir()))):
        out = tmp_path / str(number)
        done = process(*command, "--corpus", corpus, "-o", out)
        assert done.returncode == 0, done.stderr
        inputs = manifest_of(out).inputs
        said = inputs if "files" in inputs else inputs["corpora"][0]
        assert [file["name"] for file in said["files"]] == [f"{SHOWN}.txt"]
        assert SHOWN in json.dumps(inputs).replace("\\\\", "\\")
        assert process("inspect", out).returncode == 0


def test_documents_have_such_names_too(texts: Path) -> None:
    corpus = open_corpus(str(texts))
    first = next(iter(corpus))
    assert first.id.startswith(f"{SHOWN}.txt:")
    assert corpus.spec.endswith(SHOWN)
