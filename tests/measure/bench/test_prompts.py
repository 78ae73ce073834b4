"""Prompts from the built-in sets and from corpora."""

from collections import Counter
from pathlib import Path

import pytest

from spectool.measure.bench.prompts import LANGUAGES, ids_of_prompt, load_prompts
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.tokenization.opening import open_tokenizer

KINDS = ("encyclopaedic", "instruction", "composition", "question", "list")
TOKENIZER = open_tokenizer(demo_path("target"))
TEXTS = ["Zażółć gęślą jaźń, a potem idź do lasu.", "Za krótkie.", "Most w Jaworowcu zamknięty."]


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    (tmp_path / "three.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return str(tmp_path / "three.txt")


@pytest.mark.parametrize("language", LANGUAGES)
def test_built_in_prompts_have_all_kinds(language: str) -> None:
    prompts = load_prompts(language, TOKENIZER, 12, 0)
    assert Counter(prompt.kind for prompt in prompts) == dict(zip(KINDS, (3, 3, 2, 2, 2), strict=True))
    assert len({prompt.name for prompt in prompts}) == len(prompts)
    assert len(load_prompts(language, TOKENIZER, None, 0)) == 60


def test_a_window_is_the_beginning_of_a_document(corpus: str) -> None:
    prompts = load_prompts(corpus, TOKENIZER, None, 8)
    expected = [TOKENIZER.encode(text)[:8] for text in TEXTS]
    assert [prompt.text for prompt in prompts] == [TOKENIZER.bytes_of(ids).decode(errors="ignore") for ids in expected]
    assert [prompt.text in text for prompt, text in zip(prompts, TEXTS, strict=True)] == [True] * 3
    assert [prompt.text == text for prompt, text in zip(prompts, TEXTS, strict=True)] == [False, True, False]
    assert (prompts[0].name, prompts[0].kind) == (f"{corpus}-001", "text")
    assert [prompt.text for prompt in load_prompts(corpus, TOKENIZER, 2, 0)] == TEXTS[:2]


def test_a_prompt_is_encoded_as_generate_does() -> None:
    _, tokenizer = load_model(str(demo_path("target")))
    (prompt,) = load_prompts("pl", TOKENIZER, 1, 0)
    assert ids_of_prompt(prompt, tokenizer) == tokenizer.encode(prompt.text)
