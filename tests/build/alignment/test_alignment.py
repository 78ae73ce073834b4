"""The stage behind ``align``: the artifact holds what the parts say."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

from spectool.artifacts.alignment import Alignment
from spectool.artifacts.artifact import open_artifact
from spectool.artifacts.manifest import Manifest
from spectool.build.alignment import stage
from spectool.build.alignment.intersection import intersect
from spectool.build.alignment.stage import build_alignment
from spectool.build.corpus_reading import quiet
from spectool.commands.align import judgement
from spectool.corpora import open_corpus
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

TEXT = "Кіт спить. Kot śpi.\n\nДругий документ, 2024\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer
) -> tuple[Path, Manifest]:
    out = tmp_path_factory.mktemp("built") / "x.align"
    return out, build_alignment(other_bundled, bundled, open_corpus(str(corpus)), out, quiet)


def test_what_is_written(
    built: tuple[Path, Manifest], corpus: Path, bundled: Tokenizer, other_bundled: Tokenizer
) -> None:
    path, manifest = built
    alignment = Alignment(path)
    open_artifact(alignment.path)
    alignment.require(other_bundled, bundled)
    assert alignment.manifest == manifest
    assert manifest.tokenizers == {"draft": other_bundled.identity, "target": bundled.identity}
    texts = list(open_corpus(str(corpus)))
    for role, side, tokenizer, other in (
        ("draft", alignment.draft, other_bundled, bundled),
        ("target", alignment.target, bundled, other_bundled),
    ):
        assert side.counterpart.tolist() == intersect(tokenizer, other).tolist()
        assert side.by_ids
        assert manifest.statistics[role]["kind"] == tokenizer.kind
        assert manifest.statistics[role]["by_ids"]
        roles = asdict(tokenizer.roles) | {"eos": list(tokenizer.roles.eos)}
        assert manifest.statistics[role]["roles"] == roles
    assert manifest.inputs["documents"] == len(texts)


def test_the_prefix_index_is_in_the_order_of_bytes(built: tuple[Path, Manifest], other_bundled: Tokenizer) -> None:
    index = Alignment(built[0]).prefix_index.tolist()
    token_bytes = [other_bundled.token_bytes[token] for token in index]
    assert token_bytes == sorted(raw for raw in other_bundled.token_bytes if raw)
    assert len(set(index)) == len(index)


def test_the_report(built: tuple[Path, Manifest]) -> None:
    statistics = built[1].statistics
    assert statistics["sample"] == {"texts": 2, "characters": len("Кіт спить. Kot śpi.") + len("Другий документ, 2024")}
    for direction in ("draft_to_target", "target_to_draft"):
        figures = statistics[direction]
        assert (figures["texts"], figures["lossy_texts"], figures["different_tokens"]) == (2, 0, 0)
    risks = Alignment(built[0]).target.risks
    assert 0 < np.nanmin(risks) < np.nanmax(risks) < 1


def test_every_document_is_read_and_the_sample_ends(tmp_path: Path, bundled: Tokenizer) -> None:
    """More documents than are encoded at once, and a sample that ends inside the second."""
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"kot {number}" for number in range(2500)), encoding="utf-8")
    out, steps = tmp_path / "x.align", list[str]()
    manifest = build_alignment(bundled, bundled, open_corpus(str(path)), out, steps.append, sample=8)
    assert manifest.inputs["documents"] == 2500
    assert manifest.statistics["sample"] == {"texts": 2, "characters": 8}
    assert manifest.arguments == {"sample": 8, "seed": stage.SEED}
    assert len(steps) == len(set(steps)) == 4


def test_a_tokenizer_with_itself_shares_everything(tmp_path: Path, corpus: Path, bundled: Tokenizer) -> None:
    manifest = build_alignment(bundled, bundled, open_corpus(str(corpus)), tmp_path / "x.align", quiet)
    statistics = manifest.statistics
    assert statistics["draft"] | {"check": 0} == statistics["target"] | {"check": 0}
    assert statistics["draft_to_target"] == statistics["target_to_draft"]
    side = Alignment(tmp_path / "x.align").draft
    assert np.nanmax(side.risks) == 0
    assert all(
        bundled.token_bytes[mine] == bundled.token_bytes[other]
        for mine, other in enumerate(side.counterpart)
        if other != -1
    )


def test_a_side_through_text(tmp_path: Path, corpus: Path, bundled: Tokenizer, shared: Path) -> None:
    spec = json.loads((shared / "tokenizers" / "t5-small" / "tokenizer.json").read_text(encoding="utf-8"))
    lower = open_tokenizer(Backend.from_str(json.dumps(spec | {"normalizer": {"type": "Lowercase"}})))
    manifest = build_alignment(lower, bundled, open_corpus(str(corpus)), tmp_path / "x.align", quiet)
    alignment = Alignment(tmp_path / "x.align")
    open_artifact(alignment.path)
    assert not alignment.draft.by_ids and alignment.target.by_ids
    statistics = manifest.statistics
    assert not statistics["draft"]["by_ids"]
    assert statistics["draft_to_target"]["lossy_texts"] == 2
    assert any("Lowercase" in limit for limit in statistics["draft"]["limits"])


def test_a_target_that_writes_a_space_before_every_text_is_judged_on_such_texts(
    tmp_path: Path, corpus: Path, bundled: Tokenizer, byte_level: Backend
) -> None:
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    source, target = open_corpus(str(corpus)), open_tokenizer(byte_level)
    manifest = build_alignment(bundled, target, source, tmp_path / "x.align", quiet)
    counts, check = manifest.statistics["draft_to_target"], manifest.statistics["target"]["check"]
    assert counts["texts"] and not counts["lossy_texts"]
    assert check["places"] > 0 and not check["different"]
    assert judgement(manifest)["usable"]


@pytest.mark.parametrize("role", ["draft", "target"])
def test_byte_tokens_that_the_decoder_does_not_read_stay_text(
    tmp_path: Path, corpus: Path, bundled: Tokenizer, sentence_piece: Backend, role: str
) -> None:
    """Without a decoder ``<0x0A>`` is six characters and no byte; what is written can be opened all the same."""
    spec = json.loads(sentence_piece.to_str()) | {"decoder": None}
    odd = open_tokenizer(Backend.from_str(json.dumps(spec)))
    pair = {"draft": bundled, "target": bundled} | {role: odd}
    build_alignment(pair["draft"], pair["target"], open_corpus(str(corpus)), tmp_path / "x.align", quiet)
    alignment = Alignment(tmp_path / "x.align")
    alignment.require(pair["draft"], pair["target"])
    byte = odd.vocabulary["<0x0A>"]
    assert getattr(alignment, role).token_bytes[byte] == b" <0x0A>"
