"""The text of an answer against mlx-lm's own detokenizers, on real tokenizers."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper, load
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from spectool.runtime.decoding.answer_text import AnswerText
from spectool.runtime.demo_models import demo_path
from spectool.tests.tiers import nightly

TEXTS = (
    "Zażółć gęślą jaźń",
    " the lazy dog",
    "👩‍👩‍👧 猫 Ґанок, ščur",
    "def f(x):\n    return x , y !",
    "<s>[INST] Hej [/INST]</s>",
    "\r\n\x1b[31m\u2028",
)
REAL = ["t5-small", *nightly("bielik-11b-v2.5", "bielik-4.5b-v3-apt4", "gemma-3", "gpt2", "llama-3.2", "qwen2.5")]


def read(tokenizer: Any, ids: Iterable[int], **options: Any) -> str:
    text = AnswerText(tokenizer, **options)
    found = "".join([*map(text.add, ids), text.finish()])
    assert text.written == text.certain == len(found)
    return found


def read_by_mlx_lm(tokenizer: Any, ids: Iterable[int]) -> str:
    detokenizer = tokenizer.detokenizer
    for token in ids:
        detokenizer.add_token(token)
    detokenizer.finalize()
    return str(detokenizer.text)


def agrees(tokenizer: Any) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    cases = [tokenizer.encode(text, add_special_tokens=marked) for text in TEXTS for marked in (True, False)]
    for ids in [*cases, *([rng.randrange(len(tokenizer)) for _ in range(12)] for _ in range(200))]:
        found, expected = read(tokenizer, ids), read_by_mlx_lm(tokenizer, ids)
        # mlx-lm loses spaces at the beginning, and writes NUL as the character that stands for it in vocabularies.
        assert found.lstrip(" ") == expected.lstrip(" ") or "\0" in found, ids
        assert len(found) >= len(expected)


@pytest.mark.parametrize("name", ["target", "other"])
def test_the_text_of_mlx_lm_for_the_demo_models(name: Any) -> None:
    agrees(load(demo_path(name)))


@pytest.mark.parametrize("name", REAL)
def test_the_text_of_mlx_lm_for_real_tokenizers(shared: Path, name: str) -> None:
    agrees(load(shared / "tokenizers" / name))


@pytest.mark.parametrize("name", ["target", "other"])
def test_a_continuation_keeps_its_space_and_nul(name: Any) -> None:
    tokenizer = load(demo_path(name))
    begun = tokenizer.encode("over the")
    assert read(tokenizer, tokenizer.encode("over the lazy dog\0.")[len(begun) :]) == " lazy dog\0."


def test_a_text_of_its_own_begins_without_the_space_of_the_tokenizer() -> None:
    for name in ("target", "other"):
        tokenizer = load(demo_path(name))
        for text in ("Hej", "  two", "\0", ""):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert read(tokenizer, ids, own_text=True) == text


def test_stop_strings_are_found_across_tokens() -> None:
    tokenizer = load(demo_path("target"))
    text, whole = AnswerText(tokenizer, ["dog", "lazy d"]), ""
    for token in tokenizer.encode("over the lazy dog"):
        whole += text.add(token)
        if text.stopped_by:
            break
    assert (whole.removeprefix("<s>").strip(), text.stopped_by) == ("over the", "lazy d")
    assert text.certain == len(whole) < text.written


def test_a_decoder_that_is_not_known_is_left_to_mlx_lm() -> None:
    backend = Tokenizer(models.BPE({"ko": 0, "t": 1, "y": 2}, []))
    backend.decoder = decoders.CTC()
    tokenizer = TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert read(tokenizer, [0, 1, 2, 5]) == read_by_mlx_lm(tokenizer, [0, 1, 2]) == "koty"
