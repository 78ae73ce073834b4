"""The stage behind ``align``: the artifact holds what the parts say."""

from pathlib import Path

import pytest

from spectool import FingerprintMismatch
from spectool.artifacts import Alignment, Tokenizer
from spectool.build import build_alignment, intersect
from spectool.corpora import open_corpus


def quiet(step: str) -> None:
    pass


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Кіт спить. Kot śpi.\n\nДругий документ\n", encoding="utf-8")
    return path


def test_what_is_written(tmp_path: Path, corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    manifest = build_alignment(other_bundled, bundled, open_corpus(str(corpus)), tmp_path / "x.align", quiet)
    alignment = Alignment(tmp_path / "x.align")
    alignment.verify()
    assert alignment.manifest == manifest
    assert alignment.draft_to_target.tolist() == intersect(other_bundled, bundled).tolist()
    assert alignment.target_to_draft.tolist() == intersect(bundled, other_bundled).tolist()
    assert manifest.tokenizers == {"draft": other_bundled.identity, "target": bundled.identity}
    texts = [document.text for document in open_corpus(str(corpus))]
    for side, tokenizer, partner in (
        ("draft", other_bundled, alignment.draft_to_target),
        ("target", bundled, alignment.target_to_draft),
    ):
        tokens = [token for text in texts for token in tokenizer.encode(text)]
        cover = manifest.statistics[side]["coverage"]
        assert cover["occurrences"] == len(tokens)
        assert cover["shared_occurrences"] == sum(partner[token] != -1 for token in tokens)
        assert cover["by_occurrence"] == round(cover["shared_occurrences"] / len(tokens), 6)
        assert manifest.statistics[side]["kind"] == tokenizer.kind
        assert manifest.statistics[side]["roles"] == tokenizer.roles.as_dict()
    assert manifest.inputs["documents"] == len(texts)


def test_every_document_is_counted(tmp_path: Path, bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    """More documents than are encoded at once."""
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"kot {number}" for number in range(2500)), encoding="utf-8")
    manifest = build_alignment(other_bundled, bundled, open_corpus(str(path)), tmp_path / "x.align", quiet)
    assert manifest.inputs["documents"] == 2500
    for side, tokenizer in (("draft", other_bundled), ("target", bundled)):
        expected = sum(len(tokenizer.encode(f"kot {number}")) for number in range(2500))
        assert manifest.statistics[side]["coverage"]["occurrences"] == expected


def test_two_builds_are_the_same_bytes(
    tmp_path: Path, corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer
) -> None:
    for name in "ab":
        build_alignment(other_bundled, bundled, open_corpus(str(corpus)), tmp_path / name, quiet)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_a_tokenizer_with_itself_shares_everything(tmp_path: Path, corpus: Path, bundled: Tokenizer) -> None:
    manifest = build_alignment(bundled, bundled, open_corpus(str(corpus)), tmp_path / "x.align", quiet)
    assert manifest.statistics["draft"] == manifest.statistics["target"]
    assert manifest.statistics["draft"]["coverage"]["by_occurrence"] == 1.0
    partner = Alignment(tmp_path / "x.align").draft_to_target
    assert all(bundled.surfaces[mine] == bundled.surfaces[other] for mine, other in enumerate(partner) if other != -1)


def test_an_alignment_knows_its_tokenizers(
    tmp_path: Path, corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer
) -> None:
    build_alignment(other_bundled, bundled, open_corpus(str(corpus)), tmp_path / "x.align", quiet)
    recorded = Alignment(tmp_path / "x.align").manifest.tokenizers["draft"]["fingerprint"]
    other_bundled.require(recorded, "x.align", "spectool align")
    with pytest.raises(FingerprintMismatch, match=r"x\.align: built for tokenizer .*Rebuild it: spectool align"):
        bundled.require(recorded, "x.align", "spectool align")
