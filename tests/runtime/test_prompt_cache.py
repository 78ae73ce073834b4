"""Saved prompt caches: a generation continues from a loaded one as from the one that was saved, target and draft."""

import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.models.cache import save_prompt_cache as host_save

from spectool import RuntimeUnsupported
from spectool.lab.strategies import IntersectionTranslator
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafters
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.prompt_cache import fingerprint, load_prompt_cache, save_prompt_cache
from spectool.runtime.translation.protocol import Constraint, DraftContext
from spectool.tests.runtime.fake_drafters import Reference
from spectool.tests.runtime.models import KINDS, perturbed, plain, tiny_model

SAME = np.arange(256, dtype=np.int32)
PROMPT = [7, 8, 9, 7, 8] * 4


def conversation(model: Any, drafter: Any, cache: list[Any], count: int) -> list[int]:
    steps = generate_step(
        mx.array(PROMPT), model, drafter=drafter, num_draft_tokens=8, prompt_cache=cache, max_tokens=count
    )
    return [token for token, _, _ in steps]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.system) if kind in ("llama4", "qwen3_5") else kind for kind in KINDS]
)
def test_target_and_draft_go_on(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "cache.safetensors"
    model = tiny_model(kind)
    noisy = perturbed(model, kind=kind, noise=0.02)
    drafter, cache = ModelDrafter(noisy), make_prompt_cache(model)
    text = plain(model, PROMPT, 30)
    assert conversation(model, drafter, cache, 12) == text[:12]
    save_prompt_cache(path, cache, drafter, {"note": "zażółć"}, tokens=[*PROMPT, *text[:11]])

    loaded = ModelDrafter(noisy)
    saved = load_prompt_cache(path, loaded)
    assert saved.metadata == {"note": "zażółć"}
    assert saved.tokens == [*PROMPT, *text[:11]]
    assert saved.draft_tokens == len(drafter.cache.tokens)
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
            num_draft_tokens=8,
            prompt_cache=load_prompt_cache(path).cache,
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
    constraint = Constraint(extensions=np.arange(256, dtype=np.int32))
    assert again.draft(DraftContext(ids, 0), constraint, 4) == source.draft(DraftContext(ids, 30), constraint, 4)
    assert again.cache.tokens == source.cache.tokens


def test_files_without_a_draft(tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model()
    cache = make_prompt_cache(model)
    text = plain(model, PROMPT, 10)
    conversation(model, Reference(text), cache, 5)
    drafter = ModelDrafter(model)
    for save in (
        lambda: host_save(str(path), cache),
        lambda: save_prompt_cache(path, cache),
        lambda: save_prompt_cache(path, cache, drafter),
    ):
        save()
        saved = load_prompt_cache(path, drafter)
        assert (saved.metadata, saved.tokens, saved.draft_tokens) == ({}, [], 0)
        assert drafter.cache.tokens == []
        steps = generate_step(mx.array(text[4:5]), model, prompt_cache=saved.cache, max_tokens=5)
        assert [token for token, _, _ in steps] == text[5:]


@pytest.mark.parametrize("kind", [tuple, np.array, mx.array])
def test_the_ids_of_the_tokens_may_have_any_form(kind: Any, tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model()
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT]), cache=cache))
    save_prompt_cache(path, cache, tokens=kind(PROMPT))
    assert load_prompt_cache(path).tokens == PROMPT
    with pytest.raises(RuntimeUnsupported, match=r"^tokens: expected token ids, got None"):
        save_prompt_cache(path, cache, tokens=None)  # type: ignore[arg-type]


