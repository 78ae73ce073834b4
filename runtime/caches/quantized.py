"""Whether caches can be quantised."""

from collections.abc import Sequence
from typing import Any

from spectool import RuntimeUnsupported


def require_quantizable(cache: Sequence[Any], model: object) -> None:
    """Check that ``kv_bits`` can be applied to ``cache``.

    Raises:
        RuntimeUnsupported: A cache has no quantised form (mlx-lm's rotating cache fails halfway).
    """
    stuck = sorted(
        {type(entry).__name__ for entry in cache if hasattr(entry, "to_quantized") and hasattr(entry, "max_size")}
    )
    if stuck:
        kind = getattr(model, "model_type", None) or type(model).__name__
        raise RuntimeUnsupported(
            f"model type {kind}: kv_bits needs caches with a quantised form, got {', '.join(stuck)}. "
            "Generate without kv_bits."
        )
