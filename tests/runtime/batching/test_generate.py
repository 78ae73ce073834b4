"""Texts of several prompts in one call are those of one call for each."""

from typing import Any

import pytest
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache

from spectool import RuntimeUnsupported
from spectool.runtime import batch_generate, generate, load_drafter
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.grammar import Grammar
from spectool.runtime.sampling.samplers import Sampling
from spectool.tests.runtime.caches.holding import assert_holds
from spectool.tests.tiers import nightly

PROMPTS = ["Most w Jaworowcu", "Wczoraj wieczorem", "Mamo, mamo, mamo, dlaczego", "Негода на Приліщині"]


@pytest.fixture(scope="module")
def loaded() -> Any:
    return load(str(demo_path("target")))


@pytest.mark.parametrize("draft_model", [demo_path("draft"), *nightly(None)])
def test_each_text_is_its_own_and_its_cache_goes_on(loaded: Any, draft_model: Any) -> None:
    model, tokenizer = loaded
    drafter = load_drafter(tokenizer, draft_model=draft_model)
    made = batch_generate(
        model, tokenizer, PROMPTS, drafter=drafter, max_tokens=[9, 24, 16, 12], rows=3, return_prompt_caches=True
    )
    for place, length in enumerate([9, 24, 16, 12]):
        assert made.texts[place] == generate(model, tokenizer, PROMPTS[place], max_tokens=length)
        assert made.drafting[place].tokens == len(made.tokens[place]) == length
        held = [*tokenizer.encode(PROMPTS[place]), *made.tokens[place][:-1]]
        assert_holds(model, made.caches[place], held)  # type: ignore[arg-type]
    again = batch_generate(
        model,
        tokenizer,
        [tokens[-1:] for tokens in made.tokens],
        drafter=drafter,
        max_tokens=6,
        prompt_caches=made.caches,  # type: ignore[arg-type]
        stop_strings=["."],
    )
    for place, length in enumerate([9, 24, 16, 12]):
        longer = generate(model, tokenizer, PROMPTS[place], max_tokens=length + 6)
        assert longer.startswith(made.texts[place] + again.texts[place])


def test_what_is_not_one_for_each_prompt_is_refused(loaded: Any) -> None:
    with pytest.raises(ValueError, match="zip"):
        batch_generate(*loaded, PROMPTS, max_tokens=[4, 4])
    cycles: list[Any] = []
    with pytest.raises(RuntimeUnsupported, match="prompt: expected at least one token"):
        batch_generate(*loaded, [*PROMPTS, []], rows=1, on_cycle=cycles.append)
    assert not cycles
    with pytest.raises(RuntimeUnsupported, match=r"another prompt cache for each"):
        batch_generate(*loaded, PROMPTS, prompt_caches=[make_prompt_cache(loaded[0])] * 4)


@pytest.mark.parametrize("count", [8, *nightly(30)])
def test_a_seed_gives_the_same_text_alone_and_among_others(loaded: Any, count: int) -> None:
    """What is drafted for the others, and what their drafters have shown, counts for nothing."""
    base = DrafterSet(
        [LookupDrafter(history=True), ModelDrafter(load(str(demo_path("draft")))[0], min_probability=0.1)]
    )

    def written(prompts: list[str], seeds: list[int]) -> list[list[int]]:
        options: dict[str, Any] = {"drafter": base, "num_draft_tokens": 4, "sampler": Sampling(temp=0.8)}
        return batch_generate(*loaded, prompts, seeds=seeds, max_tokens=count, **options).tokens

    alone = [written([prompt], [seed])[0] for seed, prompt in enumerate(PROMPTS, 1)]
    assert written(PROMPTS, [1, 2, 3, 4]) == alone


@pytest.mark.nightly
@pytest.mark.parametrize("drafting", ["model", "", "look-ups"])
def test_every_text_follows_the_grammar_by_itself(loaded: Any, drafting: str) -> None:
    model, tokenizer = loaded
    schema = {
        "type": "object",
        "properties": {"miasto": {"type": "string", "maxLength": 9}, "rok": {"type": "integer"}},
    }
    grammar = Grammar(tokenizer, "json_schema", {**schema, "required": ["miasto", "rok"]})
    drafter = load_drafter(tokenizer) if drafting else None
    if drafter is not None and drafting == "model":
        drafter = DrafterSet([*drafter.members, ModelDrafter(load(str(demo_path("draft")))[0])])
    options: dict[str, Any] = {"grammar": grammar, "max_tokens": 40, "num_draft_tokens": 4 if drafting else 0}
    alone = [generate(model, tokenizer, prompt, drafter=drafter, **options) for prompt in PROMPTS]
    found = batch_generate(model, tokenizer, PROMPTS, drafter=drafter, rows=3, **options)
    assert found.texts == alone
    assert len(set(alone)) > 1 and all(text.startswith("{") for text in alone)
