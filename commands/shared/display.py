"""Cycles as coloured or marked text, which shows the draft tokens that were accepted and rejected."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from spectool.commands.shared.console import without_colours
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle

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


def styles_of_output() -> Styles:
    """Colours if the output is a terminal that may have them (https://no-color.org), marks otherwise."""
    return IN_COLOUR if sys.stdout.isatty() and not without_colours() else IN_MARKS


def legend(styles: Styles = IN_COLOUR) -> str:
    """A line that explains the styles."""
    return "  ".join(style(name) for name, style in styles.items())


class Display:
    """Shows cycles one after the other, and each character once all of its bytes are there."""

    def __init__(self, tokenizer: Any, styles: Styles = IN_COLOUR, *, own_text: bool = False) -> None:
        """Show what is written in the tokens of mlx-lm's ``TokenizerWrapper``; ``own_text`` is that of `AnswerText`."""
        from spectool.runtime.decoding.answer_text import AnswerText

        ends = frozenset(tokenizer.eos_token_ids)
        self._styles, self._text = styles, AnswerText(tokenizer, stop_tokens=ends, own_text=own_text)

    def render(self, cycle: Cycle) -> str:
        """The text of ``cycle``, with rejected draft tokens before the token that the target chose instead."""
        drafted = min(cycle.accepted, len(cycle.committed))
        own = cycle.committed[drafted:]
        rejected = cycle.proposal[cycle.accepted :] if own else ()
        fate = "corrected" if rejected else "bonus" if cycle.proposal else "undrafted"
        parts = [("accepted", self._text.add(token)) for token in cycle.committed[:drafted]]
        if rejected:
            parts.append(("rejected", self._text.preview(rejected)))
        parts += [(fate, self._text.add(token)) for token in own]
        return "".join(self._styles[fate](text) for fate, text in parts if text)

    def echo(self, cycle: Cycle) -> None:
        """Print the text of ``cycle``."""
        click.echo(self.render(cycle), nl=False)

    def finish(self) -> str:
        """The text that is held back at the end of a generation."""
        return self._text.finish()


def by_drafter(statistics: DraftStatistics) -> dict[str, dict[str, int]]:
    """Numbers of proposed and accepted draft tokens by drafter, the one with most accepted tokens first."""
    names = sorted(statistics.proposed_by, key=lambda name: -statistics.accepted_by[name])
    return {
        name: {"proposed": statistics.proposed_by[name], "accepted": statistics.accepted_by[name]} for name in names
    }
