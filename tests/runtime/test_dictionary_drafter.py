"""The dictionary drafter: what it proposes is what the dictionary says of everything committed."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from spectool.artifacts import Dictionary, Manifest, open_tokenizer
from spectool.artifacts.dictionary import FORMAT, VERSION, write_dictionary
from spectool.artifacts.manifest import seal
from spectool.artifacts.replacing import writing
from spectool.build import DictSpecOptions, build_dictspec, count_corpus
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.runtime.dictionary_drafter import DictionaryDrafter
from spectool.runtime.drafter import Drafter
from spectool.runtime.emulator import replay
from spectool.runtime.loading import combine, dictionary_drafter
from spectool.runtime.prompt_lookup import PromptLookupDrafter

ENTRIES: list[tuple[Sequence[int], Sequence[int], float]] = [
    ((1,), (2, 3, 4), 0.5),
    ((1, 2), (3,), 1.0),
    ((7, 1, 2), (8, 8), 0.25),
]


@pytest.fixture
def dictionary(tmp_path: Path) -> Dictionary:
    with writing(tmp_path / "x.dict") as directory:
        shape = write_dictionary(directory, ENTRIES)
        tokenizers = {"target": {"name": "small", "fingerprint": "a" * 64, "size": 100}}
        seal(directory, Manifest(FORMAT, VERSION, {}, tokenizers, {}, shape))
    return Dictionary(tmp_path / "x.dict")


def proposed(drafter: Drafter, limit: int = 8) -> list[int]:
    return list(drafter.propose(limit).tokens)


def test_proposes_after_the_prompt_and_after_each_commit(dictionary: Dictionary) -> None:
    drafter = DictionaryDrafter(dictionary)
    assert isinstance(drafter, Drafter)
    drafter.start([])
    assert proposed(drafter) == []
    drafter.start([5, 7, 1])
    assert proposed(drafter) == [2, 3, 4]
    assert proposed(drafter, 2) == [2, 3]
    assert proposed(drafter, 0) == []
    drafter.commit([2])
    assert proposed(drafter) == [8, 8], "the longest suffix"
    drafter.commit([1])
    drafter.commit([2])
    assert proposed(drafter) == [3]
    drafter.commit([9_999_999])
    assert proposed(drafter) == []
    drafter.commit([9_999_999, 1])
    assert proposed(drafter) == [2, 3, 4]


def test_proposing_changes_nothing_and_start_forgets(dictionary: Dictionary) -> None:
    drafter = DictionaryDrafter(dictionary, name="pl")
    drafter.start([7, 1])
    assert [proposed(drafter) for _ in range(3)] == [[2, 3, 4]] * 3
    assert drafter.propose(3).source == "pl"
    drafter.start([2])
    assert proposed(drafter) == []


def test_equal_to_looking_up_the_whole_history(dictionary: Dictionary) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    drafter = DictionaryDrafter(dictionary)
    for _ in range(100):
        history = rng.choices([1, 2, 7, 3, 500], k=rng.randint(0, 12))
        drafter.start(tuple(history))
        for _ in range(20):
            match = dictionary.look_up(history)
            assert proposed(drafter) == ([] if match is None else match.tokens)
            new = rng.choices([1, 2, 7, 3, 500], k=rng.randint(1, 6))
            drafter.commit(new)
            history += new


def test_a_dictionary_of_a_text_saves_passes_on_that_text(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(demo_path("target") / "tokenizer.json")
    out = tmp_path / "uk.dict"
    build_dictspec(tokenizer, count_corpus(open_corpus("sample:uk")), out, DictSpecOptions(), lambda step: None)
    drafter = dictionary_drafter(out, tokenizer)
    documents = tokenizer.encode_batch([document.text for document in open_corpus("sample:uk")])
    statistics = replay(documents, drafter)
    assert statistics.tokens_per_pass > 1.5
    assert set(statistics.proposed_by) == {"dictionary"}
    assert statistics.tokens == sum(map(len, documents))
    both = combine([dictionary_drafter(out, tokenizer), PromptLookupDrafter()])
    assert both is not None
    hybrid = replay(documents, both)
    assert set(hybrid.proposed_by) == {"dictionary", "history"}
    assert hybrid.passes < statistics.passes
