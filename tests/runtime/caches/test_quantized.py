"""Options that are checked before a model works: the groups of a quantised cache."""

from contextlib import suppress

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from spectool import RuntimeUnsupported
from spectool.commands.shared.model_options import GROUP_SIZES
from spectool.runtime.caches.quantized import check_kv_bits, require_quantizable
from spectool.runtime.decoding.generation import generate_step
from spectool.tests.runtime.models import KINDS, tiny_model


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_refused_where_the_cache_would_fail(kind: str) -> None:
    model = tiny_model(kind)
    with suppress(RuntimeUnsupported):  # windows, which are refused elsewhere
        require_quantizable(make_prompt_cache(model), model)
        for size in GROUP_SIZES:
            options = {"kv_bits": 8, "kv_group_size": size, "quantized_kv_start": 0, "max_tokens": 3}
            steps = generate_step(mx.array([5, 6, 7]), model, **options)
            try:
                check_kv_bits(model, size)
            except RuntimeUnsupported:
                with pytest.raises(ValueError, match="quantize"):
                    list(steps)
            else:
                assert len(list(steps)) == 3


def test_the_error_names_the_size_and_only_what_helps() -> None:
    model = tiny_model()
    check_kv_bits(model, 32)
    have = "the model's have 32 numbers"
    with pytest.raises(RuntimeUnsupported, match=rf"--kv-group-size 64, {have}. Give --kv-group-size 32$"):
        check_kv_bits(model, 64, GROUP_SIZES)
    with pytest.raises(RuntimeUnsupported, match=rf"multiple of the group size 64, {have}. Leave out --kv-bits$"):
        check_kv_bits(model, 64)
