"""``spectool lab train-draft``: a model that mlx-lm loads, its record, and errors before and not after the work."""

import json
import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest

from spectool.corpora import open_corpus
from spectool.lab.training.text import in_valid
from spectool.tests.lab.training.tiny import OTHER, TOKENIZER, curve, run, trained
from spectool.tokenization.opening import open_tokenizer

FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
RUN = ["--steps", 60, "--seed", 3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A trained model and its record."""
    out = tmp_path_factory.mktemp("made") / "draft"
    return out, trained(*RUN, "-o", out)


def bits_per_byte(model: Any, texts: list[str], length: int) -> float:
    """What `bits_per_byte.code_length` measures, token by token."""
    tokenizer = open_tokenizer(TOKENIZER)
    nats = 0.0
    for text in texts:
        ids = [tokenizer.roles.bos, *tokenizer.encode(text)]
        for place in range(1, len(ids)):
            first = (place - 1) // length * length
            logits = model(mx.array([ids[first:place]]))[0, -1]
            nats -= (logits - mx.logsumexp(logits))[ids[place]].item()
    return nats / math.log(2) / sum(len(text.encode()) for text in texts)


def test_the_model_loads_and_generates(made: tuple[Path, dict[str, Any]]) -> None:
    out, record = made
    model, tokenizer, *_ = mlx_lm.load(str(out))
    assert open_tokenizer(tokenizer).fingerprint == record["tokenizer"]["fingerprint"]
    assert open_tokenizer(TOKENIZER).fingerprint == record["tokenizer"]["fingerprint"]
    assert tokenizer.eos_token_ids == {2}
    text = mlx_lm.generate(model, tokenizer, "Wczoraj", max_tokens=8)
    assert isinstance(text, str)
    assert {path.name for path in out.iterdir()} == {*record["files"], "training.json"}
    assert set(record["files"]) >= {*FILES, "curve.parquet"}
    assert [path.name for path in out.parent.iterdir()] == ["draft"], "nothing is left beside it"


def test_it_has_learned(made: tuple[Path, dict[str, Any]]) -> None:
    out, _ = made
    points = curve(out)
    assert [point.step for point in points] == list(range(1, 61))
    assert [point.tokens for point in points] == list(range(128, 60 * 128 + 1, 128))
    assert points[0].loss == pytest.approx(math.log(1536), rel=0.1), "as good as guessing"
    measured = {point.step: point.bits_per_byte for point in points if point.bits_per_byte is not None}
    assert list(measured) == list(range(6, 61, 6))
    assert measured[60] < measured[6] - 0.2
    assert points[-1].loss < points[0].loss - 0.8


@pytest.mark.slow
def test_bits_per_byte_are_those_of_the_stored_model(made: tuple[Path, dict[str, Any]]) -> None:
    out, record = made
    documents = list(open_corpus("sample:pl"))
    held_out = [text for text in documents if in_valid(text, 10 / len(documents))]
    assert record["held_out"]["documents"] == len(held_out) > 2
    assert record["held_out"]["bytes"] == sum(len(text.encode()) for text in held_out)
    expected = bits_per_byte(mlx_lm.load(str(out))[0], held_out, 32)
    assert record["held_out"]["bits_per_byte"] == pytest.approx(expected, rel=1e-5)
    assert curve(out)[-1].bits_per_byte == pytest.approx(expected, rel=1e-5), "pruned and stored are the same"


def test_the_record(made: tuple[Path, dict[str, Any]]) -> None:
    out, record = made
    assert json.loads((out / "training.json").read_text()) | {"path": str(out)} == record
    assert record["steps"] == 60 and record["tokens"] == 60 * 128 and record["seed"] == 3
    assert record["loss"] == curve(out)[-1].loss
    assert record["vocabulary"]["common"] + record["vocabulary"]["rare"] == 1536
    assert record["vocabulary"]["rare"] > 100
    assert record["parameters"]["stored"] - record["parameters"]["without_embeddings"] == 96 * 1536
    assert record["parameters"]["stored"] - record["parameters"]["trained"] == 96 * (record["vocabulary"]["rare"] - 1)
    assert set(record["versions"]) == {"spectool", "python", "mlx", "mlx-lm", "numpy"}
    assert record["arguments"]["steps"] == 60


@pytest.mark.slow
def test_the_seed_decides(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out, _ = made
    trained(*RUN, "-o", tmp_path / "same")
    assert curve(tmp_path / "same") == curve(out)
    for name in FILES:
        assert (tmp_path / "same" / name).read_bytes() == (out / name).read_bytes(), name
    trained("--steps", 60, "--seed", 4, "-o", tmp_path / "other")
    assert curve(tmp_path / "other")[0].loss != curve(out)[0].loss


def test_a_finished_training_is_not_done_again(made: tuple[Path, dict[str, Any]]) -> None:
    out, record = made
    before = (out / "training.json").stat().st_mtime_ns
    assert trained(*RUN, "-o", out) == record
    assert (out / "training.json").stat().st_mtime_ns == before
    result = run(*RUN, "-o", out)
    assert "is finished already" in result.stderr
    assert f"{record['held_out']['bits_per_byte']:.4f} bits per byte" in result.stdout


def test_other_tokenizers_and_texts(tmp_path: Path) -> None:
    """A tokenizer.json alone, one end token, text to measure on."""
    out = tmp_path / "draft"
    texts = [tmp_path / "pl.txt", tmp_path / "uk.txt"]
    texts[0].write_text("Nowy akapit, którego nikt jeszcze nie czytał.\n" * 20, encoding="utf-8")
    texts[1].write_text("Новий абзац, якого ще ніхто не читав.\n" * 20, encoding="utf-8")
    record = trained(
        *("--tokenizer", Path(OTHER) / "tokenizer.json", "--corpus", "ukr=sample:uk", "--weight", 1, "--weight", 3),
        *("--valid", texts[0], "--valid", texts[1]),
        *("--steps", 6, "--min-count", 0, "--softmax-classes", 0),
        *("--measure-every", 6, "--valid-tokens", 500, "-o", out),
    )
    assert record["vocabulary"]["rare"] == 0
    corpora = record["text"]["corpora"]
    assert {name: found["held_out"]["corpus"] for name, found in corpora.items()} == {
        "sample-pl": str(texts[0]),
        "ukr": str(texts[1]),
    }
    assert corpora["ukr"]["tokens"] == pytest.approx(3 * corpora["sample-pl"]["tokens"], abs=2)
    apart = record["held_out"]["corpora"]
    assert sum(found["tokens"] for found in apart.values()) == record["held_out"]["tokens"]
    assert apart["ukr"]["bits_per_byte"] != apart["sample-pl"]["bits_per_byte"]
    _, tokenizer, *_ = mlx_lm.load(str(out))
    assert tokenizer.eos_token == "<|endoftext|>"
