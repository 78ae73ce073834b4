"""Merging: one dictionary drafts what several together draft, within limits, and what does not merge."""

import random
from itertools import combinations
from pathlib import Path

import pytest

from spectool import FingerprintMismatch, SpectoolError
from spectool.artifacts.artifact import verify_artifact
from spectool.artifacts.dictionary import Dictionary
from spectool.build.counting.options import CountOptions
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.merging import merge, merge_dictionaries, predictions_in
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.dictionary.predictions import longest_suffix
from spectool.corpora import open_corpus
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.artifacts.parts import edit_manifest
from spectool.tests.build.dictionaries import SMALL, Row, rows_of, written
from spectool.tokenization.tokenizer import Tokenizer


def quiet(step: str) -> None:
    pass


def merged_of(path: Path, *dictionaries: Dictionary) -> Dictionary:
    merge_dictionaries(dictionaries, path, None, quiet)
    verify_artifact(path)
    return Dictionary(path)


def require_same_drafts(one: Dictionary, several: list[Dictionary], tokens: list[int], history: bool = False) -> None:
    """At every place of a text, with everything that a proposal says."""
    drafters = LookupDrafter(one, history), LookupDrafter(several, history)
    for place, token in enumerate(tokens):
        proposals = [drafter.propose(6) for drafter in drafters]
        assert proposals[0] == proposals[1], place
        for drafter in drafters:
            drafter.commit([token])


@pytest.mark.parametrize("history", [False, True])
def test_one_file_drafts_what_repeated_dictionaries_draft(bundled: Tokenizer, tmp_path: Path, history: bool) -> None:
    built = []
    for name, discount in (("pl", 0.9), ("uk", 0.9), ("pl", 0.5)):
        path, corpus = tmp_path / f"{name}-{discount}", open_corpus(f"sample:{name}")
        options = BackoffOptions(discount=discount, max_context=4)
        count_and_build(bundled, corpus, path, options, CountOptions(min_count=1), quiet)
        built.append(Dictionary(path))
    merged = merged_of(tmp_path / "merged", *built)
    assert len(merged) < sum(map(len, built))
    texts = [next(iter(open_corpus(f"sample:{name}"))).text for name in ("pl", "uk")]
    for text in (*texts, "Zażółć gęślą jaźń, 12:30; у нас і в них. The end of the day"):
        require_same_drafts(merged, built, bundled.encode(text)[:1500], history)


def random_dictionary(choice: random.Random, path: Path) -> Dictionary:
    contexts = {tuple(choice.choices(range(4), k=choice.randint(1, 4))) for _ in range(120)}
    some = (0.25, 0.5, 0.75)
    return written(path, [(c, choice.randrange(4), choice.choice(some), choice.randint(1, 50)) for c in contexts])


@pytest.mark.parametrize("seed", range(5))
def test_contradictions_and_ties_are_settled_as_at_run_time(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    several = [random_dictionary(choice, tmp_path / str(number)) for number in range(3)]
    for few in (*combinations(several, 2), several):
        merged = merged_of(tmp_path / "merged", *few)
        require_same_drafts(merged, list(few), choice.choices(range(4), k=300))


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_kept_that_a_shorter_context_says(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    tables = [predictions_in(random_dictionary(choice, tmp_path / name)) for name in ("a", "b")]
    merged = merge(tables)
    assert len(merged) < len({*tables[0], *tables[1]})
    for context, prediction in merged.items():
        shorter = longest_suffix(context, merged)
        assert shorter is None or shorter[:2] != prediction[:2]
        assert prediction.occurrences == sum(table[context].occurrences for table in tables if context in table)


def test_the_last_of_equally_probable_tokens_is_taken(tmp_path: Path) -> None:
    first = written(tmp_path / "a", [((1,), 2, 0.5, 64), ((5,), 6, 1.0, 8)])
    second = written(tmp_path / "b", [((1,), 3, 0.5, 64), ((7, 5), 8, 0.25, 4)])
    assert rows_of(merged_of(tmp_path / "m", first, second)) == {(1,): (3, 0.5, 128), (5,): (6, 1.0, 8)}
    assert rows_of(merged_of(tmp_path / "n", second, first))[(1,)] == (2, 0.5, 128)


def test_the_entries_kept_gain_most(tmp_path: Path) -> None:
    choice = random.Random(3)
    rows: list[Row] = [
        ((a % 60, 200 + a // 60), 100, choice.randrange(1, 256) / 256, 2 ** choice.randrange(8)) for a in range(3000)
    ]
    gain = {row[0]: row[3] * (row[2] + row[2] ** 2 / 2) for row in rows}
    merge_dictionaries([written(tmp_path / "a", rows)] * 2, tmp_path / "m", 16_000, quiet)
    kept = rows_of(Dictionary(tmp_path / "m"))
    assert 100 < len(kept) < 3000
    assert min(gain[context] for context in kept) >= max(gain[row[0]] for row in rows if row[0] not in kept)


def data_of(path: Path) -> int:
    """Bytes of all arrays."""
    return sum(values.nbytes for values in Dictionary(path).file.arrays.values())


def test_a_limit_in_bytes_holds(tmp_path: Path) -> None:
    choice = random.Random(3)
    rows = [
        ((a, b), choice.randrange(900), choice.random(), choice.randint(1, 99)) for a in range(80) for b in range(80)
    ]
    one, other = written(tmp_path / "a", rows[:4000]), written(tmp_path / "b", rows[3000:])
    whole = merge_dictionaries([one, other], tmp_path / "whole", None, quiet)
    limit = data_of(tmp_path / "whole") * 2 // 3
    manifest = merge_dictionaries([one, other], tmp_path / "small", limit, quiet)
    assert 0.9 * limit < data_of(tmp_path / "small") <= limit
    assert manifest.statistics["entries"] < whole.statistics["entries"] == manifest.statistics["entries_before_pruning"]
    with pytest.raises(SpectoolError, match="no room for entries"):
        merge_dictionaries([one, other], tmp_path / "none", 10, quiet)
    assert not (tmp_path / "none").exists()


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    one = written(tmp_path / "a", [((a,), a * 7 % 50, 0.5, a + 1) for a in range(50)])
    other = written(tmp_path / "b", [((a,), a * 9 % 50, 0.5, 9) for a in range(70)])
    for name in ("m", "n"):
        merge_dictionaries([one, other], tmp_path / name, None, quiet)
    assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()


def test_a_manifest_need_not_count_its_text(tmp_path: Path) -> None:
    one, other = (written(tmp_path / name, [((1,), 2, 0.5, 64)]) for name in "ab")
    edit_manifest(one.path, lambda manifest: manifest["inputs"].update(documents=None, characters=7))
    assert merged_of(tmp_path / "m", Dictionary(one.path), other).manifest.inputs["characters"] >= 7


def test_other_tokenizers_do_not_merge(tmp_path: Path) -> None:
    one = written(tmp_path / "a", [((1,), 2, 0.5, 64)])
    foreign = written(tmp_path / "b", [((1,), 2, 0.5, 64)], tokenizer={**SMALL, "name": "big", "fingerprint": "b" * 64})
    with pytest.raises(FingerprintMismatch, match="big") as raised:
        merge_dictionaries([one, foreign], tmp_path / "m", None, quiet)
    assert "small" in str(raised.value) and str(foreign.path) in str(raised.value)
    assert not (tmp_path / "m").exists()
