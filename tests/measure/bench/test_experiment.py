"""Experiments: TOML files, what they may say, and errors that name the key."""

from dataclasses import replace
from pathlib import Path

import pytest

from spectool import SpectoolError
from spectool.measure.bench.experiment import (
    DrafterSpec,
    Experiment,
    ModelSpec,
    Prompts,
    read_experiment,
    read_paths,
    with_paths,
)

WHOLE = """
name = "Polish"
tokens = 64
repetitions = 2
temperature = 0.7
seed = 3
num_draft_tokens = [2, "auto"]

[[prompts]]
language = "pl"
kinds = ["list", "question"]
count = 3

[[prompts]]
source = "wiki-pl"
language = "pl"
kinds = ["wikipedia"]
window = 1024
stride = 512
chat = true

[[models]]
name = "large"
path = "some/large"

[[models.drafters]]
name = "small"
draft_model = "some/small"
alignment = "pair.align"
strategies = ["context", "anchored"]

[[models.drafters]]
name = "dictionary"
dictionary = "pl.dict"
history = true
"""
DRAFTER = DrafterSpec("history", history=True)
MODEL = ModelSpec("large", "some/large", (DRAFTER,))
GOOD = Experiment((MODEL,), (Prompts(language="pl"),))


def read(tmp_path: Path, text: str) -> Experiment:
    file = tmp_path / "experiment.toml"
    file.write_text(text, encoding="utf-8")
    return Experiment(**{"models": (), "prompts": (), **read_experiment(file)})


def test_a_file_says_all_there_is_to_say(tmp_path: Path) -> None:
    small = DrafterSpec("small", "some/small", "pair.align", ("context", "anchored"))
    dictionary = DrafterSpec("dictionary", dictionary="pl.dict", history=True)
    assert read(tmp_path, WHOLE) == Experiment(
        models=(ModelSpec("large", "some/large", (small, dictionary)),),
        prompts=(
            Prompts(language="pl", kinds=("list", "question"), count=3),
            Prompts("wiki-pl", "pl", ("wikipedia",), window=1024, stride=512, chat=True),
        ),
        name="Polish",
        num_draft_tokens=(2, None),
        tokens=64,
        repetitions=2,
        temperature=0.7,
        seed=3,
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tokens = 64", 'tokens = "64"', "tokens: expected a whole number, got 64"),
        ("tokens = 64", "tokens = true", "tokens: expected a whole number, got True"),
        ("tokens = 64", "tokens = 0", "tokens: expected a number from 1 on, got 0"),
        ("tokens = 64", "token = 64", "token: expected one of models, prompts, name"),
        ("temperature = 0.7", "temperature = -1", "temperature: expected a number from 0 on"),
        ('[2, "auto"]', '["all"]', 'num_draft_tokens: expected numbers or "auto", got all'),
        ('[2, "auto"]', "[0]", "num_draft_tokens: expected 1 to 64 or auto, got 0"),
        ('[2, "auto"]', "2", "num_draft_tokens: expected a list, got 2"),
        ('language = "pl"\nkinds = ["list"', 'language = "xx"\nkinds = ["list"', "language: expected one of pl, uk"),
        ('"list", ', '"tale", ', "kinds: expected of encyclopaedic"),
        ("count = 3", "count = 0", "count: expected a number from 1 on, got 0"),
        ("stride = 512", "stride = 2048", "stride: expected 1 to the window, got 2048"),
        ('path = "some/large"', "", "models 1: path: expected a text, got none"),
        ('strategies = ["context", "anchored"]', 'strategies = ["best"]', "strategies: expected of none, naive"),
        ('alignment = "pair.align"\n', "", "strategies: expected an alignment with them, got none"),
        ('draft_model = "some/small"\n', "", "drafter small: expected something that drafts, got nothing"),
        ('name = "dictionary"', 'name = "small"', "large: drafters: expected different names, got 'small' twice"),
        ('name = "dictionary"', 'name = "plain"', "'plain' twice"),
        ("[[prompts]]", "[[prompt]]", "prompt: expected one of models, prompts"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in WHOLE
    with pytest.raises(SpectoolError) as raised:
        read(tmp_path, WHOLE.replace(old, new))
    assert expected in str(raised.value)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpectoolError, match=r"experiment\.toml: expected an experiment in TOML"):
        read(tmp_path, "name = ")
    with pytest.raises(SpectoolError, match=r"none\.toml: expected an experiment in TOML"):
        read_experiment(tmp_path / "none.toml")


@pytest.mark.parametrize("part", ["models", "prompts", "num_draft_tokens"])
def test_nothing_to_measure_is_refused(part: str) -> None:
    with pytest.raises(SpectoolError, match=f"{part}: expected at least one"):
        replace(GOOD, **{part: ()})


def test_json_has_every_setting() -> None:
    described = replace(GOOD, num_draft_tokens=(4, None)).described()
    assert described["num_draft_tokens"] == [4, "auto"]
    assert described["models"][0]["drafters"][0]["history"] is True


def test_drafters_of_one_name_serve_different_languages() -> None:
    polish, ukrainian = (
        DrafterSpec("dictionary", dictionary=f"{code}.dict", languages=(code,)) for code in ("pl", "uk")
    )
    model = ModelSpec("large", "some/large", (polish, ukrainian, DRAFTER))
    sources = Prompts(language="pl"), Prompts(language="uk")
    assert Experiment((model,), sources).models[0].drafters_for("uk") == [ukrainian, DRAFTER]
    both = replace(polish, languages=("uk", "pl"))
    with pytest.raises(SpectoolError, match="'dictionary' twice"):
        Experiment((replace(model, drafters=(both, ukrainian)),), sources)
    with pytest.raises(SpectoolError, match="large: languages: expected prompts, got none"):
        Experiment((replace(model, languages=("en",)),), sources)


def test_paths_are_replaced_where_they_are_named(tmp_path: Path) -> None:
    file = tmp_path / "paths.toml"
    file.write_text('"some/large" = "./large"\n"pl.dict" = "/there/pl.dict"\n"wiki-pl" = "pl.txt"\n', encoding="utf-8")
    (tmp_path / "experiment.toml").write_text(WHOLE, encoding="utf-8")
    keys = with_paths(read_experiment(tmp_path / "experiment.toml"), read_paths(file))
    found = Experiment(**keys)
    assert found.models[0].path == "./large"
    assert [drafter.draft_model for drafter in found.models[0].drafters] == ["some/small", None]
    assert [drafter.dictionary for drafter in found.models[0].drafters] == [None, "/there/pl.dict"]
    assert [source.source for source in found.prompts] == ["built-in", "pl.txt"]
    file.write_text("large = 3\n", encoding="utf-8")
    with pytest.raises(SpectoolError, match=r"paths\.toml: large: expected a path, got 3"):
        read_paths(file)
