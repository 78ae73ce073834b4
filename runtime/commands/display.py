"""Cycles as coloured or marked text: which tokens were guessed, which guesses were thrown away; and who guessed them.

A character may be spread over several tokens, also over tokens of two cycles. Text is shown
once its bytes are complete; what is held back travels to the next call in ``Tail``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from spectool.runtime.decoding.drafter import Cycle, accepted_length
from spectool.runtime.decoding.statistics import DraftStatistics

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


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the shown text ends."""

    shown: tuple[int, ...] = ()  # the last tokens whose text is shown
    held: tuple[int, ...] = ()  # committed tokens after them whose last character is incomplete


def legend(styles: Styles = COLOURS) -> str:
    """Return one line that explains the styles."""
    return "  ".join(style(name) for name, style in styles.items())


def render(cycle: Cycle, decode: Decode, tail: Tail = Tail(), styles: Styles = COLOURS) -> tuple[str, Tail]:
    """Return the text of ``cycle``, every token in the style of its fate, and the tail for the next call.

    Rejected draft tokens stand before the token that the target put in their place.

    Args:
        cycle: Proposal and committed tokens.
        decode: Text of token ids, with U+FFFD for incomplete characters.
        tail: What the call for the cycle before returned; ``Tail()`` or ``Tail(prompt)`` at first.
        styles: `COLOURS` or `MARKS`.
    """

    def add(text: str, fate: str) -> None:
        if text:
            parts.append(styles[fate](text))

    drafted = min(cycle.accepted, len(cycle.committed))
    parts: list[str] = []
    for token in cycle.committed[:drafted]:
        text, tail = _advance(token, decode, tail)
        add(text, "accepted")
    own = cycle.committed[drafted:]
    rejected = cycle.proposal[cycle.accepted :] if own else ()
    fate = "corrected" if rejected else "bonus" if cycle.proposal else "undrafted"
    if rejected:
        add(_text_after(rejected, decode, tail).replace(REPLACEMENT, ""), "rejected")
    for token in own:
        text, tail = _advance(token, decode, tail)
        add(text, fate)
    return "".join(parts), tail


def finish(decode: Decode, tail: Tail) -> str:
    """Return what is still held back at the end of a generation, incomplete bytes left out."""
    return _text_after((), decode, tail).replace(REPLACEMENT, "")


def _advance(token: int, decode: Decode, tail: Tail) -> tuple[str, Tail]:
    """Return the text that ``token`` completes (empty while a character is incomplete) and the new tail."""
    text = _text_after((token,), decode, tail)
    held = (*tail.held, token)
    if text.endswith(REPLACEMENT) and len(held) < MOST_HELD:
        return "", Tail(tail.shown, held)
    return text.replace(REPLACEMENT, ""), Tail((*tail.shown, *held)[-CONTEXT_TOKENS:], ())


def _text_after(tokens: Sequence[int], decode: Decode, tail: Tail) -> str:
    """Return the text of the held tokens and ``tokens``, read after what is shown."""
    before = decode(tail.shown) if tail.shown else ""
    after = decode((*tail.shown, *tail.held, *tokens))
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
