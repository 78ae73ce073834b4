"""Options that are checked before a model works: the groups of a quantised cache."""

from contextlib import suppress
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import require_quantizable
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.mlx_lm_compat import maybe_quantize_kv_cache
from spectool.tests.runtime.models import KINDS, tiny_model


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_refused_where_the_cache_would_fail(kind: str) -> None:
    model = tiny_model(kind)
    with suppress(RuntimeUnsupported):  # what is refused with any group
        require_quantizable(make_prompt_cache(model), model, 8, 32)
        for size in (32, 64, 128):  # numbers that MLX can quantise together
            cache = make_prompt_cache(model)
            model(mx.array([[5]]), cache=cache)
            options = {"kv_bits": 8, "kv_group_size": size, "quantized_kv_start": 0, "max_tokens": 3}
            try:
                maybe_quantize_kv_cache(cache, 0, size, 8)
            except ValueError:
                with pytest.raises(RuntimeUnsupported, match=rf"groups of {size} \(its heads have"):
                    generate_step([5, 6, 7], model, **options)
            else:
                assert len(list(generate_step([5, 6, 7], model, **options))) == 3


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("gemma3_text", "got .* RotatingKVCache"),
        ("mamba2", "got .* ArraysCache"),
        ("falcon_h1", "got .* CacheList"),
        ("deepseek_v41", "got .* LayerCache"),
        ("deepseek_v3", "cannot read a cache of 8 bits"),
        ("llama", "cannot read a cache of 8 bits in groups of 0"),  # MLX would divide by 0, which ends the process
    ],
)
def test_what_would_fail_halfway_or_do_nothing_is_refused_before_any_work(kind: str, reason: str) -> None:
    with pytest.raises(RuntimeUnsupported, match=rf"^kv_bits: model type {kind}.*{reason}"):
        generate_step([5, 6, 7], tiny_model(kind), kv_bits=8, kv_group_size=0 if kind == "llama" else 32)


def test_each_model_is_tried_once_for_bits_and_a_group_size() -> None:
    asked: list[tuple[int, int]] = []

    class Counting(type(tiny_model())):  # type: ignore[misc]
        def __call__(self, tokens: mx.array, **options: Any) -> Any:
            asked.append(tuple(tokens.shape))
            return super().__call__(tokens, **options)

    model, refusing = tiny_model(), tiny_model("deepseek_v3")
    model.__class__ = Counting
    for _ in range(3):
        for bits in (4, 8):
            require_quantizable(make_prompt_cache(model), model, bits, 32)
        with pytest.raises(RuntimeUnsupported, match="cannot read"):
            require_quantizable(make_prompt_cache(refusing), refusing, 8, 32)
    assert asked == [(1, 1), (1, 2)] * 2
