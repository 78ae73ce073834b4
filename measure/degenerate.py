"""Text that no one would want, and that drafts are always right about: it loops, or echoes its prompt.

Small models, and models that do not know a language, write such text, above all at temperature 0. Speeds measured on it
say nothing about real text. docs/measuring.md says which outputs of real models the two limits come from.
"""

from collections.abc import Sequence

from spectool.tokenization.incremental.common_prefix import common_prefix

LOOPS, ECHOES = "loops", "echoes its prompt"
_LOOPING = 0.45  # share of runs of `_RUN` tokens that occur before: tables and code have up to 0.4, loops 0.6 and more
_ECHOED = 0.25  # share of an output that is the beginning of its prompt: a heading that repeats a question has 0.1
_RUN = 4  # tokens
_SHORT = 16  # characters, with which an answer may well begin as its question does


def fault_of(output: Sequence[int], text: str, prompt: str) -> str | None:
    """`LOOPS` or `ECHOES` if an output, as token ids and as text, is no real answer to a prompt, else None."""
    # Good text may begin to loop, so the second half counts by itself as well.
    if max(repeated_share(output), repeated_share(output[len(output) // 2 :])) >= _LOOPING:
        return LOOPS
    written, asked = (" ".join(each.casefold().split()) for each in (text, prompt))
    shared = common_prefix(written, asked)
    # An answer may begin as its question does. An echo repeats most of the question, and has little else to say.
    return ECHOES if shared >= max(_ECHOED * len(written), min(len(asked), len(written)) / 2, _SHORT) else None


def repeated_share(output: Sequence[int]) -> float:
    """The share of runs of four tokens that occur earlier in the output.

    >>> repeated_share([1, 2, 3, 4, 5, 6]), repeated_share([1, 2] * 6)
    (0.0, 0.7777777777777778)
    """
    runs = [tuple(output[place : place + _RUN]) for place in range(len(output) - _RUN + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0
