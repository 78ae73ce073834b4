"""Text of a run: encoded with its delimiters, and nothing of what is held out is trained on."""

from pathlib import Path

import numpy as np
import pytest

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.lab.training.options import TrainOptions
from spectool.lab.training.text import (
    Delimiters,
    HeldOut,
    TrainingCorpus,
    TrainingText,
    delimiters_of,
    read_training_text,
)
from spectool.tests.lab.training.tiny import OTHER, TOKENIZER
from spectool.tokenization.opening import open_tokenizer

TARGET = open_tokenizer(TOKENIZER)


def options(limit: int, kept: int) -> TrainOptions:
    steps = (limit - 3 * (8 + 32)) // 8
    return TrainOptions(shape={}, rate=0.01, steps=steps, step_tokens=8, length=16, valid_tokens=kept)


def text_of(corpus: str, valid: str | None = None, limit: int = 10**9, kept: int = 10**9) -> TrainingText:
    source = TrainingCorpus(open_corpus(corpus), None if valid is None else open_corpus(valid))
    return read_training_text({"text": source}, TARGET, delimiters_of(TARGET), options(limit, kept))


def held_out_of(text: TrainingText) -> HeldOut:
    (only,) = text.held_out.values()
    return only


def documents(text: TrainingText) -> list[str]:
    """The texts of the stream, in its order."""
    bos, eos = TARGET.roles.bos, TARGET.roles.eos[0]
    ends = np.flatnonzero(text.stream == eos)
    parts = np.split(text.stream, ends + 1)
    assert len(parts.pop()) == 0
    assert all(part[0] == bos and part[-1] == eos for part in parts)
    return [TARGET.bytes_of(part[1:-1].tolist()).decode().removeprefix(" ") for part in parts]


def written(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_delimiters() -> None:
    other = open_tokenizer(OTHER)
    end = other.vocabulary["<|endoftext|>"]
    assert delimiters_of(TARGET) == Delimiters(1, 2)
    assert delimiters_of(other) == Delimiters(end, None)


def test_every_document_is_on_one_side(tmp_path: Path) -> None:
    lines = [f"To jest akapit numer {number}." for number in range(300)]
    text = text_of(written(tmp_path / "c.txt", lines))
    held_out = [TARGET.bytes_of(ids[1:].tolist()).decode().removeprefix(" ") for ids in held_out_of(text).documents]
    training = documents(text)
    assert sorted(held_out + training) == sorted(lines)
    assert 2 <= len(held_out) <= 30
    assert training != [line for line in lines if line in training], "in random order"
    assert held_out_of(text).bytes == sum(len(line.encode()) for line in held_out)
    assert all(ids[0] == TARGET.roles.bos for ids in held_out_of(text).documents)
    assert held_out_of(text).tokens == sum(len(TARGET.encode(line)) for line in held_out)


def test_text_that_is_measured_on_is_not_trained_on(tmp_path: Path) -> None:
    lines = [f"Akapit {number}." for number in range(50)]
    corpus = written(tmp_path / "c.txt", [*lines, *lines])
    valid = written(tmp_path / "v.txt", ["Inny akapit.", lines[7], lines[8]])
    text = text_of(corpus, valid)
    assert sorted(documents(text)) == sorted([*lines[:7], *lines[9:]] * 2)
    assert len(held_out_of(text).documents) == 3
    assert text.inputs["text"]["left_out"] == 4
    assert text.inputs["text"]["held_out"]["documents"] == 3


def test_limits(tmp_path: Path) -> None:
    text = text_of("sample:pl", "sample:uk", limit=1000, kept=500)
    assert len(text.stream) == 1000
    last = len(held_out_of(text).documents[-1]) - 1
    assert held_out_of(text).tokens - last < 500 <= held_out_of(text).tokens


def test_corpora_share_the_stream_by_their_weights(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    lines = [[f"{word} numer {number}." for number in range(400)] for word in ("Akapit", "Розділ")]
    corpora = [open_corpus(written(tmp_path / name, text)) for name, text in zip("ab", lines, strict=True)]
    valid = open_corpus(written(tmp_path / "v", [lines[0][3], lines[1][5]]))
    sources = {"a": TrainingCorpus(corpora[0], valid, 3.0), "b": TrainingCorpus(corpora[1], None, 1.0)}
    text = read_training_text(sources, TARGET, delimiters_of(TARGET), options(4000, 100))
    assert len(text.stream) == 4000
    assert {name: facts["tokens"] for name, facts in text.inputs.items()} == {"a": 3000, "b": 1000}
    said = TARGET.bytes_of(text.stream[~np.isin(text.stream, [1, 2])].tolist()).decode(errors="replace")
    first, last = said[: len(said) // 2], said[len(said) // 2 :]
    assert min(part.count(word) for part in (first, last) for word in ("Akapit", "Розділ")) > 10, "in random order"
    assert lines[0][3] not in said and lines[1][5] not in said, "held out of one corpus is trained on in none"
    assert set(text.held_out) == {"a", "b"} and len(text.held_out["a"].documents) == 2
    assert text.inputs["a"]["left_out"] == 1 and text.inputs["b"]["left_out"] > 2


def test_too_little_text(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="1 documents, expected"):
        text_of(written(tmp_path / "c.txt", ["Jeden akapit."]))
