"""Cycles as coloured or marked text: which tokens were guessed, which guesses were thrown away; and who guessed them.

A character may be spread over several tokens, also over tokens of two cycles. Text is shown
once its bytes are complete, and once it is certain that no stop string begins with it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from spectool.runtime.decoding.drafter import Cycle, accepted_length
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.stop_strings import StopStrings

Decode = Callable[[Sequence[int]], str]

Styles = Mapping[str, Callable[[str], str]]
COLOURS: Styles = {
    "accepted": partial(click.style, fg="green"),
    "rejected": partial(click.style, fg="red", strikethrough=True),
    "corrected": partial(click.style, fg="yellow"),
    "bonus": partial(click.style, fg="cyan"),
    "undrafted": str,
}
MARKS: Styles = {
    "accepted": "[{}]".format,
    "rejected": "[-{}-]".format,
    "corrected": "{{{}}}".format,
    "bonus": "<{}>".format,
    "undrafted": str,
}
"""For files and pipes, where colours would be control characters."""
REPLACEMENT = "\ufffd"
# Tokens of shown text that a decoder needs to see, to tell a space inside a text from one at its start.
CONTEXT_TOKENS = 8
# A character has at most 4 bytes: more tokens than this without an end are bytes that are no text.
MOST_HELD = 4


def legend(styles: Styles = COLOURS) -> str:
    """Return one line that explains the styles."""
    return "  ".join(style(name) for name, style in styles.items())


class Display:
    """Shows one cycle after the other; what is held back comes with a later one.

    Attributes:
        shown: The last tokens whose text is shown.
        held: Committed tokens after them whose last character is incomplete.
    """

    def __init__(
        self, decode: Decode, prompt: Sequence[int] = (), styles: Styles = COLOURS, stop_strings: Sequence[str] = ()
    ) -> None:
        """Go on after ``prompt``.

        Args:
            decode: Text of token ids, with U+FFFD for incomplete characters.
            prompt: Token ids before the first cycle.
            styles: `COLOURS` or `MARKS`.
            stop_strings: Texts that end the generation: nothing is shown from the first of them on.
        """
        self._decode, self._styles, self._stops = decode, styles, StopStrings(stop_strings)
        self._waiting: list[tuple[str, str]] = []  # fates and texts that may belong to a stop string
        self._stopped = False
        self.shown, self.held = tuple(prompt[-CONTEXT_TOKENS:]), tuple[int, ...]()

    def render(self, cycle: Cycle) -> str:
        """Return the text of ``cycle``, every token in the style of its fate.

        Rejected draft tokens stand before the token that the target put in their place.
        """
        drafted = min(cycle.accepted, len(cycle.committed))
        own = cycle.committed[drafted:]
        rejected = cycle.proposal[cycle.accepted :] if own else ()
        fate = "corrected" if rejected else "bonus" if cycle.proposal else "undrafted"
        parts = [("accepted", self._advance(token)) for token in cycle.committed[:drafted]]
        if rejected:
            parts.append(("rejected", self._whole(rejected)))
        parts += [(fate, self._advance(token)) for token in own]
        return self._released(parts)

    def finish(self) -> str:
        """Return what is still held back at the end of a generation, incomplete bytes left out."""
        return self._released([("undrafted", self._whole(()))], last=True)

    def _released(self, parts: Sequence[tuple[str, str]], last: bool = False) -> str:
        """Return what can be shown of the fates and texts that wait, now that ``parts`` follow, in their styles."""
        left, shown = 0, ""
        for fate, text in parts:
            if self._stopped:
                break
            self._waiting += [(fate, text)] if text else []
            if fate != "rejected":
                certain, self._stopped = self._stops.add(text, last)
                left += len(certain)
        while self._waiting and (left or (last and not self._stopped)):
            fate, text = self._waiting.pop(0)
            if fate != "rejected":
                if len(text) > left:
                    self._waiting.insert(0, (fate, text[left:]))
                text = text[:left]
                left -= len(text)
            shown += self._styles[fate](text)
        return shown

    def _advance(self, token: int) -> str:
        """Return the text that ``token`` completes; empty while a character is incomplete."""
        text, held = self._text_after((token,)), (*self.held, token)
        if text.endswith(REPLACEMENT) and len(held) < MOST_HELD:
            self.held = held
            return ""
        self.shown, self.held = (*self.shown, *held)[-CONTEXT_TOKENS:], ()
        return text.replace(REPLACEMENT, "")

    def _whole(self, tokens: Sequence[int]) -> str:
        """Return what `_text_after` does, incomplete bytes left out."""
        return self._text_after(tokens).replace(REPLACEMENT, "")

    def _text_after(self, tokens: Sequence[int]) -> str:
        """Return the text of the held tokens and ``tokens``, read after what is shown."""
        before = self._decode(self.shown) if self.shown else ""
        after = self._decode((*self.shown, *self.held, *tokens))
        return after[accepted_length(before, after) :]


def by_source(statistics: DraftStatistics) -> dict[str, dict[str, int]]:
    """Return proposed and accepted draft tokens by source, the source of most accepted ones first."""
    names = sorted(statistics.proposed_by, key=lambda name: -statistics.accepted_by[name])
    return {
        name: {"proposed": statistics.proposed_by[name], "accepted": statistics.accepted_by[name]} for name in names
    }


def spelled(sources: dict[str, Any]) -> str:
    """Spell what `by_source` returns.

    >>> spelled({"history": {"proposed": 16, "accepted": 12}, "dictionary": {"proposed": 15, "accepted": 3}})
    'history 12 of 16 (80% of the gain), dictionary 3 of 15 (20%)'
    """
    gain = sum(counts["accepted"] for counts in sources.values())
    lines: list[str] = []
    for name, counts in sources.items():
        share = f" ({counts['accepted'] / gain:.0%}{'' if lines else ' of the gain'})" if gain else ""
        lines.append(f"{name} {counts['accepted']} of {counts['proposed']}{share}")
    return ", ".join(lines)
