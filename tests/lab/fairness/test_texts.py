"""Which text is measured on: drawn fairly, spelled by all, the same for all."""

import random
from pathlib import Path

import pytest

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.lab.fairness.texts import TaskText, read_task_text
from spectool.tests.lab.training.tiny_pair import tokenizer_of

TARGET, OTHER = tokenizer_of("target"), tokenizer_of("other")


def text_of(work: Path, rows: int = 12, length: int = 20, seed: int = 0, name: str = "pl.txt") -> TaskText:
    return read_task_text(open_corpus(str(work / name)), TARGET, [OTHER], rows, length, seed)


def test_passages_are_drawn_by_the_seed(work: Path) -> None:
    one, again, other = (text_of(work, seed=seed) for seed in (0, 0, 1))
    assert one.passages == again.passages and one.documents == again.documents
    assert set(one.passages).isdisjoint(other.passages) or one.passages != other.passages
    assert len(one.passages) == 12 and len(one.documents) == 50
    whole = " ".join((work / "pl.txt").read_text(encoding="utf-8").split())
    for passage in one.passages:
        assert " ".join(passage.split()) in whole
        assert len(TARGET.encode(passage)) <= 20 or " " not in passage
        assert all(t.bytes_of(t.encode(passage)) == passage.encode() for t in (TARGET, OTHER))


def test_documents_are_drawn_from_all_of_a_corpus_and_take_turns(tmp_path: Path) -> None:
    lines = [f"wiersz {number} ma kilka słów i jeszcze kilka innych słów na końcu wiersza" for number in range(400)]
    (tmp_path / "x.txt").write_text("\n".join(lines), encoding="utf-8")
    seed = random.randrange(2**32)
    print("seed", seed)
    found = read_task_text(open_corpus(str(tmp_path / "x.txt")), TARGET, [], 10, 12, seed)
    places = sorted(lines.index(document) for document in found.documents)
    assert len(places) == 80 == len(set(places))
    assert places[0] < 100 and places[-1] >= 300
    owners = [[line for line in found.documents if passage in line] for passage in found.passages]
    assert len({owner[0] for owner in owners if len(owner) == 1}) >= sum(len(owner) == 1 for owner in owners) - 1
    few = read_task_text(open_corpus(str(tmp_path / "x.txt")), TARGET, [], 500, 12, seed)
    assert len(few.documents) == 400 and len(few.passages) == 500


def test_text_that_nothing_spells_is_said(tmp_path: Path, work: Path) -> None:
    (tmp_path / "x.txt").write_text("a\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"x\.txt: gives \d passages .* expected at least 2"):
        read_task_text(open_corpus(str(tmp_path / "x.txt")), TARGET, [], 4, 12, 0)
