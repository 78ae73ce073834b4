"""Look-ups explained: how a text was split, what would be drafted, and why there is nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.dictionary import MIN_PROBABILITY, Dictionary, Entry, write_dictionary
from spectool.commands.look_ups import DictionaryText, explain
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.roles import Roles
from spectool.tokenization.tokenizer import Tokenizer

from ..running import run


def dictionary_of(path: Path, tokenizer: Any, entries: list[tuple[str, str, float]]) -> Dictionary:
    """A dictionary whose entries are one token after the tokens of a text."""
    rows = []
    for context, following, probability in entries:
        (ids, whole) = tokenizer.encode_after_space([context, context + following])
        rows.append(Entry(ids, whole[len(ids)], probability, 100))
    with atomic_directory(path) as directory:
        shape = write_dictionary(directory, rows)
        arguments = {"method": "backoff"}
        Dictionary.seal(directory, arguments, {"target": tokenizer.identity}, {}, shape)
    return Dictionary(path)


TOKENIZERS = ["bielik-11b-v2.5", "herbert-base-cased", "gemma-3", "qwen2.5"]
ENTRIES = [("idzie", " przez", 0.5), ("idzie przez", " las", 0.6), ("idzie przez las", " i", 0.5)]


@pytest.fixture(params=TOKENIZERS)
def words(request: pytest.FixtureRequest, shared: Path, tmp_path: Path) -> DictionaryText:
    tokenizer = open_tokenizer(shared / "tokenizers" / request.param / "tokenizer.json")
    return DictionaryText(dictionary_of(tmp_path / "x.dict", tokenizer, ENTRIES), tokenizer)


def test_a_text_within_a_word_is_explained(words: DictionaryText) -> None:
    facts = explain(words, "idzie prze", as_json=False)
    assert facts["tokens"].startswith("idzie␣prze → ") and " | " in facts["tokens"]
    assert facts["lookup"] == "nothing"
    assert "Give whole words" in facts["reason"]
    assert explain(words, "idzie prze", as_json=True)["lookup"] is None


def test_what_is_below_the_threshold_is_said_to_be_not_drafted(words: DictionaryText) -> None:
    facts = explain(words, "idzie", as_json=False)
    assert "przez" in facts["lookup"] and "below" not in facts["lookup"]
    assert "przez" in facts["proposal"] and "(30% for all of it)" in facts["proposal"]
    assert "(15% for all of it), below 20%, so not drafted by default" in facts["not drafted"]
    steps = explain(words, "idzie", as_json=True)["proposal"]
    assert [step["drafted"] for step in steps] == [step["probability"] >= MIN_PROBABILITY for step in steps]
    assert [step["drafted"] for step in steps] == [True, True, False]


@pytest.mark.parametrize("name", ["bielik-11b-v2.5"])
def test_other_reasons(shared: Path, tmp_path: Path, name: str) -> None:
    tokenizer = open_tokenizer(shared / "tokenizers" / name / "tokenizer.json")
    entries = [("ala", " ma", 0.1), ("kota i", " psa", 0.3)]
    words = DictionaryText(dictionary_of(tmp_path / "x.dict", tokenizer, entries), tokenizer)
    assert "leave out the space at the end" in explain(words, "ala ", as_json=False)["reason"]
    assert "too rare in the counted text" in explain(words, "жук", as_json=False)["reason"]
    assert "too rare in the counted text" in explain(words, "ala ma", as_json=False)["reason"]
    facts = explain(words, "ala", as_json=False)
    assert facts["lookup"].endswith("(10%)  below 20%, so not drafted by default")
    assert facts["proposal"] == "nothing: the first token is below 20%, so not drafted by default"
    assert "\\x" in explain(words, "𒀀", as_json=False)["tokens"], "parts of a character are bytes"


UNKNOWN = {"a": 0, "l": 1, "m": 2, "▁": 3, "al": 4, "ala": 5, "▁ala": 6, "ma": 7, "▁ma": 8}
MERGES = [("a", "l"), ("al", "a"), ("▁", "ala"), ("m", "a"), ("▁", "ma")]


@pytest.mark.parametrize("unknown", [None, "<unk>"])
def test_text_that_the_tokenizer_cannot_spell(tmp_path: Path, unknown: str | None) -> None:
    backend = Backend(models.BPE(UNKNOWN | ({unknown: 9} if unknown else {}), MERGES, unk_token=unknown))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens(["<s>"])
    tokenizer = Tokenizer("small", backend, Roles())
    path = dictionary_of(tmp_path / "x.dict", tokenizer, [("ala", " ma", 0.5)]).path
    words = DictionaryText(Dictionary(path), tokenizer)

    def reason(text: str) -> str:
        json.dumps(explain(words, text, as_json=True))
        facts = explain(words, text, as_json=False)
        assert facts["lookup"] == "nothing"
        return str(facts["tokens"].split(" → ")[1] + ": " + facts["reason"])

    assert reason("").startswith("none: the text has no token")
    assert reason("<s>").startswith("<s>: the text ends in the special token <s>, which stands for no text")
    for text in ("𒀀", "\x00", "ala ж", "\ufeff", "\n\n𒀀"):
        if unknown:
            assert "<unk>: the tokenizer has no token for the end of the text" in reason(text)
        else:
            assert "no entry ends in ▁" in reason(text)


def test_half_a_surrogate_is_a_usage_error() -> None:
    result = run("inspect", "x.dict", "--lookup", "ala\udcc5")
    assert result.exit_code == 2 and "'--lookup': not UTF-8 at byte 3" in result.stderr
