"""A page of sections with tables and figures: one HTML file that needs nothing else, or Markdown.

All text is plain: what has a meaning in HTML or Markdown is escaped.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_MARKED = re.compile(r"([\\`*\[\]<|])")

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b6570; --line: #dde1e6; --back: #ffffff; --head: #f3f5f7;
  --link: #0b62a4; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e7eb; --soft: #a3adb8; --line: #3a424b; --back: #15191d; --head: #20262c; --link: #7cbcf0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--back); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.8rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
p { margin: .6rem 0; max-width: 46rem; }
a { color: var(--link); }
nav ol { margin: .3rem 0; padding-left: 1.4rem; columns: 20rem; }
figure { margin: 1.4rem 0 2rem; }
figcaption { max-width: 46rem; margin-bottom: .5rem; color: var(--soft); font-size: .93rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; line-height: 1.35; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
th, td { padding: .32rem .65rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
td { white-space: nowrap; }
thead th { background: var(--head); vertical-align: bottom; font-weight: 600; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--back); font-weight: 500;
  white-space: nowrap; }
thead th:first-child { background: var(--head); font-weight: 600; }
img { display: block; max-width: 100%; min-width: 34rem; height: auto; background: #ffffff; border-radius: .4rem;
  padding: .3rem; }
@media (max-width: 40rem) { th:first-child { white-space: normal; min-width: 8.5rem; } }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Table:
    """Rows in columns.

    Attributes:
        caption: What it shows, for a reader who sees such a table for the first time.
        header: Names of the columns.
        rows: Their cells; the first column is aligned left, the others right.
    """

    caption: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Figure:
    """A drawing.

    Attributes:
        caption: What it shows; the text for those who do not see it, too.
        svg: The drawing, a whole SVG document.
    """

    caption: str
    svg: str


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: Its heading.
        text: Paragraphs.
        parts: Tables and figures below them.
    """

    title: str
    text: Sequence[str] = ()
    parts: Sequence[Table | Figure] = ()


def html(title: str, sections: Sequence[Section]) -> str:
    """Return the page as one file: no network, no script, light or dark as the reader's system is.

    Figures are images within the page, so that their identifiers do not meet and nothing in them can run.
    """
    contents = "".join(f'<li><a href="#s{n}">{escape(s.title)}</a></li>' for n, s in enumerate(sections, 1))
    body = "\n".join(_section_html(section, number) for number, section in enumerate(sections, 1))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n<main>\n{body}\n</main>\n</body>\n</html>\n'
    )


def markdown(title: str, sections: Sequence[Section], figure_name: Callable[[Figure, int], str]) -> str:
    """Return the page as Markdown.

    Args:
        title: Its title.
        sections: Its parts.
        figure_name: File of a figure, from the figure and its number on the page, from 1.
    """
    lines = [f"# {_marked(title)}", ""]
    figures = 0
    for section in sections:
        lines += [f"## {_marked(section.title)}", ""]
        for paragraph in section.text:
            lines += [_marked(paragraph), ""]
        for part in section.parts:
            if isinstance(part, Table):
                lines += [_marked(part.caption), "", *_table_markdown(part), ""]
            else:
                figures += 1
                lines += [f"![{_marked(part.caption)}](<{figure_name(part, figures)}>)", ""]
    return "\n".join(lines)


def _section_html(section: Section, number: int) -> str:
    text = "".join(f"<p>{escape(paragraph)}</p>\n" for paragraph in section.text)
    parts = "\n".join(_table_html(part) if isinstance(part, Table) else _figure_html(part) for part in section.parts)
    return f'<section id="s{number}">\n<h2>{escape(section.title)}</h2>\n{text}{parts}\n</section>'


def _table_html(table: Table) -> str:
    header = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "\n".join(_row_html(*row) for row in table.rows)
    return (
        f"<figure>\n<figcaption>{escape(table.caption)}</figcaption>\n"
        f'<div class="wide" tabindex="0" role="group" aria-label="{escape(table.caption)}">'
        f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n</figure>"
    )


def _row_html(name: str, *cells: str) -> str:
    unbroken = escape(name).replace(" = ", "&nbsp;=&nbsp;")
    return f'<tr><th scope="row">{unbroken}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'


def _figure_html(figure: Figure) -> str:
    source = base64.b64encode(figure.svg.encode()).decode()
    return (
        f"<figure>\n<figcaption>{escape(figure.caption)}</figcaption>\n"
        f'<div class="wide"><img alt="{escape(figure.caption)}" src="data:image/svg+xml;base64,{source}"></div>\n'
        "</figure>"
    )


def _table_markdown(table: Table) -> list[str]:
    marks = "|".join(["---", *["---:"] * (len(table.header) - 1)])
    rows = ["| " + " | ".join(_marked(cell) for cell in row) + " |" for row in (table.header, *table.rows)]
    return [rows[0], f"|{marks}|", *rows[1:]]


def _marked(text: str) -> str:
    """Keep text plain in Markdown."""
    return _MARKED.sub(r"\\\1", " ".join(text.split()))
