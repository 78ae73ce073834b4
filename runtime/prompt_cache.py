"""Prompts that ``mlx_lm.cache_prompt`` has read and saved, for ``generate`` to continue."""

import shlex
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import flatten, lengths, require_cache_of
from spectool.runtime.groups.link import processes_of
from spectool.runtime.mlx_lm_compat import cache as mlx_lm_cache

_TRIED = (8, 1, 1)  # tokens of passes that show whether a cache can be continued
_GROUP_SIZES = (32, 64, 128)  # sizes that MLX has; 0 would end the process
_MOST = 1 << 30  # tokens in a cache; MLX counts positions in 32 bits


def load_prompt_cache(path: Path, model: Any, name: str, kv_bits: int | None = None) -> list[Any]:
    """The prompt cache in the file ``path``, after short passes of ``model`` that show that it can be continued.

    ``name`` is the model's directory or hub id, which mlx-lm records. The cache will be quantised to ``kv_bits``, if it
    is not yet.

    Raises:
        RuntimeUnsupported: The file holds no prompt cache, a damaged one, or one of another model.
    """
    if (count := processes_of(model)) > 1:
        raise RuntimeUnsupported(f"{path}: a saved prompt is that of one process, and the model is spread over {count}")
    try:
        if not path.is_file():  # opening a pipe would wait for its writer
            raise FileNotFoundError("no regular file has this name")
        cache: list[Any]
        cache, metadata = mlx_lm_cache.load_prompt_cache(str(path), return_metadata=True)
        tried = mlx_lm_cache.load_prompt_cache(str(path))
        recorded = str(metadata.get("model", name))
        own = name, str(Path(name).absolute()), str(Path(name).resolve())
        if recorded not in own and str(Path(recorded).absolute()) not in own:  # a stranger's path is not followed
            raise ValueError(f"one of {recorded}")
        require_cache_of(model, cache)
        if len(held := lengths(cache)) > 1:
            raise ValueError(f"layers that hold {' and '.join(map(str, sorted(held)))} tokens")
        for leaf in flatten(cache):
            bits, group_size = getattr(leaf, "bits", kv_bits), getattr(leaf, "group_size", 64)
            if kv_bits not in (None, bits):
                raise ValueError(f"one quantised to {bits} bits, where --kv-bits {kv_bits} is given")
            if group_size not in _GROUP_SIZES:
                raise ValueError(f"one quantised in groups of {group_size}")
            counts = [number for number in leaf.state if isinstance(number, int)]
            if any(not 0 <= number < _MOST for number in counts):
                raise ValueError(f"a count of tokens out of range, {min(counts)} or {max(counts)}")
            parts: Any = tree_flatten([getattr(leaf, "keys", None), getattr(leaf, "values", None)])
            if len({part.shape[-2] for _, part in parts if part is not None}) > 1:
                raise ValueError("keys and values of different numbers of tokens")
        for rows in _TRIED:
            mx.eval(model(mx.zeros((1, rows), dtype=mx.int32), cache=tried))
    except Exception as error:  # a damaged file can fail in any way, here or in the model
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        again = ["mlx_lm.cache_prompt", "--model", name, "--prompt-cache-file", str(path), "--prompt"]
        raise RuntimeUnsupported(
            f"{path}: expected a saved prompt of {name}, got {reason}. Save it again: {shlex.join(again)} …"
        ) from error
    return cache
