"""What generation needs of mlx-lm: caches, streams, samplers, and its own loop to compare with."""

from mlx_lm import sample_utils
from mlx_lm.generate import (
    DEFAULT_QUANTIZED_KV_START,
    GenerationResponse,
    generate_step,
    generation_stream,
    maybe_quantize_kv_cache,
    wired_limit,
)
from mlx_lm.models import cache
from mlx_lm.models.cache import ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache, make_prompt_cache
from mlx_lm.tokenizer_utils import TokenizerWrapper
