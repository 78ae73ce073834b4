"""The bundled demo models: they load as any model does, keep their tokenizers, write whole characters."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(str(files("spectool.runtime"))) / "demo"
SAMPLES = Path(str(files("spectool.corpora"))) / "samples"
LANGUAGES = ["pl", "uk"]
SIZE_LIMIT = 4_500_000  # bytes


@cache
def loaded(name: str) -> tuple[Any, Any]:
    """Model and tokenizer as ``mlx_lm.load`` gives them."""
    from mlx_lm import load

    model, tokenizer, *_ = load(str(DEMO / name))
    return model, tokenizer


def sample_lines(language: str) -> list[str]:
    return (SAMPLES / f"{language}.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_target_writes_words_and_whole_characters(language: str) -> None:
    from mlx_lm import generate

    model, tokenizer = loaded("target")
    prompt = " ".join(sample_lines(language)[0].split()[:4])
    text = generate(model, tokenizer, prompt, max_tokens=48)
    assert "\ufffd" not in text
    known = set("\n".join(sample_lines(language)).split())
    words = text.split()[1:-1]  # the first and the last may be parts of words
    assert len(words) >= 8
    assert sum(word in known for word in words) >= 0.7 * len(words)


def test_the_bundle_stays_small() -> None:
    sizes = {path: path.stat().st_size for path in DEMO.rglob("*") if path.is_file()}
    assert len(sizes) >= 10
    assert sum(sizes.values()) < SIZE_LIMIT, sizes
