"""The common prefix of two lists of tokens."""

from collections.abc import Sequence

_BLOCK = 512  # tokens that are compared at once


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Number of tokens that two lists have in common at their beginning.

    >>> common_prefix([4, 5, 6], [4, 5, 9, 1])
    2
    """
    length, count = min(len(one), len(other)), 0
    while count + _BLOCK <= length and list(one[count : count + _BLOCK]) == list(other[count : count + _BLOCK]):
        count += _BLOCK
    while count < length and one[count] == other[count]:
        count += 1
    return count
