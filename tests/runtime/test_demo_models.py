"""The bundled demo models: they load as any model does, keep their tokenizers, write whole characters."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

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


@pytest.mark.parametrize("name", ["target", "draft"])
def test_a_model_loads_with_8_bit_weights_and_the_end_of_text_it_was_trained_with(name: str) -> None:
    import mlx.nn as nn

    model, tokenizer = loaded(name)
    assert isinstance(model.model.embed_tokens, nn.QuantizedEmbedding)
    assert tokenizer.eos_token_ids == {tokenizer.convert_tokens_to_ids("</s>")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_loaded_tokenizer_is_the_stored_one(language: str) -> None:
    stored = Tokenizer.from_file(str(DEMO / "target" / "tokenizer.json"))
    _, tokenizer = loaded("target")
    for line in sample_lines(language):
        ids = stored.encode(line).ids
        assert tokenizer.encode(line) == ids
        assert stored.decode(ids) == line


def test_target_and_draft_share_one_tokenizer() -> None:
    target, draft = (DEMO / name / "tokenizer.json" for name in ("target", "draft"))
    assert target.read_bytes() == draft.read_bytes()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_other_tokenizer_loads_unchanged_and_differs(language: str) -> None:
    from transformers import AutoTokenizer

    stored = Tokenizer.from_file(str(DEMO / "other" / "tokenizer.json"))
    target = Tokenizer.from_file(str(DEMO / "target" / "tokenizer.json"))
    tokenizer = AutoTokenizer.from_pretrained(str(DEMO / "other"))
    lines = [line for line in sample_lines(language) if line]
    assert [tokenizer.encode(line) for line in lines] == [stored.encode(line).ids for line in lines]
    assert any(
        [stored.decode([i]) for i in stored.encode(line).ids]
        != [target.decode([i]) for i in target.encode(line, add_special_tokens=False).ids]
        for line in lines
    )


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
