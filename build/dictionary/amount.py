"""What an amount of text is good for.

The steps are taken from the table in docs/dictionaries.md, for which dictionaries of 75 KB to 10 MB of text were
replayed on other text of the same language.
"""

from typing import Literal

_TOKENS_PER_WORD = 2  # of sample:pl 2.2 with Gemma 3, 2.9 with Bielik 11B
_DEMONSTRATION, _USEFUL = 100_000, 1_000_000


def amount_of_text(counted: int, unit: Literal["tokens", "words"] = "tokens") -> str:
    """A sentence about how much a dictionary of this much text saves.

    >>> amount_of_text(24_597)
    '24,597 tokens: enough for a demonstration. Expect gains from about a million tokens'
    """
    tokens = counted * (_TOKENS_PER_WORD if unit == "words" else 1)
    million = f"a million {unit}" if unit == "tokens" else "half a million words"
    if tokens < _DEMONSTRATION:
        said = f"enough for a demonstration. Expect gains from about {million}"
    elif tokens < _USEFUL:
        said = f"enough for part of the gain. Expect more from {million} on"
    else:
        said = "enough for a useful dictionary. Ten times as much text saves more passes, though not ten times as many"
    return f"{counted:,} {unit}: {said}"
