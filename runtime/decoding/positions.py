"""Where drafts end because positions depend on how many tokens a pass has.

With dynamic scaling (NTK), mlx-lm rotates all tokens of a pass as the text needs that ends with the pass, once it is
longer than the model was made for. Tokens that are fed at once are then rotated otherwise than one by one.
"""

import warnings
from typing import Any

from spectool.runtime.mlx_lm_compat import DynamicNTKScalingRoPE
from spectool.runtime.per_model import once_per_model


@once_per_model
def same_positions_until(model: Any) -> int | None:
    """Length of the text, in tokens, up to which passes of any size give the same positions; None for no limit."""
    modules = model.modules() if hasattr(model, "modules") else ()
    limits = [module.max_position_embeddings for module in modules if isinstance(module, DynamicNTKScalingRoPE)]
    return min(limits, default=None)


def warn_where_drafts_end(model: Any, held: int, max_tokens: int) -> None:
    """Warn if a text that begins with ``held`` tokens may grow, by ``max_tokens`` (-1: any number), beyond that."""
    until = same_positions_until(model)
    if until is not None and (max_tokens < 0 or held + max_tokens > until):
        warnings.warn(
            f"drafts end where the text is {until:,} tokens long: from there on, the positions of this model depend on "
            "how many tokens a pass has, so drafts would change the text",
            RuntimeWarning,
            stacklevel=3,
        )
