"""The check of an alignment: it finds faults, a side that fails goes through text, and a mismatch is a failure."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer as Backend

from spectool import ArtifactError
from spectool.artifacts.alignment import Alignment, require_checked
from spectool.artifacts.artifact import open_artifact
from spectool.build.alignment import check
from spectool.build.alignment.check import check_joins, hard_texts
from spectool.build.alignment.replayed_text import Written, written
from spectool.build.alignment.stage import build_alignment
from spectool.cli import main
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator
from spectool.tests.running import figures
from spectool.tests.tiers import nightly
from spectool.tokenization.incremental import by_ids
from spectool.tokenization.incremental.by_ids import IncrementalBPE, encoder_of
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

ALWAYS_SURE = SimpleNamespace(are_sure=lambda before, after: True)
TEXT = "Кіт спить. Kot śpi i mruczy.\n\nДругий документ, 2024 O'Neill\n"


@pytest.fixture(scope="module", autouse=True)
def all_texts() -> Iterator[None]:
    """As many texts as `align` checks, each of which a tokenizer reads once for all tests."""
    known = dict[tuple[str, ...], list[Written]]()

    def once(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Written]:
        key = (tokenizer.fingerprint, *texts)
        if key not in known:
            known[key] = list(written(tokenizer, texts))
        return iter(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "_TEXTS", 400)
        patch.setattr(check, "written", once)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def checked(corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer) -> Path:
    path = corpus.with_name("checked.align")
    build_alignment(other_bundled, bundled, open_corpus(str(corpus)), path, lambda step: None)
    return path


@pytest.mark.nightly
def test_tables_and_text_equal_the_tokenizer(bundled: Tokenizer, other_bundled: Tokenizer) -> None:
    texts = hard_texts(bundled, other_bundled, 3, TEXT.split("\n\n"))
    for source, other in ((bundled, other_bundled), (other_bundled, bundled)):
        for encoder in (IncrementalBPE(other), TailReencoder(other)):
            for role in ("draft", "target"):
                found = check_joins(role, source, other, encoder, texts)
                assert found.different == 0, str(found)
                # Behind a text of one token nothing is proposed.
                assert found.places > 10_000


@pytest.mark.parametrize("wrong", ["borders", *nightly("join", "floor", "error")])
def test_every_kind_of_fault_is_found(
    wrong: str, bundled: Tokenizer, other_bundled: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = other_bundled
    if wrong == "borders":
        monkeypatch.setattr(by_ids, "Borders", lambda *sides: ALWAYS_SURE)
    encoder = IncrementalBPE(other)
    joined = encoder.join

    def wrong_join(ids: list[int], data: bytes, floor: int = 0, begin: int = 0, spaced: bool = False) -> Any:
        return (len(ids), encoder.encode(data)) if wrong == "join" or floor else joined(ids, data, 0, begin, spaced)

    match wrong:
        case "join" | "floor":  # the latter is right as long as nothing has been committed for good
            monkeypatch.setattr(encoder, "join", wrong_join)
        case "error":
            monkeypatch.setattr(encoder, "join", lambda ids, data, *floor, **text: {}[data])
    texts = hard_texts(bundled, other, 3)
    for role in ("target",) if wrong == "floor" else ("draft", "target"):
        found = check_joins(role, bundled, other, encoder, texts)
        assert found.different > 0 and found.example in str(found)
        assert ("KeyError" if wrong == "error" else "joined are [") in found.example


@pytest.mark.nightly
def test_a_side_that_fails_goes_through_text(
    tmp_path: Path, corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime's view of every prefix is the tokenizer's."""
    right = by_ids.Borders

    def borders(tokenizer: Tokenizer) -> object:
        return ALWAYS_SURE if tokenizer is other_bundled else right(tokenizer)

    monkeypatch.setattr(by_ids, "Borders", borders)
    path = tmp_path / "x.align"
    manifest = build_alignment(other_bundled, bundled, open_corpus(str(corpus)), path, lambda step: None)
    alignment = Alignment(path)
    open_artifact(alignment.path)
    require_checked(path, manifest)
    assert not alignment.draft.by_ids and alignment.target.by_ids
    assert not manifest.statistics["draft"]["by_ids"] and manifest.statistics["target"]["by_ids"]
    assert manifest.statistics["draft"]["check"]["different"] == 0
    assert manifest.statistics["draft"]["reason"].startswith("joined on ids, they differ from the tokenizer's own at ")
    translator = ByteAlignedTranslator(alignment, other_bundled, bundled)
    text = "O'Neill mówi: 2024, а кіт спить."
    ids = bundled.encode(text)
    for place, token in enumerate(ids, 1):
        translator.commit([token])
        said = bundled.bytes_of(ids[:place])
        if said.decode("utf-8", "ignore").encode() == said:
            assert list(translator.draft_context()) == other_bundled.encode(said.decode())


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.nightly
def test_what_stays_wrong_is_an_exit_status(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither merges nor text: the alignment is written, and both `align` and `verify` fail."""

    def other_ids(tokenizer: Tokenizer, texts: list[str]) -> object:
        return (Written(ids[::-1], ends) for ids, ends in written(tokenizer, texts))

    out = tmp_path / "x.align"
    command = ("align", "--draft", demo_path("other"), "--target", demo_path("target"), "--corpus", corpus, "-o", out)
    with monkeypatch.context() as patch:
        patch.setattr(check, "written", other_ids)
        result = run(*command)
    assert result.exit_code == 1
    assert "differ from the tokenizer" in result.output and "drafts are lost" in result.output
    assert figures("inspect", out)["usable"] is False
    assert run(*command).exit_code == 0
    assert figures("inspect", out)["usable"] is True


@pytest.mark.nightly
def test_more_than_a_hundredth_is_a_failure(checked: Path) -> None:
    manifest = Alignment(checked).manifest
    notes: list[str] = []
    require_checked(checked, manifest, notes.append)
    assert not notes
    statistics = manifest.statistics
    for side in ("draft", "target"):
        found = statistics[side]["check"]
        found |= {"places": 1000, "different": 10, "example": "after 'a' …"}
        require_checked(checked, manifest, notes.append)
        assert f"translated to the {side} " in notes[0] and "10 of 1,000 places (1.0%)" in notes[0]
        assert "for example after 'a' …" in notes.pop()
        found["different"] = 11
        with pytest.raises(
            ArtifactError, match=rf"translated to the {side} .* 11 of 1,000 places \(1\.1%\), .*drafts are lost"
        ):
            require_checked(checked, manifest)
        found["different"] = 0
    replayed = statistics["target_to_draft"]
    replayed["different_tokens"] = replayed["other_tokens"] // 2
    with pytest.raises(ArtifactError, match=r"translated to the draft .* differ from the tokenizer's own at"):
        require_checked(checked, manifest)
    statistics["draft_to_target"] |= {"different_tokens": 9, "other_tokens": 9}
    replayed["different_tokens"] = 0
    require_checked(checked, manifest)


def test_texts_that_a_tokenizer_does_not_keep_are_not_compared(bundled: Tokenizer) -> None:
    spec = json.loads((demo_path("other") / "tokenizer.json").read_text(encoding="utf-8"))
    lower = open_tokenizer(Backend.from_str(json.dumps(spec | {"normalizer": {"type": "Lowercase"}})))
    encoder = TailReencoder(bundled)
    kept = check_joins("draft", lower, bundled, encoder, ["kot"])
    assert kept.places > 0
    assert check_joins("draft", lower, bundled, encoder, ["kot", *(f"Kot {i}" for i in range(99))]) == kept


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["phi-3-mini", "qwen2.5", "gemma-3", "llama-3.2", "falcon-7b"])
def test_real_tokenizers(name: str, tmp_path: Path, real: Callable[[str], Tokenizer], corpus: Path) -> None:
    """Both directions, other seeds than that of `align`."""
    draft, target = real(name), real("bielik-11b-v2.5")
    build_alignment(draft, target, open_corpus(str(corpus)), tmp_path / "x.align", lambda step: None)
    made = Alignment(tmp_path / "x.align")
    for seed in (101, 102):
        texts = hard_texts(draft, target, seed)
        for found in (
            check_joins("draft", target, draft, encoder_of(draft, made.draft.by_ids), texts),
            check_joins("target", draft, target, encoder_of(target, made.target.by_ids), texts),
        ):
            assert found.different == 0, (seed, str(found))
            assert found.places > 500
