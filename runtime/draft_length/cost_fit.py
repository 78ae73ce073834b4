"""The published cost model of speculative decoding, fitted to this machine's own times as they are measured."""

from collections.abc import Callable, Mapping

from spectool.runtime.draft_length.cost_model import CostModel


def fit_cost_model(passes: Mapping[int, float], draft: Callable[[int], float]) -> CostModel | None:
    """Fit the model to measured times by least squares: r to the drafter's, then beta to what r leaves.

    Args:
        passes: Seconds of a target pass by the number of tokens in it; 1 is plain decoding.
        draft: Seconds of the drafter by the number of tokens drafted.

    Returns:
        The model, neither constant negative; None while plain passes or passes with drafts are not measured.
    """
    lengths = [size - 1 for size in passes if size > 1]
    if 1 not in passes or not lengths:
        return None
    plain = passes[1]
    steps = sum((k + 1) ** 2 for k in lengths)
    r = sum(draft(k) * (k + 1) for k in lengths) / steps / plain
    rest = {k: (draft(k) + passes[k + 1]) / plain - 1 - r * (k + 1) for k in lengths}
    beta = sum(left * k * k for k, left in rest.items()) / sum(k**4 for k in lengths)
    return CostModel(r, max(0.0, beta))
