"""Models that are spread over several processes, as `mlx_lm.utils.sharded_load` does under ``mlx.launch``."""

from typing import Any

from spectool import RuntimeUnsupported
from spectool.runtime.per_model import once_per_model


@once_per_model
def processes_of(model: Any) -> int:
    """Number of processes that a model is spread over, layer by layer or inside its layers; 1 if it is not."""
    modules = model.modules() if hasattr(model, "modules") else ()
    sizes = [1]
    for module in modules:
        group: Any = getattr(module, "group", None)
        sizes += [getattr(module, "pipeline_size", 1), group.size() if hasattr(group, "size") else 1]
    return max(sizes)


def require_same_lengths(model: Any) -> None:
    """Refuse automatic draft lengths for a model that is spread over processes, which would not agree on them."""
    if (count := processes_of(model)) > 1:
        raise RuntimeUnsupported(
            f"num_draft_tokens: the model is spread over {count} processes, and each would choose its own lengths. "
            "Give a number, such as 4 (--num-draft-tokens 4), or 0 to decode plainly"
        )
