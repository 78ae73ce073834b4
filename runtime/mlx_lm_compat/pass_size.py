"""Where drafts end because mlx-lm reads several tokens at once otherwise than one by one.

*Dynamic scaling (NTK)*: once the text is longer than the model was made for, all tokens of a pass are rotated as the
text needs that ends with the pass.

*Phi-3-small*: the blocks that its attention leaves out are counted from the end of the pass, and tokens of a pass see
those after them in the same block.
"""

from typing import Any

from spectool.runtime.mlx_lm_compat import DynamicNTKScalingRoPE
from spectool.runtime.per_model import once_per_model


@once_per_model
def exact_until(model: Any) -> int | None:
    """Length of the text, in tokens, up to which passes of any size compute the same; None for no limit."""
    if getattr(model, "model_type", None) == "phi3small":
        return 0
    modules = model.modules() if hasattr(model, "modules") else ()
    limits = [module.max_position_embeddings for module in modules if isinstance(module, DynamicNTKScalingRoPE)]
    return min(limits, default=None)
