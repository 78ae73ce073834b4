"""Whether a draft model's ids mean what the target's mean, so that its drafts need no translation."""

from collections.abc import Mapping

from spectool import RuntimeUnsupported


def require_same_vocabulary(draft: Mapping[str, int], target: Mapping[str, int]) -> None:
    """Check that two tokenizers (``get_vocab()`` of each) give the same id to every token they share.

    Tokens that only one of them has are allowed: models of one family differ in added tokens.

    Raises:
        RuntimeUnsupported: They disagree about a token, or share fewer than half of theirs.
    """
    shared = draft.keys() & target.keys()
    wrong = sorted(token for token in shared if draft[token] != target[token])
    if wrong:
        token = wrong[0]
        raise RuntimeUnsupported(
            f"draft model: expected the target's token ids, got {len(wrong)} different ones "
            f"({token!r} is {draft[token]} in the draft, {target[token]} in the target). "
            "Use a draft model with the target's tokenizer."
        )
    if 2 * len(shared) < max(len(draft), len(target)):
        raise RuntimeUnsupported(
            f"draft model: expected the target's vocabulary ({len(target)} tokens), got one of "
            f"{len(draft)} with {len(shared)} in common. Use a draft model with the target's tokenizer."
        )


def has_same_vocabulary(draft: Mapping[str, int], target: Mapping[str, int]) -> bool:
    """Say whether `require_same_vocabulary` would pass."""
    try:
        require_same_vocabulary(draft, target)
    except RuntimeUnsupported:
        return False
    return True
