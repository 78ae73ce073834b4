"""Experiments: TOML files, what they may say, and errors that name the key."""

from pathlib import Path
from typing import Any

import pytest

from spectool import SpectoolError
from spectool.measure.bench.experiment import (
    DrafterSpec,
    Experiment,
    ModelSpec,
    Prompts,
    make_experiment,
    read_keys,
)

WHOLE = """
name = "Polish"
tokens = 64
repetitions = 2
temperature = [0, 0.7]
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
sample = 50
chat = true

[[models]]
name = "large"
path = "some/large"

[[models.drafters]]
name = "small"
draft_model = "some/small"
alignment = "pair.align"
verify = "rejection"

[[models.drafters]]
name = "dictionary"
dictionary = "pl.dict"
history = true
min_draft_prob = 0.5
"""
DRAFTER: dict[str, Any] = {"name": "history", "history": True}
MODEL: dict[str, Any] = {"name": "large", "path": "some/large", "drafters": [DRAFTER]}
GOOD: dict[str, Any] = {"models": [MODEL], "prompts": [{"language": "pl"}]}


def read(tmp_path: Path, text: str) -> Experiment:
    file = tmp_path / "experiment.toml"
    file.write_text(text, encoding="utf-8")
    return make_experiment(read_keys(file), file)


def test_a_file_says_all_there_is_to_say(tmp_path: Path) -> None:
    small = DrafterSpec(name="small", draft_model="some/small", alignment="pair.align", verify="rejection")
    dictionary = DrafterSpec(name="dictionary", dictionary="pl.dict", history=True, min_draft_prob=0.5)
    assert read(tmp_path, WHOLE) == Experiment(
        models=(ModelSpec(name="large", path="some/large", drafters=(small, dictionary)),),
        prompts=(
            Prompts(language="pl", kinds=("list", "question"), count=3),
            Prompts(source="wiki-pl", language="pl", kinds=("wikipedia",), window=1024, sample=50, chat=True),
        ),
        name="Polish",
        num_draft_tokens=(2, None),
        tokens=64,
        repetitions=2,
        temperature=(0.0, 0.7),
        seed=3,
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tokens = 64", 'tokens = "64"', "tokens: expected a valid integer, got 64"),
        ("tokens = 64", "tokens = true", "tokens: expected a valid integer, got True"),
        ("tokens = 64", "tokens = 0", "tokens: expected greater than 0, got 0"),
        ("tokens = 64", "token = 64", "expected the keys models, prompts, name"),
        ("tokens = 64", "token = 64", "got token"),
        ("[0, 0.7]", "-1", "temperature.0: expected greater than or equal to 0, got -1"),
        ("[0, 0.7]", "nan", "temperature.0: expected a finite number, got nan"),
        ("[0, 0.7]", "[]", "temperature: expected at least 1, got none"),
        ('[2, "auto"]', '["all"]', "num_draft_tokens.0: expected 1 to 64 or auto, got all"),
        ('[2, "auto"]', "[0]", "num_draft_tokens.0: expected 1 to 64 or auto, got 0"),
        ('[2, "auto"]', "2", "num_draft_tokens: expected a valid list, got 2"),
        ('language = "pl"\nkinds = ["list"', 'language = "xx"\nkinds = ["list"', "language: expected one of pl, uk"),
        ('"list", ', '"tale", ', "prompts.0: kinds: expected one of encyclopaedic"),
        ("count = 3", "count = 0", "prompts.0.count: expected greater than 0, got 0"),
        ('path = "some/large"', "", "models.0.path: expected a value, got none"),
        ('path = "some/large"', 'path = ""', "models.0.path: expected at least 1 character, got"),
        ('draft_model = "some/small"\n', "", "drafters.0: small: expected something that drafts, got nothing"),
        ('verify = "rejection"', 'verify = "never"', "verify: expected 'exact' or 'rejection', got never"),
        ("min_draft_prob = 0.5", 'verify = "rejection"', "verify: expected a draft_model with rejection, got none"),
        ("min_draft_prob = 0.5", "min_draft_prob = 2", "min_draft_prob: expected less than or equal to 1, got 2"),
        ('name = "dictionary"', 'name = "small"', "large: drafters: expected different names, got 'small' twice"),
        ('name = "dictionary"', 'name = "plain"', "'plain' twice"),
        ("[[prompts]]", "[[prompt]]", "expected the keys models, prompts"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in WHOLE
    with pytest.raises(SpectoolError) as raised:
        read(tmp_path, WHOLE.replace(old, new))
    assert expected in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "experiment.toml"))
    assert "docs/measuring.md" in str(raised.value)


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpectoolError) as raised:
        read(tmp_path, WHOLE.replace("tokens = 64", "tokens = 0").replace("count = 3", 'count = "x"'))
    assert "tokens: expected greater than 0" in str(raised.value) and "count: expected a valid" in str(raised.value)
    assert "prompts: expected at least" not in str(raised.value)  # which is not what is wrong


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpectoolError, match=r"experiment\.toml: expected an experiment in TOML"):
        read(tmp_path, "name = ")
    with pytest.raises(SpectoolError, match=r"none\.toml: expected an experiment in TOML"):
        read_keys(tmp_path / "none.toml")


def test_what_users_get_is_measured_by_default() -> None:
    assert make_experiment({key: GOOD[key] for key in ("models", "prompts")}).num_draft_tokens == (None,)


@pytest.mark.parametrize("part", ["models", "prompts", "num_draft_tokens"])
def test_nothing_to_measure_is_refused(part: str) -> None:
    with pytest.raises(SpectoolError, match=f"{part}: expected at least 1, got none"):
        make_experiment(GOOD | {part: []})


def test_json_has_every_setting() -> None:
    described = make_experiment(GOOD | {"num_draft_tokens": [4, "auto"]}).model_dump(mode="json")
    assert described["num_draft_tokens"] == [4, "auto"]
    assert described["models"][0]["drafters"][0]["history"] is True
    assert described["temperature"] == [0.0]
    assert make_experiment(described).model_dump(mode="json") == described


def test_drafters_of_one_name_serve_different_languages() -> None:
    polish, ukrainian = (
        {"name": "dictionary", "dictionary": f"{code}.dict", "languages": [code]} for code in ("pl", "uk")
    )
    model = MODEL | {"drafters": [polish, ukrainian, DRAFTER]}
    keys = {"models": [model], "prompts": [{"language": "pl"}, {"language": "uk"}]}
    found = make_experiment(keys).models[0].drafters_for("uk")
    assert [drafter.dictionary for drafter in found] == ["uk.dict", None]
    both = polish | {"languages": ["uk", "pl"]}
    with pytest.raises(SpectoolError, match="'dictionary' twice"):
        make_experiment(keys | {"models": [model | {"drafters": [both, ukrainian]}]})
    with pytest.raises(SpectoolError, match="large: languages: expected prompts, got none"):
        make_experiment(keys | {"models": [model | {"languages": ["en"]}]})


@pytest.mark.parametrize("name", ["bielik-cross-family", "dictspec", "mac"])
def test_the_bundled_experiments_are_valid(name: str) -> None:
    file = Path(__file__).parents[3] / "benchmarks" / "experiments" / f"{name}.toml"
    assert make_experiment(read_keys(file), file).models
