"""Where drafts end because mlx-lm reads several tokens at once otherwise than one by one.

*Dynamic scaling (NTK)*: once the text is longer than the model was made for, all tokens of a pass are rotated as the
text needs that ends with the pass.

*Phi-3-small*: the blocks that its attention leaves out are counted from the end of the pass, and tokens of a pass see
those after them in the same block.
"""

import warnings
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


def warn_where_drafts_end(model: Any, held: int, max_tokens: int) -> None:
    """Warn if a text that begins with ``held`` tokens may grow, by ``max_tokens`` (-1: any number), beyond that."""
    until = exact_until(model)
    if until is not None and (max_tokens < 0 or held + max_tokens > until):
        length = f"{until:,} token{'s' * (until > 1)}"
        warnings.warn(
            (f"drafts end where the text is {length} long" if until else "decoding goes on without drafts")
            + ", because mlx-lm reads several tokens of this model at once otherwise than one by one, "
            "so that drafts would change the text",
            RuntimeWarning,
            stacklevel=3,
        )
