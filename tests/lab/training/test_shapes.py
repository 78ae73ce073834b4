"""Shapes by name, by file and by number."""

import json
import re
from pathlib import Path

import pytest

from spectool import SpectoolError
from spectool.lab.training.command import train_draft
from spectool.lab.training.options import SIZES, shape_of
from spectool.tests.lab.training.tiny import CONFIG


def parameters(shape: dict[str, int], ids: int) -> int:
    """Weights of a Llama model with tied embeddings, norms left out."""
    hidden, wide = shape["hidden_size"], shape["intermediate_size"]
    return shape["num_hidden_layers"] * (4 * hidden**2 + 3 * hidden * wide) + ids * hidden


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_what_they_are_called(name: str) -> None:
    size = SIZES[name]
    millions = parameters(shape_of(name), 11_000) / 1e6
    assert millions == pytest.approx(int(name[:-1]), rel=0.3)
    assert size.step_tokens % size.length == 0
    assert size.hidden_size % (2 * size.num_attention_heads) == 0


def test_files_and_numbers(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    config |= {"intermediate_size": 96, "tie_word_embeddings": False, "vocab_size": 7, "quantization": {"bits": 4}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    shape = shape_of("1m", file)
    assert shape["num_hidden_layers"] == 3
    assert shape["hidden_size"] == 64
    assert shape["tie_word_embeddings"] is False
    assert not {"vocab_size", "quantization", "num_key_value_heads"} & set(shape)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable as JSON"),
        ('{"model_type": "qwen2"}', "expected model_type llama, got qwen2"),
        ("[]", "expected model_type llama, got list"),
        (
            '{"model_type": "llama", "hidden_size": 8}',
            "whole numbers above 0 for num_hidden_layers, num_attention_heads, intermediate_s",
        ),
    ],
)
def test_files_that_are_no_shape(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SpectoolError, match=message):
        shape_of("4m", tmp_path / "config.json")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            {"hidden_size": 50, "num_attention_heads": 4},
            "even number for each head, got 50 for 4 heads; 48 would do",
        ),
        ({"num_key_value_heads": 3}, "a multiple of num_key_value_heads, got 2 and 3"),
    ],
)
def test_numbers_that_do_not_fit(tmp_path: Path, numbers: dict[str, int], message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(Path(CONFIG).read_text()), **numbers}))
    with pytest.raises(SpectoolError, match=message):
        shape_of("4m", tmp_path / "config.json")


def test_the_help_says_the_sizes() -> None:
    help_text = next(option.help for option in train_draft.params if option.name == "size")
    for shape in map(shape_of, SIZES):
        millions = parameters(shape, 0) / 1e6
        assert re.search(rf"\b({millions:.1f}|{millions:.0f})\b", help_text), millions
        assert re.search(rf"\b{shape['hidden_size']}\b", help_text)
