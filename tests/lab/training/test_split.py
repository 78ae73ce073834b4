"""The split: literal values that must never move, and the properties of a partition."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spectool.corpora import open_corpus
from spectool.lab.training.text import in_valid

MEMBERS = [46, 88, 154, 268, 293, 343, 401, 455, 527, 547, 655, 722, 734, 752, 944, 979]
MEMBERS_SEED_1 = [20, 50, 187, 340]


def test_members_of_the_validation_part_never_move() -> None:
    members = [number for number in range(1, 1001) if in_valid(f"uk.txt:{number}")]
    assert members == MEMBERS
    assert [number for number in range(1, 401) if in_valid(f"uk.txt:{number}", seed=1)] == MEMBERS_SEED_1
    assert in_valid("стаття", share=0.5) is True
    assert in_valid("стаття", share=0.5, seed=1) is False


@given(st.text(), st.integers(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_contains_a_smaller_one(document_id: str, seed: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert not in_valid(document_id, small, seed) or in_valid(document_id, large, seed)
    assert not in_valid(document_id, 0.0, seed)
    assert in_valid(document_id, 1.0, seed)


def test_the_share_is_met() -> None:
    drawn = sum(in_valid(f"doc{number}", share=0.1) for number in range(20_000))
    assert 1800 < drawn < 2200


def test_a_corpus_can_be_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"рядок {number}" for number in range(500)))
    corpus = open_corpus(str(tmp_path / "a.txt"))
    valid = [in_valid(document.id, share=0.3, seed=3) for document in corpus]
    assert valid == [in_valid(document.id, share=0.3, seed=3) for document in corpus]
    assert len(valid) == 500 and 100 < sum(valid) < 200
