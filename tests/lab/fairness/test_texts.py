"""Which text is measured on: drawn fairly, spelled by all, the same for all; and fertility by hand."""

import random
from pathlib import Path

import pytest

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.lab.fairness.texts import TaskText, fertility_of, read_text
from spectool.tests.lab.training.tiny_pair import tokenizer_of

TARGET, OTHER = tokenizer_of("target"), tokenizer_of("other")


def text_of(work: Path, rows: int = 12, length: int = 20, seed: int = 0, name: str = "pl.txt") -> TaskText:
    return read_text(open_corpus(str(work / name)), TARGET, [OTHER], rows, length, seed)


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
    found = read_text(open_corpus(str(tmp_path / "x.txt")), TARGET, [], 10, 12, seed)
    places = sorted(lines.index(document) for document in found.documents)
    assert len(places) == 80 == len(set(places))
    assert places[0] < 100 and places[-1] >= 300
    owners = [[line for line in found.documents if passage in line] for passage in found.passages]
    assert len({owner[0] for owner in owners if len(owner) == 1}) >= sum(len(owner) == 1 for owner in owners) - 1
    few = read_text(open_corpus(str(tmp_path / "x.txt")), TARGET, [], 500, 12, seed)
    assert len(few.documents) == 400 and len(few.passages) == 500


def test_text_that_nothing_spells_is_said(tmp_path: Path, work: Path) -> None:
    (tmp_path / "x.txt").write_text("a\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"x\.txt: gives \d passages .* expected at least 2"):
        read_text(open_corpus(str(tmp_path / "x.txt")), TARGET, [], 4, 12, 0)


def test_fertility_by_hand(work: Path) -> None:
    pl, uk = text_of(work), text_of(work, name="uk.txt")
    found = fertility_of({"target": TARGET, "other": OTHER}, {"pl": pl, "uk": uk}, None, False)
    for name, tokenizer in (("target", TARGET), ("other", OTHER)):
        rates = {}
        for task, text in (("pl", pl), ("uk", uk)):
            tokens = sum(len(tokenizer.encode(document)) for document in text.documents)
            rates[task] = tokens / sum(len(document.split()) for document in text.documents)
            assert found["tokenizers"][name][task]["fertility"] == pytest.approx(rates[task])
        least = min(rates.values())
        assert {t: at["tax"] for t, at in found["tokenizers"][name].items()} == pytest.approx(
            {task: rate / least for task, rate in rates.items()}
        )
    named = fertility_of({"target": TARGET}, {"pl": pl, "uk": uk}, "uk", False)["tokenizers"]["target"]
    assert named["uk"]["tax"] == 1 and named["pl"]["tax"] != 1


def test_parallel_text_is_compared_by_content(tmp_path: Path) -> None:
    """The same documents of both are drawn, and words do not matter: one side joins all of its own."""
    lines = [f"numer {number} i jeszcze raz numer {number}" for number in range(200)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n".join(f"{line} {line}" for line in lines), encoding="utf-8")
    texts = {name: read_text(open_corpus(str(tmp_path / f"{name}.txt")), TARGET, [], 4, 12, 5) for name in ("a", "b")}
    assert texts["b"].documents == tuple(f"{line} {line}" for line in texts["a"].documents)
    found = fertility_of({"target": TARGET}, texts, "a", True)["tokenizers"]["target"]
    assert found["b"]["tax"] == found["b"]["tokens"] / found["a"]["tokens"] == pytest.approx(2, abs=0.05)
    assert found["b"]["fertility"] == pytest.approx(found["a"]["fertility"], rel=0.05)
    (tmp_path / "b.txt").write_text("\n".join(lines[:150]), encoding="utf-8")
    texts["b"] = read_text(open_corpus(str(tmp_path / "b.txt")), TARGET, [], 4, 12, 5)
    with pytest.raises(
        CorpusError, match="--parallel: expected corpora with the same number of documents, got a 200, b 150"
    ):
        fertility_of({"target": TARGET}, texts, None, True)
