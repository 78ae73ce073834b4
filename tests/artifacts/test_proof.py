"""The proof of an alignment: it finds faults, a side that fails goes through text, and a mismatch is a failure."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from spectool import ArtifactError
from spectool.artifacts import Alignment, Tokenizer
from spectool.artifacts.canonical.by_ids import CanonicalIds
from spectool.artifacts.canonical.by_text import CanonicalText
from spectool.artifacts.canonical.merges import Merges
from spectool.artifacts.canonical.pretokens import JOIN, BoundaryTable, boundary_table
from spectool.artifacts.describe import describe
from spectool.artifacts.proof import Oracle, Proof, hard_texts, prove, prove_again, require_proven
from spectool.build import build_alignment, merge_table, spellings
from spectool.build.alignment import stage
from spectool.cli import main
from spectool.corpora import open_corpus
from spectool.runtime import make_translator
from spectool.runtime.demo_models import demo_path

TEXT = "Кіт спить. Kot śpi i mruczy.\n\nДругий документ, 2024 O'Neill\n"


def never_split(tokenizer: Tokenizer) -> BoundaryTable:
    """A boundary table that is wrong wherever the pre-tokenizer splits."""
    table = boundary_table(tokenizer)
    return BoundaryTable(table.alphabet, np.full_like(table.verdicts, JOIN))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def proven(corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer) -> Path:
    path = corpus.with_name("proven.align")
    build_alignment(other_bundled, bundled, open_corpus(str(corpus)), path, lambda step: None)
    return path


def test_tables_and_text_equal_the_tokenizer(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    texts = hard_texts(bundled, other_bundled, 3, TEXT.split("\n\n"))
    for source, other in ((bundled, other_bundled), (other_bundled, bundled)):
        for engine in (CanonicalIds(other, merge_table(other), boundary_table(other)), CanonicalText(other)):
            proof = prove(source, other, engine, spellings(source, other), texts)
            assert proof.mismatches == 0, proof.example
            assert proof.frontiers > 10_000 and proof.texts > 0.9 * len(texts)


def test_texts_are_the_same_for_the_same_seed(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    assert hard_texts(bundled, other_bundled, 3) == hard_texts(bundled, other_bundled, 3)
    assert hard_texts(bundled, other_bundled, 3) != hard_texts(bundled, other_bundled, 4)


@pytest.mark.parametrize("wrong", ["merges", "boundaries", "floor", "error"])
def test_every_kind_of_fault_is_found(
    wrong: str, bundled: Tokenizer, other_bundled: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = other_bundled
    boundaries = never_split(other) if wrong == "boundaries" else boundary_table(other)
    engine = CanonicalIds(other, merge_table(other), boundaries)
    joined = engine.join
    match wrong:
        case "merges":
            monkeypatch.setattr(engine, "join", lambda ids, run, floor=0, begin=0: (len(ids), run))
        case "floor":  # right as long as nothing has been committed for good
            monkeypatch.setattr(
                engine, "join", lambda ids, run, floor=0, begin=0: (len(ids), run) if floor else joined(ids, run)
            )
        case "error":
            monkeypatch.setattr(engine.merges, "merge", lambda symbols: {}[tuple(symbols)])
    proof = prove(bundled, other, engine, spellings(bundled, other), hard_texts(bundled, other, 3))
    assert proof.mismatches > 0
    assert "unlike the tokenizer" in str(proof) and "joined" in proof.example
    assert wrong != "error" or "KeyError" in proof.example


def test_a_side_that_fails_goes_through_text(
    tmp_path: Path, corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime has no tables to join by, and its view of every prefix is the tokenizer's."""
    right = stage.boundary_table
    monkeypatch.setattr(
        stage, "boundary_table", lambda each: never_split(each) if each is other_bundled else right(each)
    )
    path = tmp_path / "x.align"
    manifest = build_alignment(other_bundled, bundled, open_corpus(str(corpus)), path, lambda step: None)
    alignment = Alignment(path)
    alignment.verify()
    require_proven(path, manifest)
    assert alignment.draft.merges is None and alignment.target.merges is not None
    assert not manifest.statistics["draft"]["lemma"] and manifest.statistics["target"]["lemma"]
    assert manifest.statistics["draft"]["proof"]["mismatches"] == 0
    facts = describe(manifest)
    assert facts["draft joins"].startswith("text, encoded anew in every cycle: joined by merges, ids were unlike")
    assert "equal to the tokenizer" in facts["draft proof"]
    translator = make_translator("anchored", alignment, other_bundled, bundled)
    text = "O'Neill mówi: 2024, а кіт спить."
    ids = bundled.encode(text)
    for place, token in enumerate(ids, 1):
        translator.commit([token])
        said = bundled.bytes_of(ids[:place])
        if said.decode("utf-8", "ignore").encode() == said:
            assert list(translator.draft_context().ids) == other_bundled.encode(said.decode())


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.system
def test_what_stays_wrong_is_an_exit_status(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither merges nor text: the alignment is written, and both `align` and `verify` fail."""
    wrong = Oracle.read

    def other_ids(self: Oracle, texts: list[str]) -> object:
        return ((ids[::-1], ends) for ids, ends in wrong(self, texts))

    out = tmp_path / "x.align"
    command = ("align", "--draft", demo_path("other"), "--target", demo_path("target"), "--corpus", corpus, "-o", out)
    with monkeypatch.context() as patch:
        patch.setattr(Oracle, "read", other_ids)
        result = run(*command)
    assert result.exit_code == 1
    assert "unlike the tokenizer" in result.output and "drafts are lost" in result.output
    assert run("verify", out).exit_code == 1
    assert run(*command).exit_code == 0
    assert run("verify", out).exit_code == 0


@pytest.mark.system
def test_verify_repeats_the_proof(proven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("verify", proven, "--proof")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split(": ")[1].split(" are ")[0] for line in lines[1:]] == ["draft ids", "target ids"]
    assert all("equal to the tokenizer" in line and line.endswith("(seed 11)") for line in lines[1:])
    assert "(seed 5)" in run("verify", proven, "--proof", "--seed", "5", "--draft", demo_path("other")).output
    assert "built for tokenizer" in run("verify", proven, "--proof", "--draft", demo_path("target")).output
    monkeypatch.setattr(Merges, "would_merge", lambda self, first, second: False)
    result = run("verify", proven, "--proof")
    assert result.exit_code == 1
    assert "unlike the tokenizer at" in result.output and "Align again" in result.output


def test_a_proof_that_failed_is_said(proven: Path) -> None:
    manifest = Alignment(proven).manifest
    require_proven(proven, manifest)
    statistics = manifest.statistics
    statistics["draft"]["proof"]["mismatches"] = 2
    with pytest.raises(ArtifactError, match="draft ids are unlike the tokenizer at 2 of"):
        require_proven(proven, manifest)
    statistics["draft"]["proof"]["mismatches"] = 0
    statistics["draft_to_target"]["different_texts"] = 1
    with pytest.raises(ArtifactError, match="1 texts of the sample come out otherwise"):
        require_proven(proven, manifest)


@pytest.mark.system
@pytest.mark.parametrize("name", ["phi-3-mini", "qwen2.5", "gemma-3", "llama-3.2", "falcon-7b", "herbert-base-cased"])
def test_real_tokenizers(name: str, tmp_path: Path, real: Callable[[str], Tokenizer], corpus: Path) -> None:
    """Both directions, other seeds than that of `align`. HerBERT can say few of the texts that are made."""
    least = 500 if name == "herbert-base-cased" else 1000
    draft, target = real(name), real("bielik-11b-v2.5")
    build_alignment(draft, target, open_corpus(str(corpus)), tmp_path / "x.align", lambda step: None)
    for seed in (101, 102):
        for found in prove_again(Alignment(tmp_path / "x.align"), draft, target, seed).values():
            assert found.mismatches == 0, (seed, found.example)
            assert isinstance(found, Proof) and found.frontiers > least