def test_what_a_loaded_drafter_is_made_of(tmp_path: Path) -> None:
    """The cache of a draft model is found through a translator, and through a hybrid."""
    path, model = tmp_path / "cache.safetensors", tiny_model()
    translator = IntersectionTranslator(SAME, SAME, {}.__getitem__)
    saved = Drafters([Reference([]), TranslatedDrafter(ModelSource(model), translator)])
    saved.members[1].start(PROMPT)
    saved.members[1].propose(4)
    save_prompt_cache(path, [KVCache()], saved)
    loaded = TranslatedDrafter(ModelSource(model), translator)
    assert load_prompt_cache(path, loaded).draft_tokens == len(PROMPT) + 3
    assert loaded.cache is not None and loaded.cache.tokens[: len(PROMPT)] == PROMPT
    for nothing in (Drafters([Reference([])]), Reference([]), None):
        assert nothing is None or nothing.cache is None
        load_prompt_cache(path, nothing)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model()
    cache, drafter = make_prompt_cache(model), ModelDrafter(model)
    conversation(model, drafter, cache, 5)
    save_prompt_cache(path, cache, drafter, {"draft_model": "./tiny"})
    for other in (tiny_model("falcon_h1"), tiny_model(seed=1), perturbed(model, noise=1e-6)):
        with pytest.raises(
            RuntimeUnsupported, match=r"safetensors: its draft cache is of model .*\(./tiny\), the draft"
        ):
            load_prompt_cache(path, ModelDrafter(other))
    load_prompt_cache(path, ModelDrafter(tiny_model()))
    entries, tokens = drafter.cache.content()
    draft = {"spectool_draft_model": fingerprint(model), "spectool_draft_tokens": json.dumps(tokens)}
    for metadata, message in (
        ({"spectool_target_caches": "2"}, "expected a prompt cache, got ValueError"),
        ({**draft, "spectool_target_caches": "2", "spectool_target_tokens": "[5]"}, "and 1 token ids"),
        ({**draft, "spectool_target_caches": "3"}, "expected 2 caches of .* tokens, got 1 of"),
        (
            {**draft, "spectool_target_caches": "2", "spectool_draft_tokens": "[1, 2]"},
            "expected 2 caches of 2 tokens, got 2 of",
        ),
    ):
        host_save(str(path), [*cache, *entries], metadata)
        with pytest.raises(RuntimeUnsupported, match=message):
            load_prompt_cache(path, ModelDrafter(model))
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(RuntimeUnsupported, match="expected a prompt cache"):
        load_prompt_cache(path)
    with pytest.raises(RuntimeUnsupported, match="expected a prompt cache"):
        load_prompt_cache(tmp_path / "absent.safetensors")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "cache.safetensors")
    os.write(writer := os.open(path, os.O_RDWR), b"x" * 20)  # so that reading it would not hang this test
    with pytest.raises(RuntimeUnsupported, match="expected a prompt cache, got FileNotFoundError: no regular file"):
        load_prompt_cache(path)
    with pytest.raises(RuntimeUnsupported, match="exists and is not a prompt cache"):
        save_prompt_cache(path, [KVCache()])
    os.close(writer)


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model("deepseek_v41")
    cache = make_prompt_cache(model)
    conversation(model, ModelDrafter(model), cache, 5)
    with pytest.raises(RuntimeUnsupported, match="a prompt cache of class LayerCache cannot be saved"):
        save_prompt_cache(path, cache)
    assert not path.exists()


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path, cache = tmp_path / "cache.safetensors", make_prompt_cache(tiny_model())
    conversation(tiny_model(), ModelDrafter(tiny_model()), cache, 5)
    with pytest.raises(RuntimeUnsupported, match=r"cache.bin: expected a file name .* Call it .*cache.bin.safetensors"):
        save_prompt_cache(tmp_path / "cache.bin", cache)
    with pytest.raises(RuntimeUnsupported, match="cannot be written"):
        save_prompt_cache(tmp_path / "absent" / "cache.safetensors", cache)
    assert list(tmp_path.iterdir()) == []
    path.mkdir()
    with pytest.raises(RuntimeUnsupported, match="exists and is not a prompt cache"):
        save_prompt_cache(path, cache)
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_prompt_cache_is_replaced(tmp_path: Path) -> None:
    path, model = tmp_path / "cache.safetensors", tiny_model()
    cache = make_prompt_cache(model)
    conversation(model, ModelDrafter(model), cache, 5)
    host_save(str(path), cache)
    save_prompt_cache(path, cache, tokens=[1])  # in place of mlx-lm's
    theirs = path.read_bytes()
    save_prompt_cache(path, cache, tokens=[2])  # in place of ours
    assert path.read_bytes() != theirs
    with pytest.raises(RuntimeUnsupported, match="cache: expected a prompt cache"):
        save_prompt_cache(path, [])
    model.save_weights(str(path))
    weights = path.read_bytes()
    headers = [len(text).to_bytes(8, "little") + text for text in (b"[]", b'{"__metadata__":1}', b'{"a":')]
    for data in (weights, b"", b"\xff" * 20, *headers):
        path.write_bytes(data)
        with pytest.raises(RuntimeUnsupported, match=r"cache.safetensors: exists and is not a prompt cache"):
            save_prompt_cache(path, cache)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]
