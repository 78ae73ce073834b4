"""``verify`` of several artifacts, and what names without a folder find."""

import json
from pathlib import Path

import pytest

from spectool.artifacts.default_paths import find_artifact
from spectool.artifacts.dictionary import Dictionary
from spectool.tests.artifacts.parts import edit, edit_manifest
from spectool.tests.build.dictionaries import written
from spectool.tests.running import TOKENIZER, error_of, run
from spectool.tokenization.opening import open_tokenizer


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    path = tmp_path / "sample-pl.8d3f21ab.backoff-0c55d1.dict"
    inputs = {"corpus": "sample:pl", "documents": 1, "characters": 9}
    rows = [((5,), 6, 0.5, 3), ((6, 5), 7, 0.5, 3)]
    return written(path, rows, open_tokenizer(TOKENIZER).identity, {"method": "merge"}, inputs).path


def damaged(path: Path, place: int) -> Path:
    """A copy with one bit flipped."""
    copy = path.with_name(f"damaged{place}.dict")
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    copy.write_bytes(data)
    return copy


def test_verify_goes_on_after_a_damaged_artifact(dictionary: Path, tmp_path: Path) -> None:
    bad = [damaged(dictionary, place) for place in (-1, -200)]
    result = run("verify", bad[0], dictionary, bad[1], tmp_path / "gone", dictionary)
    assert result.exit_code == 1
    size = dictionary.stat().st_size
    whole = f"{dictionary}: whole (spectool-dictionary {Dictionary.version}, {size:,} bytes)"
    assert result.stdout.splitlines() == [whole, whole]
    errors = result.stderr.splitlines()
    assert [line.partition(": SHA-256 is ")[0] for line in errors[:2]] == [
        f"Error: {bad[0]}",
        f"Error: {bad[1]}",
    ]
    assert errors[2].startswith(f"Error: {tmp_path / 'gone'}: no such file")
    assert len(errors) == 3


def test_verify_as_json(dictionary: Path) -> None:
    bad = damaged(dictionary, -1)
    result = run("verify", bad, dictionary, "--json")
    assert result.exit_code == 1
    assert result.stderr == ""
    broken, whole = json.loads(result.stdout)
    assert whole == {
        "path": str(dictionary),
        "format": Dictionary.format,
        "version": Dictionary.version,
        "bytes": dictionary.stat().st_size,
        "whole": True,
    }
    assert broken["path"] == str(bad)
    assert broken["whole"] is False
    assert ": SHA-256 is" in broken["error"]
    assert run("verify", dictionary, "--json").exit_code == 0


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
    edit_manifest(dictionary, lambda manifest: manifest["inputs"].update(corpus="a\x1b[2J\x9b\rb"))
    assert r"corpus a\x1b[2J\x9b\rb" in run("inspect", dictionary, "--tokenizer", TOKENIZER).stdout


def test_ids_that_no_tokenizer_has(dictionary: Path) -> None:
    """Under a manifest that says otherwise, which is then about no tokenizer that there is."""
    edit(dictionary, lambda parts: parts.set("alphabet", [2**32 - 1, 10**6, 5]))
    edit_manifest(dictionary, lambda manifest: manifest["tokenizers"]["target"].update(size=2**40))
    assert "with 1,099,511,627,776 ids" in error_of(run("inspect", dictionary, "--tokenizer", TOKENIZER))
