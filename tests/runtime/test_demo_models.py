"""The bundled demo models: they load as any model does, keep their tokenizers, write whole characters."""

import pytest
from mlx_lm import generate

from spectool.corpora import sample_path
from spectool.runtime.demo_models import demo_path
from spectool.tests.runtime.small_grammars import demo

SIZE_LIMIT = 4_500_000  # bytes


@pytest.mark.parametrize("language", ["pl", "uk"])
def test_the_target_writes_words_and_whole_characters(language: str) -> None:
    model, tokenizer, _ = demo()
    sample = sample_path(language).read_text(encoding="utf-8")
    text = generate(model, tokenizer, " ".join(sample.split()[:4]), max_tokens=48)
    assert "\ufffd" not in text
    known, words = set(sample.split()), text.split()[1:-1]  # the first and the last may be parts of words
    assert len(words) >= 8
    assert sum(word in known for word in words) >= 0.7 * len(words)


def test_the_bundle_stays_small() -> None:
    sizes = {path: path.stat().st_size for path in demo_path("target").parent.rglob("*") if path.is_file()}
    assert len(sizes) >= 10
    assert sum(sizes.values()) < SIZE_LIMIT, sizes
