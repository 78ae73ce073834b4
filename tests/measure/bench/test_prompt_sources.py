"""Prompts from the built-in sets and from corpora."""

import random
from collections import Counter
from pathlib import Path

import pytest

from spectool import CorpusError
from spectool.measure.bench.experiment import LANGUAGES, PROMPT_KINDS, Prompts
from spectool.measure.bench.prompt_sources import drawn_items, ids_of_prompt, load_prompts, prompts_hash
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.tokenization.opening import open_tokenizer

TOKENIZER = open_tokenizer(demo_path("target"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_built_in_prompts_have_all_kinds(language: str) -> None:
    prompts = load_prompts([Prompts(language=language, count=12)], TOKENIZER)
    assert Counter(prompt.kind for prompt in prompts) == dict(zip(PROMPT_KINDS, (3, 3, 2, 2, 2), strict=True))
    assert prompts == load_prompts([Prompts(language=language, count=12)], TOKENIZER)
    assert len(load_prompts([Prompts(language=language)], TOKENIZER)) == 60
    drawn = load_prompts([Prompts(language=language, sample=7)], TOKENIZER)
    assert Counter(prompt.kind for prompt in drawn) == dict(zip(PROMPT_KINDS, (2, 2, 1, 1, 1), strict=True))
    assert len({prompt.name for prompt in prompts}) == len(prompts)
    assert {prompt.kind for prompt in prompts if prompt.chat} == {"instruction", "composition", "question"}


def test_a_window_is_the_beginning_of_a_document(tmp_path: Path) -> None:
    texts = ["Zażółć gęślą jaźń, a potem idź do lasu.", "Za krótkie.", "Most w Jaworowcu zamknięty."]
    corpus = tmp_path / "two.txt"
    corpus.write_text("\n".join(texts) + "\n", encoding="utf-8")
    source = Prompts(source=str(corpus), language="pl", kinds=("news",), window=8)
    prompts = load_prompts([source], TOKENIZER)
    expected = [ids[:8] for ids in map(TOKENIZER.encode, texts) if len(ids) >= 8]
    assert [prompt.text for prompt in prompts] == [TOKENIZER.bytes_of(ids).decode(errors="ignore") for ids in expected]
    assert len(prompts) == 2
    assert (prompts[0].name, prompts[0].kind) == ("two.txt-001", "news")
    assert len(load_prompts([Prompts(source=str(corpus), language="pl", count=3)], TOKENIZER)) == 3


def test_a_source_without_prompts_is_an_error(tmp_path: Path) -> None:
    corpus = tmp_path / "short.txt"
    corpus.write_text("Za krótkie.\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"short\.txt: expected windows of 512 tokens, got none"):
        load_prompts([Prompts(source=str(corpus), window=512)], TOKENIZER)


def test_other_prompts_have_another_fingerprint() -> None:
    some, more = (load_prompts([Prompts(language="pl", count=count)], TOKENIZER) for count in (1, 2))
    assert prompts_hash(some) == prompts_hash(list(some)) != prompts_hash(more)


def test_a_prompt_is_encoded_as_generate_does() -> None:
    _, tokenizer = load_model(str(demo_path("target")))
    prompt = load_prompts([Prompts(language="pl", kinds=("encyclopaedic",), count=1)], TOKENIZER)[0]
    assert ids_of_prompt(prompt, tokenizer) == tokenizer.encode(prompt.text)


def test_prompts_of_one_name_are_told_apart(tmp_path: Path) -> None:
    corpus = tmp_path / "two.txt"
    corpus.write_text("Most w Jaworowcu zamknięty do końca, a potem idź do lasu.\n", encoding="utf-8")
    sources = [Prompts(source=str(corpus), language="pl", window=window) for window in (4, 8)]
    prompts = load_prompts(sources, TOKENIZER)
    assert len({prompt.name for prompt in prompts}) == len(prompts) == 2
    assert "two.txt-001 of source 2" in {prompt.name for prompt in prompts}


def test_the_built_in_sets_are_named_where_a_source_is_mistyped() -> None:
    with pytest.raises(CorpusError, match=r"Built-in prompts: pl, uk, en, crh, crh-cyrl"):
        load_prompts([Prompts(source="pll", language="pl")], TOKENIZER)


def test_prompts_are_drawn_by_the_seed(tmp_path: Path) -> None:
    texts = [f"Most numer {number} w Jaworowcu zamknięty do odwołania, a potem idź do lasu." for number in range(40)]
    corpus = tmp_path / "many.txt"
    corpus.write_text("\n".join(["Krótkie.", *texts]) + "\n", encoding="utf-8")
    for window in (0, 8):
        source = Prompts(source=str(corpus), language="pl", sample=5, window=window)
        one, same, other = ([p.text for p in load_prompts([source], TOKENIZER, seed)] for seed in (1, 1, 2))
        assert one == same != other
        assert len(set(one)) == 5
        assert all(any(text in each for each in texts) for text in one) or not window
        assert not window or all(len(TOKENIZER.encode(text)) <= 3 * window for text in one)
    drawn = load_prompts([Prompts(language="pl", kinds=("list",), sample=3)], TOKENIZER, 1)
    assert len(drawn) == 3 and {prompt.kind for prompt in drawn} == {"list"}


def test_fewer_prompts_than_are_to_be_drawn_are_an_error() -> None:
    with pytest.raises(CorpusError, match=r"pl:list: expected 50 prompts to draw, got 12\. Draw fewer"):
        load_prompts([Prompts(language="pl", kinds=("list",), sample=50)], TOKENIZER)


def test_every_item_that_fits_is_drawn_equally_often() -> None:
    asked: list[int] = []

    def fits(item: int) -> bool:
        asked.append(item)
        return item % 2 == 0

    counts = Counter(item for seed in range(4000) for item in drawn_items(range(20), 3, random.Random(seed), fits, "x"))
    assert set(counts) == set(range(0, 20, 2))
    assert all(abs(count - 1200) < 150 for count in counts.values()), counts  # five standard deviations
    assert len(asked) < 4000 * 20
