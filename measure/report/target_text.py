"""What the target wrote: whether it goes in circles, and which tokens of a text were drafted.

A committed token is one of four kinds, as in the appendix of the DictSpec paper. It is an accepted draft token, or the
target's own where it rejected one. It is the bonus that the target adds to a draft that was all accepted, or it is
undrafted, in a pass without any.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from spectool import SpectoolError
from spectool.measure.page import cell
from spectool.measure.report.tables import by_kind
from spectool.measure.report.trials import Frame, Trials
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

ACCEPTED, CORRECTED, BONUS, UNDRAFTED = "accepted", "corrected", "bonus", "undrafted"
_FILLS = {ACCEPTED: "#9fdfc4", CORRECTED: "#f7b79a", BONUS: "#a9d3f2", UNDRAFTED: "#e6e6e6"}
_SHOWN = 256  # tokens of a text
_COLUMNS, _ADVANCE, _LINE = 88, 7.8, 22  # of the picture: characters in a line; pixels of one, and from line to line


class Sample(NamedTuple):
    """A text and where its tokens come from."""

    model: str  # its target
    prompt: str  # name of its prompt
    label: str  # the configuration
    pieces: list[tuple[str, str]]  # text of every token, and its kind; empty where a token ends inside a character


def repetition(trials: Trials) -> Frame:
    """Share of repeated 4-grams in what plain decoding wrote, mean over prompts, by language and kind of prompt."""
    named = trials.plain.assign(label=trials.plain.model + ", " + trials.plain.language + ", " + trials.plain.label)
    return by_kind(named, lambda some: cell(some.repeated.mean(), ".0%"))


def samples(trials: Trials, answers: Sequence[Mapping[str, Any]], texts: int) -> list[Sample]:
    """Return the beginnings of some texts by the fastest configurations, where the target's tokenizer can be opened.

    Args:
        trials: What a run measured.
        answers: Of `spectool.measure.report.summary.answers`.
        texts: How many for each answer, from prompts all over the run.
    """
    found = []
    known = trials.run.manifest.tokenizers if texts else {}
    tokenizers = {model: _tokenizer(known.get(model)) for model in trials.drafted.model.unique()}
    for answer in answers:
        model, label = answer["model"], answer["verdict"].label
        tokenizer, rows = tokenizers[model], trials.generations
        if tokenizer is None:
            continue
        rows = rows[(rows.model == model) & (rows.language == answer["language"]) & (rows.label == label)]
        places = np.linspace(0, len(rows) - 1, min(texts, len(rows))).astype(int)
        for row in rows.iloc[places].itertuples():
            cycles = trials.cycles[(trials.cycles.block == row.block) & (trials.cycles.order == row.order)]
            spelt = _texts(tokenizer, row.output.tolist()[:_SHOWN])
            pieces = zip(spelt, kinds_of(cycles.sort_values("cycle")), strict=False)
            found.append(Sample(model, row.prompt, label, list(pieces)))
    return found


def _tokenizer(identity: Mapping[str, Any] | None) -> Tokenizer | None:
    """Open a target's tokenizer, if it is where the run had it, and the same."""
    if identity is None:
        return None
    try:
        tokenizer = open_tokenizer(identity["name"])
    except SpectoolError:
        return None
    return tokenizer if tokenizer.fingerprint == identity["fingerprint"] else None


def kinds_of(cycles: Frame) -> Iterator[str]:
    """Yield the kind of every committed token, from the cycles of a generation in their order."""
    for proposed, accepted, committed in zip(cycles.proposed, cycles.accepted, cycles.committed, strict=True):
        last = UNDRAFTED if not proposed else CORRECTED if accepted < proposed else BONUS
        yield from [*[ACCEPTED] * accepted, last][:committed]  # an end of the text may cut a cycle short


def picture(pieces: Sequence[tuple[str, str]]) -> str:
    """Draw text as SVG, each token on the colour of its kind, with a line that says which is which."""
    drawn, line, column = [], 0, 0
    for text, kind in pieces:
        for number, part in enumerate(text.split("\n")):
            if number or column + len(part) > _COLUMNS:
                line, column = line + 1, 0
            part = part[:_COLUMNS]
            if part:
                drawn.append(_token(part, kind, line, column))
            column += len(part)
    legend = [_token(f" {kind} ", kind, line + 2, 14 * place) for place, kind in enumerate(_FILLS)]
    width, height = round(_COLUMNS * _ADVANCE + 16), (line + 3) * _LINE + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join((*drawn, *legend))}</svg>\n'
    )


def _token(text: str, kind: str, line: int, column: int) -> str:
    x, y, width = 8 + column * _ADVANCE, 8 + line * _LINE, len(text) * _ADVANCE
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width - 1:.1f}" height="18" rx="2" fill="{_FILLS[kind]}"/>'
        f'<text x="{x:.1f}" y="{y + 13}" textLength="{width - 1:.1f}" lengthAdjust="spacingAndGlyphs" '
        f'style="white-space:pre" xml:space="preserve">{escape(text)}</text>'
    )


def _texts(tokenizer: Any, output: Sequence[int]) -> Iterator[str]:
    """Yield what every token adds to the text, a character with the token that ends it."""
    decoder, surfaces = getincrementaldecoder("utf-8")(errors="replace"), tokenizer.surfaces
    for token in output:
        yield decoder.decode(surfaces[token] if token < len(surfaces) else b"")  # a padded vocabulary spells no more
