"""Saved prompt caches: what comes back goes on as if it had never been away, target and draft."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.models.cache import save_prompt_cache as host_save

from spectool import RuntimeUnsupported
from spectool.runtime.generation import generate_step
from spectool.runtime.model_drafter import ModelDrafter
from spectool.runtime.model_source import ModelSource
from spectool.runtime.prompt_cache import load_prompt_cache, save_prompt_cache
from spectool.runtime.statistics import DraftStatistics
from spectool.runtime.translation import Constraint, DraftContext

from .drafters import Oracle
from .models import KINDS, perturbed, plain, tiny_model

PROMPT = [7, 8, 9, 7, 8] * 4


def conversation(model: Any, drafter: Any, cache: list[Any], count: int) -> list[int]:
    steps = generate_step(mx.array(PROMPT), model, drafter=drafter, prompt_cache=cache, max_tokens=count)
    return [token for token, _, _ in steps]


@pytest.mark.parametrize("kind", list(KINDS))
def test_target_and_draft_go_on(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "cache.safetensors"
    model = tiny_model(kind)
    noisy = perturbed(model, kind=kind, noise=0.02)
    drafter, cache = ModelDrafter(noisy), make_prompt_cache(model)
    text = plain(model, PROMPT, 30)
    assert conversation(model, drafter, cache, 12) == text[:12]
    save_prompt_cache(path, cache, drafter, {"note": "zażółć"})

    loaded = ModelDrafter(noisy)
    cache, metadata = load_prompt_cache(path, loaded)
    assert metadata == {"note": "zażółć"}
    # The draft's last proposal is in its cache: a length of its own.
    assert loaded.cache.tokens == drafter.cache.tokens
    assert loaded.cache.tokens[: len(PROMPT)] == PROMPT
    results = []
    for one in (drafter, loaded):
        total = DraftStatistics()
        before = len(one.cache.tokens)
        whole = [*PROMPT, *text[:12]]
        one.start(whole)
        assert len(one.cache.tokens) <= len(whole) - 1
        steps = generate_step(
            mx.array(text[11:12]),
            model,
            drafter=one,
            prompt_cache=load_prompt_cache(path)[0],
            cached_tokens=whole[:-1],
            max_tokens=18,
            statistics=total,
        )
        assert [token for token, _, _ in steps] == text[12:]
        results.append((total, before))
    assert results[0] == results[1]


def test_a_source_of_another_vocabulary(tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model("qwen3_5")
    source, again = ModelSource(model, bos=1), ModelSource(model, bos=1)
    ids = list(range(20, 50))
    source.draft(DraftContext(ids, 0), Constraint(), 4)
    save_prompt_cache(path, [KVCache()], source)
    load_prompt_cache(path, again)
    again.start()
    fed = again.fed_tokens
    constraint = Constraint(extensions=np.arange(256, dtype=np.int32))
    assert again.draft(DraftContext(ids, 0), constraint, 4) == source.draft(DraftContext(ids, 30), constraint, 4)
    assert again.cache.tokens == source.cache.tokens
    assert again.fed_tokens - fed > 0


def test_files_without_a_draft(tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model()
    cache = make_prompt_cache(model)
    text = plain(model, PROMPT, 10)
    conversation(model, Oracle(text), cache, 5)
    drafter = ModelDrafter(model)
    for save in (
        lambda: host_save(str(path), cache),
        lambda: save_prompt_cache(path, cache),
        lambda: save_prompt_cache(path, cache, drafter),
    ):
        save()
        loaded, metadata = load_prompt_cache(path, drafter)
        assert metadata == {}
        assert drafter.cache.tokens == []
        steps = generate_step(mx.array(text[4:5]), model, prompt_cache=loaded, max_tokens=5)
        assert [token for token, _, _ in steps] == text[5:]


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model()
    cache, drafter = make_prompt_cache(model), ModelDrafter(model)
    conversation(model, drafter, cache, 5)
    save_prompt_cache(path, cache, drafter)
    with pytest.raises(RuntimeUnsupported, match=r"cache.safetensors: draft cache: expected 4 caches .* got 2"):
        load_prompt_cache(path, ModelDrafter(tiny_model("falcon_h1")))
    save_prompt_cache(path, cache, drafter, {})
    host_save(str(path), [*cache, *drafter.cache.content()[0]], {"spectool_target_caches": "2"})
    with pytest.raises(RuntimeUnsupported, match="expected a prompt cache, got ValueError"):
        load_prompt_cache(path)
    host_save(
        str(path),
        [*cache, *drafter.cache.content()[0]],
        {"spectool_target_caches": "2", "spectool_draft_tokens": "[1, 2]"},
    )
    with pytest.raises(RuntimeUnsupported, match="expected 2 caches of 2 tokens, got 2 of"):
        load_prompt_cache(path, ModelDrafter(model))
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(RuntimeUnsupported, match="expected a prompt cache"):
        load_prompt_cache(path)
    with pytest.raises(RuntimeUnsupported, match="expected a prompt cache"):
        load_prompt_cache(tmp_path / "absent.safetensors")
