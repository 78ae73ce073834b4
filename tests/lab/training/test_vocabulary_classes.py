"""Rare ids in one class: the same probabilities over classes and, exported, over all ids."""

from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from spectool.lab.training.classes import classes_of
from spectool.lab.training.stage import save_model, save_tokenizer
from spectool.lab.training.text import delimiters_of
from spectool.tests.lab.training.tiny import TOKENIZER, random_stream, tiny_model
from spectool.tokenization.opening import open_tokenizer


@pytest.mark.parametrize("min_count", [0, 1, 3, 10**9])
def test_classes_are_the_counted_ids(min_count: int) -> None:
    stream = random_stream(500, 3000, np.random.default_rng(0))
    classes = classes_of(stream, 500, min_count)
    counts = Counter(stream.tolist())
    common = [i for i in range(500) if counts[i] >= min_count]
    assert classes.common == len(common)
    assert classes.rare == 500 - len(common)
    assert sorted(classes.of_id[common].tolist()) == list(range(len(common)))
    assert [counts[i] for i in sorted(common, key=lambda i: classes.of_id[i])] == sorted(
        (counts[i] for i in common), reverse=True
    )
    assert set(classes.of_id.tolist()) == set(range(classes.number))
    sizes = np.bincount(classes.of_id, minlength=classes.number)
    assert np.allclose(np.exp(classes.log_sizes), sizes)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("min_count", [0, 3])
def test_the_exported_model_has_the_same_probabilities(tmp_path: Path, tied: bool, min_count: int) -> None:
    tokenizer = open_tokenizer(TOKENIZER)
    rng = np.random.default_rng(1)
    stream = random_stream(tokenizer.size, 4000, rng)
    classes = classes_of(stream, tokenizer.size, min_count)
    assert (classes.rare > 300) is (min_count > 0)
    model, config = tiny_model(classes, tied)
    delimiters = delimiters_of(tokenizer)
    stored = save_model(model, config, classes, tmp_path)
    save_tokenizer(tokenizer, delimiters, tmp_path)
    loaded = mlx_lm.load(str(tmp_path))[0]
    assert loaded.args.vocab_size == tokenizer.size
    sizes = {name: weights.size for name, weights in mx.load(str(tmp_path / "model.safetensors")).items()}
    assert stored["stored"] == sum(sizes.values())
    assert stored["without_embeddings"] == stored["stored"] - tokenizer.size * config["hidden_size"] * (
        1 if tied else 2
    )

    row = rng.integers(tokenizer.size, size=(2, 40))
    over_classes = probabilities(model(mx.array(classes.of_id[row])) + mx.array(classes.log_sizes))
    over_ids = probabilities(loaded(mx.array(row)))
    shared = over_classes / np.exp(classes.log_sizes)
    assert np.abs(over_ids - shared[..., classes.of_id]).max() < 1e-6
    assert over_ids.max() > 0.01, "the distributions say something"


def test_the_tokenizer_stays_what_it_was(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(TOKENIZER)
    save_tokenizer(tokenizer, delimiters_of(tokenizer), tmp_path)
    stored = open_tokenizer(tmp_path)
    assert stored.fingerprint == tokenizer.fingerprint
    assert stored.roles == tokenizer.roles


def probabilities(logits: mx.array) -> np.ndarray[Any, np.dtype[np.float64]]:
    exponentials = np.exp(np.array(logits, dtype=np.float64))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
