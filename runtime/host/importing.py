"""mlx-lm itself, imported where a process may open fewer files than it asks for."""

import resource
from typing import Any


def _imported() -> Any:
    """Import mlx-lm, which raises the limit of open files and fails where the hard limit is below 4,096.

    That many are needed for models in thousands of files. A limit that cannot be had is raised as far as it can be.
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


mlx_lm = _imported()
