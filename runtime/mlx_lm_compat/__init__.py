"""The one place that knows what mlx-lm does not promise: names beyond ``mlx_lm``'s own ``__all__``, and how it works.

mlx-lm is pinned to 0.32. `tests/runtime/test_mlx_lm_compat.py` checks that the names are there with the parameters that
we use, that no other module of the package imports them, and that what is followed here has not changed: the insides of
its caches (`windows`), and what its models do with several tokens at once (`pass_size`).
"""

from typing import Any

import mlx_lm
from mlx_lm import sample_utils
from mlx_lm.generate import GenerationResponse, generate_step, generation_stream, maybe_quantize_kv_cache, wired_limit
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.models.rope_utils import DynamicNTKScalingRoPE
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import get_total_parameters, quantize_model, sharded_load
from mlx_lm.utils import load_model as load_parameters


def form_of_calls(tokenizer: TokenizerWrapper) -> str:
    """The form in which a model writes calls of tools: the name of mlx-lm's parser; empty where it has none."""
    return str(getattr(tokenizer.tool_parser, "__module__", "")).rpartition(".")[2]
