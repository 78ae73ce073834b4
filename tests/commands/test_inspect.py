"""``inspect`` of artifacts, damaged ones too, and what names without a folder find."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from spectool.artifacts.default_paths import find_artifact
from spectool.artifacts.dictionary import Dictionary
from spectool.commands.inspect import explain
from spectool.tests.artifacts.parts import edit_manifest
from spectool.tests.build.dictionaries import written
from spectool.tests.running import TOKENIZER, error_of, run
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.roles import Roles
from spectool.tokenization.tokenizer import Tokenizer


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    path = tmp_path / "sample-pl.8d3f21ab.backoff-0c55d1.dict"
    inputs = {"corpus": "sample:pl", "documents": 1, "characters": 9}
    rows = [((5,), 6, 0.5), ((6, 5), 7, 0.5)]
    return written(path, rows, open_tokenizer(TOKENIZER).identity, {"method": "merge"}, inputs).path


def test_damage_is_an_error(dictionary: Path, tmp_path: Path) -> None:
    whole = dictionary.read_bytes()
    for place in (-1, -40):
        bad = tmp_path / f"damaged{place}.dict"
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place:][1:])
        assert f"{bad}: SHA-256 is " in error_of(run("inspect", bad))
    assert f"{tmp_path / 'gone'}: no such file" in error_of(run("inspect", tmp_path / "gone"))


def test_names_are_looked_up_in_the_cache(dictionary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_artifact(Path(dictionary.stem), ".dict") == find_artifact(Path(dictionary.name)) == dictionary
    assert run("inspect", dictionary.name, "--tokenizer", TOKENIZER).exit_code == 0
    for name in ("sample-pl", f"elsewhere/{dictionary.name}", ".", "gone"):
        assert find_artifact(Path(name), ".dict") == Path(name)


def test_characters_of_a_manifest_that_show_no_sign_are_spelled(dictionary: Path) -> None:
    """They could move the cursor, turn the direction of text, or look like a line of our own."""
    hostile = "a\x1b[2J\x9b\r\u202eb\u2066\u2028\nnext: x"
    edit_manifest(dictionary, lambda manifest: manifest["inputs"].update(corpus=hostile))
    edit_manifest(dictionary, lambda manifest: manifest["tokenizers"]["target"].update(name=hostile))
    inspect = ("inspect", dictionary, "--tokenizer", TOKENIZER)
    assert r"corpus a\x1b[2J\x9b\r\u202eb\u2066\u2028\nnext: x" in run(*inspect).stdout
    shown = run(*inspect, "--json").stdout
    assert json.loads(shown)["inputs"]["corpus"] == hostile
    edit_manifest(dictionary, lambda manifest: manifest.update(version=1))
    for printed in (shown, error_of(run(*inspect))):
        assert all(char.isprintable() for line in printed.split("\n") for char in line)


# Look-ups step by step: how a text was split, and what would be drafted.


def dictionary_of(path: Path, tokenizer: Any, entries: list[tuple[str, str, float]]) -> Dictionary:
    """A dictionary whose entries are one token after the tokens of a text."""
    rows = []
    for context, following, probability in entries:
        space = "" if tokenizer.leading_space else " "
        (ids, whole) = tokenizer.encode_batch([f"{space}{context}", f"{space}{context}{following}"])
        rows.append((ids, whole[len(ids)], probability))
    return written(path, rows, tokenizer.identity, {"method": "backoff"})


ENTRIES = [("idzie", " przez", 0.5), ("idzie przez", " las", 0.6), ("idzie przez las", " i", 0.5)]


@pytest.mark.parametrize("name", ["bielik-11b-v2.5", "gemma-3", "qwen2.5"])
def test_a_look_up_is_a_chain_of_entries(shared: Path, tmp_path: Path, name: str) -> None:
    tokenizer = open_tokenizer(shared / "tokenizers" / name / "tokenizer.json")
    dictionary = dictionary_of(tmp_path / "x.dict", tokenizer, ENTRIES)
    facts = explain(dictionary, tokenizer, "idzie")
    assert facts["tokens"].replace(" | ", "").strip("▁") == "idzie"
    assert [step["comes"].strip("▁") for step in facts["proposal"]] == ["przez", "las", "i"]
    assert [step["probability"] for step in facts["proposal"]] == pytest.approx([0.5, 0.6, 0.5], abs=1 / 256)
    assert facts["proposal"][2]["in_all"] == pytest.approx(0.15, abs=0.01)
    assert all(step["after"].strip("▁").startswith("idzie") for step in facts["proposal"])
    inside = explain(dictionary, tokenizer, "idzie prze")
    assert " | " in inside["tokens"] and inside["proposal"] == []
    assert "\\x" in explain(dictionary, tokenizer, "𒀀")["tokens"] or tokenizer.unknown is not None


def test_special_tokens_have_names(tmp_path: Path) -> None:
    backend = Backend(models.BPE({"a": 0, "▁": 1, "▁a": 2}, [("▁", "a")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens(["<s>"])
    tokenizer = Tokenizer("small", backend, Roles())
    dictionary = dictionary_of(tmp_path / "x.dict", tokenizer, [("a", " a", 0.5)])
    assert explain(dictionary, tokenizer, "<s>") == {"tokens": "<s>", "proposal": []}
    assert explain(dictionary, tokenizer, "") == {"tokens": "", "proposal": []}
