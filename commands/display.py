"""Cycles as coloured or marked text: which draft tokens were accepted or rejected, and who drafted them.

A character may be spread over several tokens, even of two cycles. Text is shown once its bytes are complete and no stop
string can begin with it.
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
CONTEXT_TOKENS = 8  # shown tokens that are decoded again, because decoders drop a space at the start of a text
MOST_HELD = 4  # a character has at most 4 bytes, so more tokens than this are not text


def legend(styles: Styles = COLOURS) -> str:
    """A line that explains the styles."""
    return "  ".join(style(name) for name, style in styles.items())


class Display:
    """Shows cycles one after the other; text that is held back comes with a later one.

    Attributes:
        shown: The last tokens whose text is shown.
        held: Committed tokens after them whose last character is incomplete.
    """

    def __init__(
        self, decode: Decode, prompt: Sequence[int] = (), styles: Styles = COLOURS, stop_strings: Sequence[str] = ()
    ) -> None:
        """Show what comes after ``prompt``.

        Args:
            decode: Text of token ids, with U+FFFD for incomplete characters.
            prompt: Token ids before the first cycle.
            styles: `COLOURS` or `MARKS`.
            stop_strings: Texts that end the generation; nothing is shown from the first one on.
        """
        self._decode, self._styles, self._stops = decode, styles, StopStrings(stop_strings)
        self._waiting: list[tuple[str, str]] = []  # fates and texts that may belong to a stop string
        self._stopped = False
        self.shown, self.held = tuple(prompt[-CONTEXT_TOKENS:]), tuple[int, ...]()

    def render(self, cycle: Cycle) -> str:
        """The text of ``cycle``, with rejected draft tokens before the token that the target chose instead."""
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
        """The text that is held back at the end of a generation, without incomplete bytes."""
        return self._released([("undrafted", self._whole(()))], last=True)

    def _released(self, parts: Sequence[tuple[str, str]], last: bool = False) -> str:
        """The waiting text that can be shown now that ``parts`` follow, in the styles of its fates."""
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
        """The text that ``token`` completes, empty while a character is incomplete."""
        text, held = self._text_after((token,)), (*self.held, token)
        if text.endswith(REPLACEMENT) and len(held) < MOST_HELD:
            self.held = held
            return ""
        self.shown, self.held = (*self.shown, *held)[-CONTEXT_TOKENS:], ()
        return text.replace(REPLACEMENT, "")

    def _whole(self, tokens: Sequence[int]) -> str:
        """The text of `_text_after` without incomplete bytes."""
        return self._text_after(tokens).replace(REPLACEMENT, "")

    def _text_after(self, tokens: Sequence[int]) -> str:
        """The text of the held tokens and ``tokens``, after what is shown."""
        before = self._decode(self.shown) if self.shown else ""
        after = self._decode((*self.shown, *self.held, *tokens))
        return after[accepted_length(before, after) :]


def by_source(statistics: DraftStatistics) -> dict[str, dict[str, int]]:
    """Numbers of proposed and accepted draft tokens by drafter, the one with most accepted tokens first."""
    names = sorted(statistics.proposed_by, key=lambda name: -statistics.accepted_by[name])
    return {
        name: {"proposed": statistics.proposed_by[name], "accepted": statistics.accepted_by[name]} for name in names
    }


def spelled(sources: dict[str, Any]) -> str:
    """The result of `by_source` in words.

    >>> spelled({"history": {"proposed": 16, "accepted": 12}, "dictionary": {"proposed": 15, "accepted": 3}})
    'history 12 of 16 (80% of the gain), dictionary 3 of 15 (20%)'
    """
    gain = sum(counts["accepted"] for counts in sources.values())
    lines: list[str] = []
    for name, counts in sources.items():
        share = f" ({counts['accepted'] / gain:.0%}{'' if lines else ' of the gain'})" if gain else ""
        lines.append(f"{name} {counts['accepted']} of {counts['proposed']}{share}")
    return ", ".join(lines)
