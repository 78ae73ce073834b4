"""Shapes by name."""

import re

import pytest

from spectool.lab.training.command import train_draft
from spectool.lab.training.options import SIZES, shape_of


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


def test_the_help_says_the_sizes() -> None:
    help_text = next(option.help for option in train_draft.params if option.name == "size")
    for shape in map(shape_of, SIZES):
        millions = parameters(shape, 0) / 1e6
        assert re.search(rf"\b({millions:.1f}|{millions:.0f})\b", help_text), millions
        assert re.search(rf"\b{shape['hidden_size']}\b", help_text)
