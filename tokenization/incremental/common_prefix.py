"""The common prefix of two lists of tokens."""

from collections.abc import Sequence


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Number of tokens that two lists have in common at their beginning.

    >>> common_prefix([4, 5, 6], [4, 5, 9, 1])
    2
    """
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
