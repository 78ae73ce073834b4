"""Cycles as coloured or marked text, which shows the draft tokens that were accepted and rejected."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle

Styles = Mapping[str, Callable[[str], str]]
IN_COLOUR: Styles = {
    "accepted": partial(click.style, fg="green"),
    "rejected": partial(click.style, fg="red", strikethrough=True),
    "undrafted": str,
}
IN_MARKS: Styles = {"accepted": "[{}]".format, "rejected": "[-{}-]".format, "undrafted": str}
"""For files and pipes, where colours would be control characters, and for people who want none."""


def styles_of_output() -> Styles:
    """Colours if the output is a terminal that may have them (https://no-color.org), marks otherwise."""
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return IN_COLOUR if sys.stdout.isatty() and not unwanted else IN_MARKS


class Display:
    """Shows cycles one after the other, and each character once all of its bytes are there."""

    def __init__(self, tokenizer: Any, styles: Styles | None = None, *, own_text: bool = False) -> None:
        """Show what is written in the tokens of mlx-lm's ``TokenizerWrapper``; ``own_text`` is that of `AnswerText`."""
        from spectool.runtime.decoding.answer_text import AnswerText

        ends = frozenset(tokenizer.eos_token_ids)
        self._text = AnswerText(tokenizer, stop_tokens=ends, own_text=own_text)
        self._styles = styles or styles_of_output()

    @property
    def legend(self) -> str:
        """A line that explains the styles."""
        return "  ".join(style(name) for name, style in self._styles.items())

    def render(self, cycle: Cycle) -> str:
        """The text of ``cycle``, with rejected draft tokens before the token that the target chose instead."""
        drafted = min(cycle.accepted, len(cycle.committed))
        own = cycle.committed[drafted:]
        parts = [("accepted", self._text.add(token)) for token in cycle.committed[:drafted]]
        if own and (rejected := cycle.proposal[cycle.accepted :]):
            parts.append(("rejected", self._text.preview(rejected)))
        parts += [("undrafted", self._text.add(token)) for token in own]
        return "".join(self._styles[fate](text) for fate, text in parts if text)

    def echo(self, cycle: Cycle) -> None:
        """Print the text of ``cycle``."""
        click.echo(self.render(cycle), nl=False)

    def finish(self) -> str:
        """The text that is held back at the end of a generation."""
        return self._text.finish()


def by_drafter(statistics: DraftStatistics) -> dict[str, dict[str, int]]:
    """Numbers of proposed and accepted draft tokens by drafter, the one with most accepted tokens first."""
    proposed, accepted = statistics.proposed_by, statistics.accepted_by
    names = sorted(proposed, key=accepted.__getitem__, reverse=True)
    return {name: {"proposed": proposed[name], "accepted": accepted[name]} for name in names}
