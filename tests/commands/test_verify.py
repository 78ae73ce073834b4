"""``verify`` of several artifacts, and what names without a folder find."""

import json
import shutil
from pathlib import Path

import pytest

from spectool.artifacts.arrays import save_array
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.default_paths import find_artifact
from spectool.artifacts.dictionary import Dictionary, Entry, write_dictionary
from spectool.tests.artifacts.hostile import reseal
from spectool.tests.running import TOKENIZER, error_of, run
from spectool.tokenization.opening import open_tokenizer


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    path = tmp_path / "sample-pl.8d3f21ab.backoff-0c55d1.dict"
    inputs = {"corpus": "sample:pl", "documents": 1, "characters": 9}
    with atomic_directory(path) as directory:
        shape = write_dictionary(directory, [Entry((5,), 6, 0.5, 3), Entry((6, 5), 7, 0.5, 3)])
        sides = {"target": open_tokenizer(TOKENIZER).identity}
        Dictionary.seal(directory, {"method": "merge"}, sides, inputs, shape)
    return path


def damaged(path: Path, file: str) -> Path:
    """A copy with one byte flipped."""
    copy = path.with_name(f"damaged-{file}.dict")
    shutil.copytree(path, copy)
    data = bytearray((copy / file).read_bytes())
    data[-1] ^= 1
    (copy / file).write_bytes(data)
    return copy


def test_verify_goes_on_after_a_damaged_artifact(dictionary: Path, tmp_path: Path) -> None:
    bad = [damaged(dictionary, file) for file in ("count.npy", "contexts.marisa")]
    result = run("verify", bad[0], dictionary, bad[1], tmp_path / "gone", dictionary)
    assert result.exit_code == 1
    whole = f"{dictionary}: whole (spectool-dictionary {Dictionary.version}, {size_of(dictionary):,} bytes)"
    assert result.stdout.splitlines() == [whole, whole]
    errors = result.stderr.splitlines()
    assert [line.partition(": SHA-256 is ")[0] for line in errors[:2]] == [
        f"Error: {bad[0]}/count.npy",
        f"Error: {bad[1]}/contexts.marisa",
    ]
    assert errors[2].startswith(f"Error: {tmp_path / 'gone'}: no such artifact")
    assert len(errors) == 3


def test_verify_as_json(dictionary: Path) -> None:
    bad = damaged(dictionary, "count.npy")
    result = run("verify", bad, dictionary, "--json")
    assert result.exit_code == 1
    assert result.stderr == ""
    broken, whole = json.loads(result.stdout)
    assert whole == {
        "path": str(dictionary),
        "format": Dictionary.format,
        "version": Dictionary.version,
        "bytes": size_of(dictionary),
        "whole": True,
    }
    assert broken["path"] == str(bad)
    assert broken["whole"] is False
    assert "count.npy: SHA-256 is" in broken["error"]
    assert run("verify", dictionary, "--json").exit_code == 0


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir() if file.name != "manifest.json")


def test_names_are_looked_up_in_the_cache(dictionary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_artifact(Path(dictionary.stem), ".dict") == find_artifact(Path(dictionary.name)) == dictionary
    assert run("verify", dictionary.name).stdout.startswith(f"{dictionary}: whole")
    assert run("inspect", dictionary.name, "--tokenizer", TOKENIZER).exit_code == 0
    for name in ("sample-pl", f"elsewhere/{dictionary.name}", ".", "gone"):
        assert find_artifact(Path(name), ".dict") == Path(name)


def test_control_characters_of_a_manifest_are_spelled(dictionary: Path) -> None:
    value = json.loads((dictionary / "manifest.json").read_text())
    value["inputs"]["corpus"] = "a\x1b[2J\x9b\rb"
    (dictionary / "manifest.json").write_text(json.dumps(value))
    assert r"corpus a\x1b[2J\x9b\rb" in run("inspect", dictionary, "--tokenizer", TOKENIZER).stdout


def test_ids_that_no_tokenizer_has(dictionary: Path) -> None:
    """Under a manifest that says otherwise, which is then about no tokenizer that there is."""
    save_array(dictionary / "alphabet.npy", [2**32 - 1, 10**6, 5], "uint32")
    value = json.loads((dictionary / "manifest.json").read_text())
    value["tokenizers"]["target"]["size"] = 2**40
    (dictionary / "manifest.json").write_text(json.dumps(value))
    reseal(dictionary)
    assert "with 1,099,511,627,776 ids" in error_of(run("inspect", dictionary, "--tokenizer", TOKENIZER))
