"""The one place that knows what mlx-lm does not promise: names beyond ``mlx_lm``'s own ``__all__``, and how it works.

mlx-lm is pinned to 0.32. `tests/runtime/test_mlx_lm_compat.py` checks that the names are there with the parameters that
we use, that no other module of the package imports them, and that what is followed here has not changed: the insides of
its caches (`windows`), what its models do with several tokens at once (`pass_size`), and its filters (`filters`).
"""

import resource
from typing import Any


def _import_mlx_lm() -> Any:
    """Import mlx-lm where a process may open fewer files than it asks for.

    It raises the limit to 4,096, for models in thousands of files, and fails where the hard limit is below that. A
    limit that cannot be had is raised as far as it can be.
    """
    set_limit = resource.setrlimit

    def set_as_far_as_allowed(kind: int, limits: tuple[int, int], *others: Any) -> None:
        try:
            set_limit(kind, limits, *others)
        except (ValueError, OSError):
            soft, hard = resource.getrlimit(kind)
            set_limit(kind, (max(soft, min(limits[0], hard)), hard))

    resource.setrlimit = set_as_far_as_allowed
    try:
        import mlx_lm
    finally:
        resource.setrlimit = set_limit
    return mlx_lm


mlx_lm = _import_mlx_lm()

from mlx_lm import sample_utils
from mlx_lm.generate import (
    GenerationResponse,
    generate_step,
    generation_stream,
    maybe_quantize_kv_cache,
    wired_limit,
)
from mlx_lm.models import cache
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
from mlx_lm.utils import get_total_parameters, sharded_load
from mlx_lm.utils import load_model as load_parameters


def form_of_calls(tokenizer: TokenizerWrapper) -> str:
    """The form in which a model writes calls of tools: the name of mlx-lm's parser; empty where it has none."""
    return str(getattr(tokenizer.tool_parser, "__module__", "")).rpartition(".")[2]
