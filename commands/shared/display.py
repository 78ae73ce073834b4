"""Cycles as coloured or marked text, which shows the draft tokens that were accepted and rejected.

A character may be spread over several tokens, even of two cycles, so text is shown once its bytes are complete.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from spectool.commands.shared.console import without_colours
from spectool.runtime.decoding.drafter import Cycle
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.tokenization.incremental.common_prefix import common_prefix

Decode = Callable[[Sequence[int]], str]

Styles = Mapping[str, Callable[[str], str]]
IN_COLOUR: Styles = {
    "accepted": partial(click.style, fg="green"),
    "rejected": partial(click.style, fg="red", strikethrough=True),
    "corrected": partial(click.style, fg="yellow"),
    "bonus": partial(click.style, fg="cyan"),
    "undrafted": str,
}
IN_MARKS: Styles = {
    "accepted": "[{}]".format,
    "rejected": "[-{}-]".format,
    "corrected": "{{{}}}".format,
    "bonus": "<{}>".format,
    "undrafted": str,
}
"""For files and pipes, where colours would be control characters, and for people who want none."""
REPLACEMENT = "\ufffd"
CONTEXT_TOKENS = 8  # shown tokens that are decoded again, because decoders drop a space at the start of a text
MOST_HELD = 4  # a character has at most 4 bytes, so more tokens than this are not text


def styles_of_output() -> Styles:
    """Colours if the output is a terminal that may have them (https://no-color.org), marks otherwise."""
    return IN_COLOUR if sys.stdout.isatty() and not without_colours() else IN_MARKS


def legend(styles: Styles = IN_COLOUR) -> str:
    """A line that explains the styles."""
    return "  ".join(style(name) for name, style in styles.items())


class Display:
    """Shows cycles one after the other.

    Attributes:
        shown: The last tokens whose text is shown.
        held: Committed tokens after them whose last character is incomplete.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int] = (), styles: Styles = IN_COLOUR) -> None:
        """Show what comes after the tokens of ``prompt``; ``decode`` has U+FFFD for incomplete characters."""
        self._decode, self._styles = decode, styles
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
        return "".join(self._styles[fate](text) for fate, text in parts if text)

    def echo(self, cycle: Cycle) -> None:
        """Print the text of ``cycle``."""
        click.echo(self.render(cycle), nl=False)

    def finish(self) -> str:
        """The text that is held back at the end of a generation, without incomplete bytes."""
        return self._whole(())

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
        return after[common_prefix(before, after) :]


def by_drafter(statistics: DraftStatistics) -> dict[str, dict[str, int]]:
    """Numbers of proposed and accepted draft tokens by drafter, the one with most accepted tokens first."""
    names = sorted(statistics.proposed_by, key=lambda name: -statistics.accepted_by[name])
    return {
        name: {"proposed": statistics.proposed_by[name], "accepted": statistics.accepted_by[name]} for name in names
    }


def gains(drafters: dict[str, Any]) -> str:
    """The result of `by_drafter` in words.

    >>> gains({"history": {"proposed": 16, "accepted": 12}, "dictionary": {"proposed": 15, "accepted": 3}})
    'history 12 of 16 (80% of the gain), dictionary 3 of 15 (20%)'
    """
    gain = sum(counts["accepted"] for counts in drafters.values())
    lines: list[str] = []
    for name, counts in drafters.items():
        share = f" ({counts['accepted'] / gain:.0%}{'' if lines else ' of the gain'})" if gain else ""
        lines.append(f"{name} {counts['accepted']} of {counts['proposed']}{share}")
    return ", ".join(lines)
