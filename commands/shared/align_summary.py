"""What `spectool align` and `spectool inspect` print of a pair of tokenizers: figures, and whether to use the pair."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from spectool.artifacts.alignment import SIDES
from spectool.artifacts.manifest import Manifest
from spectool.build.alignment.check import LOST, checked_sides

_K = "4"  # draft tokens a cycle that the verdict is about
_FINE = 0.7  # of the tokens per pass that a draft could give if nothing were lost in translation
_POOR = 0.4  # likewise
_STRING_FREE = 0.99  # of the text of either side: what is left is not worth a word
_NAMED = 2  # of a tokenizer's limits in a sentence
TEXT_WIDTH = 100  # characters of a line of the verdict


class Verdict(NamedTuple):
    """Whether a draft of one tokenizer can serve a target of the other."""

    usable: bool | None  # None where the text does not tell
    verdict: str  # in one or two sentences


def summarize(manifest: Manifest) -> dict[str, Any]:
    """The figures of an alignment that `spectool align` prints, in reading order."""
    s, inputs = manifest.statistics, manifest.inputs
    facts = {
        f"{side} tokenizer": f"{found['name']}: {s[side]['kind']}, {found['size']:,} ids"
        for side, found in manifest.tokenizers.items()
    }
    facts["text"] = f"{inputs['corpus']}: {inputs['documents']:,} documents, {inputs['characters']:,} characters"
    if left_out := s["draft_to_target"]["lossy_texts"]:
        facts["text"] += f"; {left_out:,} of the sample are left out, because one of the tokenizers does not keep them"
    return facts | figures_of_pair(s)


def figures_of_pair(statistics: Mapping[str, Any]) -> dict[str, str]:
    """How drafts are translated between two tokenizers, and what that leaves of a perfect draft."""
    measured = {"ceiling": _ceiling(statistics)} if "ceiling" in statistics else {}
    return {
        **{f"{side} to {other}": _direction(statistics, side, other) for side, other in SIDES},
        **measured,
    }


def judge(manifest: Manifest) -> Verdict:
    """Whether a pair is fine to use.

    It is not if joining loses drafts (`LOST`), or if no text of the sample survives in both tokenizers. Otherwise it
    depends on the share of a perfect draft's tokens per pass that is left after translation.
    """
    s = manifest.statistics
    if lost := [(side, found) for side, _, found in checked_sides(manifest) if found.share > LOST]:
        where = " and ".join(f"at {found.share:.1%} of places in the {side}'s ids" for side, found in lost)
        return Verdict(
            False, f"do not use this pair: translated tokens differ from the tokenizer's own encoding, {where}"
        )
    draft, target = (s[f"{side}_to_{other}"] for side, other in SIDES)
    if _mostly_left_out(s):
        return Verdict(None if draft["texts"] else False, _left_out(s))
    if not (reached := s["ceiling"][s["default"]][_K]):
        why = "no passage of the text is kept by both tokenizers" if draft["texts"] else "the text is empty"
        return Verdict(None, f"nothing can be said about this pair: {why}")
    share = reached / (1 + int(_K) * target["tokens"] / draft["tokens"])
    handed, returned = (_free(counts) for counts in (draft, target))
    through_text = min(counts["string_free"] or 0 for counts in (draft, target)) < _STRING_FREE
    rest = "; the rest is encoded again as text, which is slower but just as accurate" if through_text else ""
    how = (
        f"{handed} of the draft's text and {returned} of the target's are translated by token id alone{rest}. A "
        f"perfect draft of {_K} tokens reaches {reached:.2f} tokens per pass, {share:.0%} of what it would reach if "
        "nothing were lost in translation"
    )
    if share < _POOR:
        return Verdict(False, f"this pair is hardly worth using: {how}. Choose a draft whose tokenizer is closer")
    fine = (
        "the tokenizers fit, and this pair is fine to use" if share >= _FINE else "this pair can be used, with losses"
    )
    return Verdict(True, f"{fine}: {how}. `spectool bench` measures how often a real draft is right")


def _direction(statistics: Mapping[str, Any], side: str, other: str) -> str:
    """How tokens of one side become those of the other, and how often without strings."""
    share = f"{_free(statistics[f'{side}_to_{other}'])} without strings"
    joined = "ids are joined on ids" if statistics[other]["by_ids"] else "text is encoded again in every cycle"
    return f"{joined}; {share}"


def _free(counts: Mapping[str, Any]) -> str:
    """The share of one side's text, in runs of four tokens, that becomes the other's without strings."""
    return "an unknown share" if counts["string_free"] is None else f"{counts['string_free']:.1%}"


def _ceiling(statistics: Mapping[str, Any]) -> str:
    """Tokens per pass with a perfect draft."""
    ceiling = statistics["ceiling"][statistics["default"]]
    if _mostly_left_out(statistics) or None in ceiling.values():
        return "not counted: hardly any text of the sample is kept by both tokenizers"
    reached = ", ".join(f"{tokens:.2f}" for tokens in ceiling.values())
    return f"{reached} tokens per pass with a perfect draft of {', '.join(ceiling)} tokens"


def _mostly_left_out(statistics: Mapping[str, Any]) -> bool:
    counts = statistics["draft_to_target"]
    return bool(counts["lossy_texts"] > counts["texts"])


def _left_out(statistics: Mapping[str, Any]) -> str:
    """Why most texts of the sample were left out."""
    counts = statistics["draft_to_target"]
    left_out, every = counts["lossy_texts"], counts["texts"] + counts["lossy_texts"]
    reasons = [
        f"the {side}'s tokenizer ({'; '.join(limits[:_NAMED])}{'; …' if len(limits) > _NAMED else ''})"
        for side in ("draft", "target")
        if (limits := statistics[side]["limits"])
    ]
    begin = "little can be said about this pair" if counts["texts"] else "do not use this pair for such text"
    return (
        f"{begin}: {left_out:,} of {every:,} texts ({left_out / every:.1%}) were left out, because "
        f"{' or '.join(reasons) or 'one of the tokenizers'} does not keep their bytes. Where a draft differs in this "
        "way from the target's text, it is never accepted. Choose another draft, or text that both tokenizers keep"
    )
