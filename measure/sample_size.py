"""How much a run has to measure before it says whether drafting pays."""

FEWEST = 6  # prompts of an interval of 95%: 5 have 31 subsets, and none of their means bounds 2.5%
ENOUGH = 20  # prompts to ask for
LEAST = 8  # tokens: the speed of a shorter output is chance
_TOKENS = 128  # after each prompt, to ask for


def too_short(prompts: int) -> str:
    """Why a run of this many prompts cannot tell whether drafting pays, and what to run instead; empty if it can.

    >>> too_short(6)
    ''
    """
    if prompts >= FEWEST:
        return ""
    return (
        f"this run is too short to tell whether drafting pays: it has {prompts} prompt{'s' * (prompts != 1)} with "
        f"{LEAST} tokens or more in every output, and an interval needs {FEWEST}. Run `spectool bench` again with "
        f"another -o and {ENOUGH} prompts or more of each language (--count {ENOUGH} --tokens {_TOKENS})"
    )
