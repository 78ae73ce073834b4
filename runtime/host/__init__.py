"""The one place that knows what mlx-lm does not promise: names beyond ``mlx_lm``'s own ``__all__``.

In: mlx-lm 0.32, to which the project is pinned. Out: the same names under ours. `tests/runtime/test_host.py` lists
them, checks that they are there with the parameters that we use, and that no other module imports them.
"""

from spectool.runtime.host.importing import mlx_lm as mlx_lm
