"""Token ids that the model does not have: refused by name wherever they come from, before MLX selects by them."""

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import sample_utils
from mlx_lm.models.cache import make_prompt_cache

from spectool.runtime import (
    Sampling,
    batch_generate,
    generate,
    generate_step,
    load_drafter,
    make_logits_processors,
    stream_generate,
)
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.loading import load_model
from spectool.runtime.sampling.token_ids import TokenOutOfRange, vocabulary_size
from spectool.tests.runtime.fake_drafters import Fixed
from spectool.tests.runtime.models import KINDS, drafted, tiny_model
from spectool.tests.runtime.wider import EXTRA, ROWS, copied


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return load_model(copied(tmp_path_factory.mktemp("wider"), {**EXTRA, "<far>": 70_000}))


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_limit_is_the_number_of_the_models_own_logits(kind: str) -> None:
    model = tiny_model(kind)
    cache = make_prompt_cache(model)
    assert vocabulary_size(model) == model(mx.array([[0]]), cache=cache).shape[-1] == 256
    seen = weakref.ref(model)
    del model, cache
    gc.collect()
    assert seen() is None, "what is remembered of a model keeps it in memory"


@pytest.mark.parametrize(
    "prompt", [[ROWS], [5, 70_000, 6], [-1], [2**70], mx.array([3, ROWS]), mx.array([-1])], ids=str
)
def test_prompts_in_python(loaded: tuple[Any, Any], prompt: Any) -> None:
    model, _ = loaded
    with pytest.raises(
        TokenOutOfRange, match=r"^prompt: token .*: the model has 1,536 rows, expected an id from 0 to 1535"
    ):
        generate_step(prompt, model)
    with pytest.raises(TokenOutOfRange, match=r"^cached_tokens: token"):
        generate_step([4], model, cached_tokens=prompt, prompt_cache=make_prompt_cache(model))


@pytest.mark.parametrize("token", [ROWS, 10**9, -1])
def test_biases(loaded: tuple[Any, Any], token: int) -> None:
    model, _ = loaded
    biases = {5: 1.0, token: 100.0}
    ours, theirs = make_logits_processors(biases), sample_utils.make_logits_processors(None, 1.3)
    for processors in (ours, [*theirs, *ours]):
        with pytest.raises(TokenOutOfRange, match=f"^logit_bias: token {token}: the model has 1,536 rows"):
            generate_step([4], model, logits_processors=processors)

    # Behind a function of the user's nobody can look; ours check what they get.
    steps = generate_step([4], model, logits_processors=[lambda tokens, logits: ours[0](tokens, logits)])
    with pytest.raises(TokenOutOfRange, match=f"^logit_bias: token {token}"):
        next(steps)
    assert generate(*loaded, [4], max_tokens=3) == generate(*loaded, [4], max_tokens=3), "the model works on"


def test_biases_are_those_of_mlx_lm(loaded: tuple[Any, Any]) -> None:
    biases = {5: 3.5, ROWS - 1: -100.0, 0: 2}
    options = {"repetition_penalty": 1.2, "frequency_penalty": 0.3}
    ours, theirs = make_logits_processors(biases, **options), sample_utils.make_logits_processors(biases, **options)
    logits, tokens = mx.random.normal((1, ROWS)), mx.array([3, 5, 3])
    for one, other in zip(ours, theirs, strict=True):
        assert mx.array_equal(one(tokens, logits + 0), other(tokens, logits + 0))


@pytest.mark.parametrize(
    "sampler", [None, Sampling(temp=0.8, xtc_probability=0.5, xtc_special_tokens=(2, ROWS, 10**9))]
)
@pytest.mark.parametrize("draft", [[ROWS], [5, ROWS, 6], [5, -1], [10**9] * 3])
def test_drafts_are_cut_before_them(loaded: tuple[Any, Any], draft: list[int], sampler: Any) -> None:
    total, proposed = DraftStatistics(), list[Sequence[int]]()
    penalties = make_logits_processors(presence_penalty=0.5)
    options: dict[str, Any] = {"sampler": sampler, "seed": 1, "logits_processors": penalties, "statistics": total}
    options |= {"num_draft_tokens": 4, "on_cycle": lambda cycle: proposed.append(cycle.proposal)}
    assert len(drafted(loaded[0], [4], Fixed(draft), 6, **options)) == 6
    assert not total.failures
    assert {token for tokens in proposed for token in tokens} <= {5}


@pytest.mark.parametrize("added", [{}, {"<gap>": ROWS + 100}])
def test_a_tokenizer_that_lacks_tokens_of_the_model(tmp_path: Path, added: dict[str, int]) -> None:
    model, tokenizer = load_model(copied(tmp_path, added, kept=1100))
    for token in (ROWS - 1, 1300, 1137, 1099):
        written = generate(
            model,
            tokenizer,
            "Most",
            max_tokens=4,
            drafter=load_drafter(tokenizer),
            logits_processors=make_logits_processors({token: 1e4}),
        )
        assert bool(written) == (token < 1100)


@pytest.mark.parametrize("kind", [list, set, mx.array])
def test_stop_tokens_are_added_to_those_of_the_tokenizer(loaded: tuple[Any, Any], kind: Any) -> None:
    model, tokenizer = loaded
    *_, last = responses = list(stream_generate(model, tokenizer, "Most w Jaworowcu", max_tokens=8))
    stop, expected = responses[3].token, "".join(response.text for response in responses[:3])
    assert stop not in [response.token for response in responses[:3]] and last.finish_reason == "length"
    stops = {"stop_tokens": kind([stop, 1]), "max_tokens": 8}
    assert generate(model, tokenizer, "Most w Jaworowcu", **stops) == expected
    assert batch_generate(model, tokenizer, ["Most w Jaworowcu"], **stops).texts == [expected]
