"""The alignment format: what is written is read, for two tokenizers and one direction."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from spectool import ArtifactError, FingerprintMismatch
from spectool.artifacts.alignment import Alignment, Side
from spectool.artifacts.artifact import open_artifact
from spectool.tokenization.roles import Roles
from spectool.tokenization.tokenizer import Tokenizer

from .parts import Parts, edit
from .small_alignment import ARRAYS, BACK, DRAFT, FORTH, PREFIXES, TARGET, made, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return made(tmp_path)


def test_what_is_written_is_read(path: Path) -> None:
    alignment = Alignment(path)
    assert sorted(alignment.file.arrays) == sorted(ARRAYS)
    assert alignment.draft.counterpart.tolist() == FORTH
    assert alignment.target.counterpart.tolist() == BACK
    for side, written in ((alignment.draft, DRAFT), (alignment.target, TARGET)):
        assert np.array_equal(side.risks, written.risks, equal_nan=True)
    assert alignment.draft.by_ids and not alignment.target.by_ids
    assert alignment.prefix_index.tolist() == PREFIXES.tolist()
    open_artifact(alignment.path)


def test_a_file_that_changes_later_changes_nothing(path: Path) -> None:
    alignment = Alignment(path)
    with path.open("r+b") as file:  # copied over, and not renamed; where it gets shorter, what is mapped would be gone
        file.write(bytes(path.stat().st_size))
    assert alignment.draft.counterpart.tolist() == FORTH and alignment.prefix_index.tolist() == PREFIXES.tolist()
    for side, written in ((alignment.draft, DRAFT), (alignment.target, TARGET)):
        assert list(side.token_bytes) == written.token_bytes


def side_of(tokenizer: Tokenizer) -> Side:
    """A side that shares nothing and is joined through text."""
    unknown = np.full(tokenizer.size, np.nan)
    return Side(np.full(tokenizer.size, -1), False, tokenizer.token_bytes, unknown)


@pytest.fixture
def pair(tmp_path: Path, byte_level: Backend, sentence_piece: Backend) -> tuple[Path, Tokenizer, Tokenizer]:
    """An alignment of two tokenizers that exist."""
    draft, target = Tokenizer("d", byte_level, Roles()), Tokenizer("t 2", sentence_piece, Roles())
    return write_pair(tmp_path / "x.align", draft, target, fingerprints_of(draft, target)), draft, target


def write_pair(path: Path, draft: Tokenizer, target: Tokenizer, fingerprints: dict[str, str]) -> Path:
    sides = side_of(draft), side_of(target)
    return write(path, sides, by_ids=(False, False), fingerprints=fingerprints)


def fingerprints_of(draft: Tokenizer, target: Tokenizer) -> dict[str, str]:
    return {"draft": draft.fingerprint, "target": target.fingerprint}


def test_it_is_for_two_tokenizers_and_one_direction(pair: tuple[Path, Tokenizer, Tokenizer]) -> None:
    path, draft, target = pair
    alignment = Alignment(path)
    alignment.require(draft, target)
    command = "spectool align --draft 't 2' --target d -o NEW.align"
    with pytest.raises(FingerprintMismatch, match=rf"x\.align: its draft side: built for tokenizer .*: {command}$"):
        alignment.require(target, draft)
    for sides in ((draft, draft), (target, target)):
        with pytest.raises(FingerprintMismatch, match=r"x\.align: its (draft|target) side: built for tokenizer"):
            alignment.require(*sides)
    path.unlink()
    write_pair(path, draft, target, fingerprints_of(target, draft))
    with pytest.raises(FingerprintMismatch, match=r"built for tokenizer \w+… with 261 ids, t 2 is \w+… with 267"):
        Alignment(path).require(target, draft)


def test_a_token_that_stands_for_a_byte_has_one(pair: tuple[Path, Tokenizer, Tokenizer]) -> None:
    path, draft, target = pair
    byte = min(target.byte_tokens)

    offsets = Parts.of(path).values(name := "target_token_bytes_offsets")
    without = np.where(np.arange(len(offsets)) == byte + 1, offsets[byte], offsets)
    edit(path, lambda parts: parts.set(name, without))
    with pytest.raises(ArtifactError, match=rf"target_token_bytes_offsets: token {byte} has the bytes b''"):
        Alignment(path).require(draft, target)
