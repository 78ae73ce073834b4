"""The common prefix of two lists of tokens."""

from collections.abc import Sequence

_AT_ONCE = 256  # tokens that are compared at once, as long as they are equal


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Number of tokens that two lists have in common at their beginning.

    >>> common_prefix([4, 5, 6], [4, 5, 9, 1])
    2
    """
    count = 0
    while (block := list(one[count : count + _AT_ONCE])) and block == list(other[count : count + _AT_ONCE]):
        count += len(block)
    for left, right in zip(one[count : count + _AT_ONCE], other[count : count + _AT_ONCE], strict=False):
        if left != right:
            break
        count += 1
    return count
