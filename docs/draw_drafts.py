"""Draw the README's picture of drafted text: what `generate --show-drafts` shows on a terminal, as an SVG.

    python docs/draw_drafts.py --model MODEL --dict pl.dict --prompt "…" > docs/figures/drafts.svg

The text is what the model writes, greedily, and the colours are those of the cycles that wrote it.
"""

from functools import partial
from html import escape
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from textwrap import TextWrapper

import click

from spectool.commands.shared.display import Display
from spectool.runtime import load_drafter, stream_generate
from spectool.runtime.decoding.streaming import encode_prompt
from spectool.runtime.loading import load_model

_LENGTH = 4  # draft tokens of a pass: `auto` depends on the machine, and the picture should not
_WIDTH, _LINE, _MARGIN = 96, 21, 18  # characters of a line, pixels between lines and around them
_STYLE = """
  rect { fill: #f6f8fa; stroke: #d0d7de }
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #57606a; white-space: pre }
  .undrafted { fill: #1f2328 } .accepted { fill: #1a7f37; font-weight: 600 }
  .rejected { fill: #cf222e; text-decoration: line-through }
  @media (prefers-color-scheme: dark) {
    rect { fill: #161b22; stroke: #30363d } text { fill: #8b949e } .accepted { fill: #3fb950 }
    .rejected { fill: #f85149 } .undrafted { fill: #e6edf3 }
  }"""
Piece = tuple[str, str]  # a style and the text that is drawn in it


@click.command()
@click.option("--model", required=True)
@click.option("--dict", "dictionary", type=click.Path(path_type=Path))
@click.option("--prompt", required=True)
@click.option("--max-tokens", default=120, show_default=True)
def draw(model: str, dictionary: Path | None, prompt: str, max_tokens: int) -> None:
    """Write the picture to standard output."""
    target, tokenizer = load_model(model)
    messages = [{"role": "user", "content": prompt}]
    chat = getattr(tokenizer, "has_chat_template", False)
    ids = (
        tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        if chat
        else encode_prompt(tokenizer, prompt)
    )
    pieces: list[Piece] = []
    styles = {style: partial(_keep, pieces, style) for style in ("accepted", "rejected", "undrafted")}
    display = Display(tokenizer, styles)
    drafter = load_drafter(tokenizer, dictionary=dictionary)
    *_, last = stream_generate(
        target,
        tokenizer,
        ids,
        drafter=drafter,
        num_draft_tokens=_LENGTH,
        max_tokens=max_tokens,
        on_cycle=lambda cycle: display.render(cycle) and None,
    )
    drafting = last.drafting
    options = f"--model {Path(model).name} --dict pl.dict --num-draft-tokens {_LENGTH}"
    command = f'$ spectool generate {options} \\\n    --show-drafts --prompt "{prompt}"\n'
    summary = f"{drafting.tokens} tokens in {drafting.passes} passes"
    click.echo(_picture(_lines([("", f"{command}\n"), *pieces, ("", f"\n\n{summary}")])))


def _keep(pieces: list[Piece], style: str, text: str) -> str:
    pieces.append((style, text.replace("\n", "⏎") if style == "rejected" else text))
    return text


def _lines(pieces: list[Piece]) -> list[list[Piece]]:
    """Return the pieces as lines that are short enough, broken at line ends and between words."""
    text = "".join(text for _, text in pieces)
    styles = iter([style for style, text in pieces for _ in text])
    lines: list[list[Piece]] = []
    for paragraph in text.splitlines(keepends=True):
        for line in TextWrapper(_WIDTH, drop_whitespace=False, replace_whitespace=False).wrap(paragraph):
            runs = groupby(zip(line, styles, strict=False), itemgetter(1))
            lines.append([(style, "".join(char for char, _ in run).rstrip("\n")) for style, run in runs])
    return lines


def _picture(lines: list[list[Piece]]) -> str:
    rows = []
    for number, line in enumerate(lines):
        spans = "".join(f'<tspan class="{style}">{escape(text)}</tspan>' for style, text in line)
        rows.append(f'  <text x="{_MARGIN}" y="{_MARGIN + _LINE * (number + 1) - 6}">{spans}</text>')
    width, height = 2 * _MARGIN + int(_WIDTH * 8.45), 2 * _MARGIN + _LINE * len(lines)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            f"<style>{_STYLE}\n</style>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
            *rows,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    draw()
