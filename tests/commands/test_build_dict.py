"""What build-dict says of the files it reads, and of a text that makes no dictionary."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from spectool.artifacts.default_paths import place_of, slug
from spectool.commands.build_dict import dictionary_path
from spectool.runtime.demo_models import demo_path
from spectool.tests.running import run


def test_unknown_tokens_make_no_dictionary(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"[UNK]": 0, "jeden": 1, "i": 2, "dwa": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(tmp_path / "tokenizer.json"))
    text, tokenizer = tmp_path / "text", ("--tokenizer", tmp_path / "tokenizer.json")
    text.write_text("trzy cztery " * 9)
    found = run("build-dict", *tokenizer, "--corpus", text, "-o", tmp_path / "a.dict")
    assert found.exit_code == 1 and "knows none of this text" in found.stderr


def test_texts_of_the_same_name_make_two_dictionaries(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("law", "medicine", "law"):
        (tmp_path / folder / "texts").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "texts" / "a.txt").write_text(f"Most w {folder}. " * 9)
        asked = ("build-dict", "--tokenizer", demo_path("target"), "--corpus", tmp_path / folder / "texts")
        assert run(*asked).exit_code == 0
    assert len(list(cache.glob("texts-*.dict"))) == 2
    monkeypatch.chdir(tmp_path / "law")
    assert [slug(name) for name in (".", "texts/..", "../law")] == ["law"] * 3, (
        "a name that begins with a dot is hidden"
    )
    assert place_of("texts#body") == f"{tmp_path}/law/texts#body" and place_of("sample:pl") == "sample:pl"
    here = [dictionary_path("0" * 64, 5, [pack], []) for pack in ("texts", "texts/a.txt")]
    monkeypatch.chdir(tmp_path / "medicine")
    elsewhere = [dictionary_path("0" * 64, 5, [pack], []) for pack in ("texts", "texts/a.txt")]
    assert here[0] == elsewhere[0] and here[1] != elsewhere[1], "a bundled pack is the same in every folder"


@pytest.mark.parametrize("source", [("--pack", "pl"), ("--corpus", "sample:pl")])
def test_a_tokenizer_that_stops_at_unknown_text_is_refused_before_the_work(
    tmp_path: Path, source: tuple[str, str]
) -> None:
    """A Unigram without ``unk_id``."""
    file = tmp_path / "tokenizer.json"
    Backend(models.Unigram([("a", -1.0), (" ", -1.0)])).save(str(file))
    found = run("build-dict", "--tokenizer", file, *source, "-o", tmp_path / "a.dict")
    problem = f"Error: {file}: cannot encode a text (Encountered an unknown token but `unk_id` is missing)"
    assert found.exit_code == 1
    assert [line.partition(". ")[0] for line in found.stderr.splitlines()] == [f"opening {file}", problem]
