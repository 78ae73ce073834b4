"""The proof of an alignment: it finds faults, a side that fails goes through text, and a mismatch is a failure."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from spectool import ArtifactError
from spectool.artifacts import Alignment
from spectool.build import build_alignment, merge_table, spellings
from spectool.build.alignment import stage
from spectool.build.alignment.proof import (
    Compared,
    Engine,
    Oracle,
    Proof,
    hard_texts,
    prove,
    prove_again,
    require_proven,
)
from spectool.cli import main
from spectool.commands.describe import artifact_facts
from spectool.corpora import open_corpus
from spectool.runtime import make_translator
from spectool.runtime.demo_models import demo_path
from spectool.tokenization import Tokenizer
from spectool.tokenization.incremental.by_ids import CanonicalIds
from spectool.tokenization.incremental.by_text import CanonicalText
from spectool.tokenization.incremental.merges import Merges
from spectool.tokenization.incremental.pretokens import JOIN, BoundaryTable, boundary_table

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
            assert proof.mismatches == 0, str(proof)
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
    examples = [compared.example for compared in (proof.commits, proof.proposals) if compared.different]
    assert "unlike the tokenizer" in str(proof) and all(examples)
    assert all(("KeyError" if wrong == "error" else "joined are [") in example for example in examples)


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
    assert Proof.of(manifest.statistics["draft"]["proof"]).mismatches == 0
    facts = artifact_facts(manifest)
    assert facts["draft joins"].startswith("text, encoded again in every cycle: joined by merges, ids were unlike")
    assert "equal to the tokenizer" in facts["draft check"]
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
    result = run("verify", proven, "--recheck")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split(": ")[1].split(" are ")[0] for line in lines[1:]] == ["draft ids", "target ids"]
    assert all("equal to the tokenizer" in line and line.endswith("(seed 11)") for line in lines[1:])
    assert "(seed 5)" in run("verify", proven, "--recheck", "--seed", "5", "--draft", demo_path("other")).output
    assert "built for tokenizer" in run("verify", proven, "--recheck", "--draft", demo_path("target")).output
    monkeypatch.setattr(Merges, "would_merge", lambda self, first, second: False)
    result = run("verify", proven, "--recheck")
    assert result.exit_code == 1
    assert "unlike the tokenizer at" in result.output and "Align again" in result.output


def test_what_this_direction_relies_on_decides(proven: Path) -> None:
    """Committed text of the draft and proposals of the target: 1% of these may differ, and any share of the others."""
    manifest = Alignment(proven).manifest
    notes: list[str] = []
    require_proven(proven, manifest, notes.append)
    assert not notes
    statistics = manifest.statistics
    for side, used, unused in (("draft", "commits", "proposals"), ("target", "proposals", "commits")):
        proof = statistics[side]["proof"]
        proof[unused]["different"] = proof[unused]["places"]
        require_proven(proven, manifest, notes.append)
        assert not notes, "nothing relies on it"
        proof[used] |= {"places": 1000, "different": 10, "example": "after 'a' …"}
        require_proven(proven, manifest, notes.append)
        assert f"ids of the {side} " in notes[0] and "10 of 1,000 places (1.0%)" in notes[0]
        assert "(100.0%). Such as after 'a' …. The output stays the target's own" in notes.pop()
        proof[used]["different"] = 11
        with pytest.raises(
            ArtifactError, match=rf"ids of the {side} .* 11 of 1,000 places \(1\.1%\); .*drafts are lost"
        ):
            require_proven(proven, manifest)
        proof[used]["different"] = 0
    replayed = statistics["target_to_draft"]
    replayed["different_tokens"] = replayed["other_tokens"] // 2
    with pytest.raises(ArtifactError, match=r"committed text in ids of the draft .* are unlike the tokenizer's at"):
        require_proven(proven, manifest)
    statistics["draft_to_target"] |= {"different_tokens": 9, "other_tokens": 9}
    replayed["different_tokens"] = 0
    require_proven(proven, manifest)


def test_an_example_shows_where_the_difference_is() -> None:
    surfaces = [b"ab", b"c", b"d", b"cd", "ż".encode()[:1]]
    compared = Compared()
    compared.compare([0] * 9 + [3] + [0] * 9, [0] * 9 + [1, 2] + [0] * 9, surfaces)
    assert (compared.places, compared.different) == (1, 1)
    assert compared.example == (
        "after 'ababababababab' the tokenizer writes [0 'ab', 0 'ab', 1 'c', 2 'd', 0 'ab', …], "
        "joined are [0 'ab', 0 'ab', 3 'cd', 0 'ab', 0 'ab', …]"
    )
    compared = Compared()
    compared.compare([0], [0, 4], surfaces)
    assert compared.example == "after '' the tokenizer writes [0 'ab', 4 '\\\\xc5'], joined are [0 'ab']"


def test_the_closer_of_merges_and_text_is_taken(
    tmp_path: Path, corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A side that is joined by merges almost as it should be stays so where text does worse."""
    right = stage.prove

    def proofs(source: Tokenizer, other: Tokenizer, engine: Engine, *rest: object) -> Proof:
        proof = right(source, other, engine, *rest)
        wrong = proof.places if isinstance(engine, CanonicalText) else 1
        return replace(proof, commits=replace(proof.commits, different=wrong))

    monkeypatch.setattr(Proof, "places", property(lambda self: self.commits.places), raising=False)
    monkeypatch.setattr(stage, "prove", proofs)
    out = tmp_path / "x.align"
    statistics = build_alignment(other_bundled, bundled, open_corpus(str(corpus)), out, lambda step: None).statistics
    assert statistics["draft"]["lemma"] and statistics["draft"]["proof"]["commits"]["different"] == 1


def test_what_could_hardly_be_compared_is_said(bundled: Tokenizer, shared: Path) -> None:
    from spectool.tokenization import open_tokenizer

    bert = open_tokenizer(shared / "tokenizers" / "bert-base-uncased" / "tokenizer.json")
    texts = ["kot", *(f"Kot {number}" for number in range(99))]
    proof = prove(bert, bundled, CanonicalText(bundled), spellings(bert, bundled), texts)
    assert (proof.texts, proof.left_out) == (1, 99)
    assert str(proof).endswith("places of 1 text; 99 of 100 texts (99.0%) could not be compared")
    proof = prove(bert, bundled, CanonicalText(bundled), spellings(bert, bundled), texts[1:])
    assert str(proof) == "nothing could be compared: none of 99 texts is kept by both tokenizers"


@pytest.mark.system
@pytest.mark.parametrize("name", ["phi-3-mini", "qwen2.5", "gemma-3", "llama-3.2", "falcon-7b", "herbert-base-cased"])
def test_real_tokenizers(name: str, tmp_path: Path, real: Callable[[str], Tokenizer], corpus: Path) -> None:
    """Both directions, other seeds than that of `align`. HerBERT can say few of the texts that are made."""
    least = 500 if name == "herbert-base-cased" else 1000
    draft, target = real(name), real("bielik-11b-v2.5")
    build_alignment(draft, target, open_corpus(str(corpus)), tmp_path / "x.align", lambda step: None)
    for seed in (101, 102):
        for found in prove_again(Alignment(tmp_path / "x.align"), draft, target, seed).values():
            assert found.mismatches == 0, (seed, str(found))
            assert isinstance(found, Proof) and found.frontiers > least
