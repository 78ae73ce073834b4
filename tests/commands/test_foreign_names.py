"""Files and folders whose names are not UTF-8, as old archives have them: they are read, and named with escapes."""

import json
import os
import shutil
from pathlib import Path

import pytest

from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.dictionary import Dictionary
from spectool.build.corpus_reading import quiet
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs import PackOptions
from spectool.build.packs.stage import build_pack, count_and_build, open_pack
from spectool.corpora import open_corpus, sample_path
from spectool.tests.running import TOKENIZER, process
from spectool.tokenization.opening import open_tokenizer

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


@pytest.mark.nightly
def test_the_text_is_read_and_named_with_escapes(texts: Path, tmp_path: Path) -> None:
    for number, corpus in enumerate((texts, next(texts.iterdir()))):
        out = tmp_path / str(number)
        done = process(*BUILD, "--corpus", corpus, "-o", out)
        assert done.returncode == 0, done.stderr
        inputs = read_manifest(out).inputs
        assert [file["name"] for file in inputs["files"]] == [f"{SHOWN}.txt"]
        assert SHOWN in json.dumps(inputs).replace("\\\\", "\\")
        assert process("inspect", out).returncode == 0


def test_packs_may_have_such_names(texts: Path, tmp_path: Path) -> None:
    name, options = texts / f"{os.fsdecode(NAME)}.pack", PackOptions(min_count=1)
    build_pack([], [open_corpus(str(texts))], {"language": "pl"}, name, options, quiet)
    pack = open_pack(str(name))
    count_and_build(open_tokenizer(TOKENIZER), None, tmp_path / "x.dict", BackoffOptions(), quiet, [pack])
    build_pack([pack], [], {"language": "pl"}, tmp_path / "x.pack", options, quiet)
    assert Dictionary(tmp_path / "x.dict").manifest.inputs["packs"][0]["name"] == f"{SHOWN}.pack"
    assert open_pack(str(tmp_path / "x.pack")).manifest.inputs["corpus"] == f"{SHOWN}.pack"
