"""What `spectool align` and `spectool inspect` say of a pair of tokenizers, and whether to use it."""

from typing import Any

from spectool import SpectoolError
from spectool.artifacts.alignment import SIDES
from spectool.artifacts.alignment_report import LOST, checked_sides
from spectool.artifacts.manifest import Manifest


def judgement(manifest: Manifest) -> dict[str, Any]:
    """The figures of an alignment that decide about it, and the verdict: ``usable`` is None where nothing tells."""
    s = manifest.statistics
    try:
        usable, verdict = judge(manifest)
        counts = {side: s[f"{side}_to_{other}"] for side, other in SIDES}
        found = {
            "lossy texts": {side: each["lossy_texts"] for side, each in counts.items()},
            "lost joins": {side: check.share for side, _, check in checked_sides(manifest)},
        }
    except (SpectoolError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        usable, verdict, found = None, "none, because the report of this alignment lacks a figure: align again", {}
    return found | {"usable": usable, "verdict": verdict}


def judge(manifest: Manifest) -> tuple[bool | None, str]:
    """Whether a pair is fine to use.

    It is not if joining loses drafts (`LOST`), or if no text of the sample survives in both tokenizers.
    """
    s = manifest.statistics
    draft, target = (s[f"{side}_to_{other}"] for side, other in SIDES)
    if any(check.share > LOST for _, _, check in checked_sides(manifest)):
        return False, "do not use this pair: translated tokens differ too often from the tokenizer's own encoding"
    if draft["lossy_texts"] > draft["texts"]:
        limits = (f"the {side}'s {', '.join(s[side]['limits'])}" for side, _ in SIDES if s[side]["limits"])
        return None if draft["texts"] else False, (
            f"do not use this pair for such text, which a tokenizer does not keep ({'; '.join(limits)}): a draft that "
            "differs from the target's text is never accepted. Choose another draft, or text that both keep"
        )
    if not draft["texts"]:
        return None, "nothing can be said about this pair: no passage of the text is kept by both tokenizers"
    length = target["tokens"] / draft["tokens"]
    return True, (
        f"this pair is fine to use: on this text, a draft token is as long as {length:.2f} target tokens. `spectool "
        "bench` measures how often a real draft is right"
    )
