"""Streamed text against mlx-lm's own, with a real tokenizer class and every way to end."""

from typing import Any

import pytest
from mlx_lm.generate import GenerationResponse as MlxLmResponse
from mlx_lm.generate import stream_generate as host_stream_generate
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from spectool.runtime.decoding.streaming import GenerationResponse, stream_generate
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.runtime.fake_drafters import Reference
from spectool.tests.runtime.models import plain
from spectool.tests.tiers import nightly

TEXT = "Zażółć gęślą jaźń"


def byte_tokenizer(detokenizer: Any) -> TokenizerWrapper:
    """One token for each byte, so that most letters of TEXT take two."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    return TokenizerWrapper(fast, **({"detokenizer_class": detokenizer} if detokenizer else {}))


@pytest.fixture(params=[None, BPEStreamingDetokenizer], ids=["naive", "byte-level"])
def tokenizer(request: pytest.FixtureRequest) -> TokenizerWrapper:
    return byte_tokenizer(request.param)


def comparable(responses: list[Any]) -> tuple[Any, ...]:
    """The whole text, but for its first space and NUL, and what each response says about it."""
    told = [(r.token, r.prompt_tokens, r.generation_tokens, r.finish_reason) for r in responses]
    text = "".join(response.text for response in responses)
    return text.removeprefix(" ").replace("\0", "\u0100"), told


@pytest.mark.parametrize("ends", [True, *nightly(False)])
def test_the_same_responses_as_mlx_lm(model: Any, tokenizer: TokenizerWrapper, ends: bool) -> None:
    if ends:
        text = plain(model, tokenizer.encode(TEXT), 40)
        tokenizer.eos_token_ids = {next(token for token in text[3:] if text.index(token) >= 3)}
    expected = list(host_stream_generate(model, tokenizer, TEXT, max_tokens=40))
    assert expected[-1].finish_reason == ("stop" if ends else "length")
    oracle = Reference([response.token for response in expected], wrong=0.3)
    for drafter in (None, oracle, LookupDrafter(history=True)):
        got = list(stream_generate(model, tokenizer, TEXT, max_tokens=40, drafter=drafter, num_draft_tokens=8))
        assert comparable(got) == comparable(expected)
        assert all(isinstance(r, GenerationResponse) and isinstance(r, MlxLmResponse) for r in got)
    assert oracle.started == tokenizer.encode(TEXT)


@pytest.mark.parametrize("end", ["stop string", "limit", "reader"])
def test_statistics_count_what_was_yielded(model: Any, tokenizer: TokenizerWrapper, end: str) -> None:
    text = plain(model, tokenizer.encode(TEXT), 20)
    whole = "".join(r.text for r in stream_generate(model, tokenizer, TEXT, max_tokens=20))
    options: dict[str, Any] = {"max_tokens": 5} if end == "limit" else {"max_tokens": 20}
    if end == "stop string":
        options["stop_strings"] = [whole[4:6]]
    responses = []
    for response in stream_generate(model, tokenizer, TEXT, drafter=Reference(text), num_draft_tokens=16, **options):
        responses.append(response)
        counts = response.drafting
        assert counts.tokens == response.generation_tokens == len(responses)
        assert counts.accepted == sum(r.from_draft for r in responses) == counts.accepted_by["oracle"]
        if end == "reader" and len(responses) == 5:
            break
    assert (counts.passes, counts.tokens_per_pass) == (1, len(responses))
    assert 1 < len(responses) < 16, "inside the draft"
