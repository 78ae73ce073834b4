"""Pages from templates: one HTML file that needs nothing else, and Markdown with its plots beside it.

A page is a template of ``templates/``, such as ``report.jinja``: prose around the macros `section`, `text`, `lead`,
`table`, `plot` and `drafted`. ``html.jinja`` and ``markdown.jinja`` each write these in their own markup. What a
template is given is plain text: what has a meaning in HTML or Markdown is escaped. A table is a data frame whose index
names its rows, and a plot is an SVG document.
"""

import base64
import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from spectool.measure.plot_style import STYLE

HTML, MARKDOWN = "report.html", "report.md"
NONE = "—"
_TEMPLATES = FileSystemLoader(Path(__file__).parent / "templates")
_SPACE, _MARKED = re.compile(r"\s+"), re.compile(r"([\\`*\[\]<|])")


def page_files(template: str, title: str, **given: Any) -> dict[str, str]:
    """Return a page's files by name: `HTML`, `MARKDOWN`, and the plots of the latter, ``figure-1.svg`` and so on.

    The HTML needs no network and runs no script. Its plots are images within it, so that their identifiers do not
    meet and nothing in them can run.

    Args:
        template: The page's content, such as ``report.jinja``.
        title: Its title.
        given: What the template names: text, numbers, data frames, SVG documents.
    """
    plots: dict[str, str] = {}

    def name_of(svg: str) -> str:
        plots.setdefault(svg, f"figure-{len(plots) + 1}.svg")
        return plots[svg]

    marked = _environment(finalize=_markdown_text).get_template(template)
    text = marked.render(given, title=title, skin="markdown.jinja", name_of=name_of)
    contents: list[str] = []
    environment = _environment(finalize=_shown)
    body = environment.get_template(template).render(given, title=title, skin="html.jinja", contents=contents)
    whole = environment.get_template("page.html").render(title=title, contents=contents, body=Markup(body))
    lines = f"# {_markdown_text(title)}\n\n{text}"
    files = {HTML: f"{whole}\n", MARKDOWN: re.sub(r"\n\s*\n", "\n\n", lines).strip() + "\n"}
    return files | {name: svg for svg, name in plots.items()}


def cell(value: Any, spec: str = ".2f") -> str:
    """Spell a figure, or that there is none.

    >>> cell(1.2345), cell(0.4157, ".0%"), cell(None), cell(float("nan"))
    ('1.23', '42%', '—', '—')
    """
    return NONE if value is None or value != value else format(value, spec)


def drawn(width: float, height: float, draw: Callable[[Any], object]) -> str:
    """Return what ``draw`` draws on a matplotlib figure (inches) as SVG, the same bytes for the same drawing."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _environment(finalize: Callable[[Any], Any]) -> Environment:
    environment = Environment(
        loader=_TEMPLATES,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"flow": _flow, "header": _header, "rows": _rows, "data_uri": _data_uri}
    return environment


def _shown(value: Any) -> Any:
    return NONE if value is None or value != value else value


def _markdown_text(value: Any) -> Markup:
    """Keep text plain in Markdown."""
    if isinstance(value, Markup):
        return value
    return Markup(_MARKED.sub(r"\\\1", _SPACE.sub(" ", str(_shown(value)))))


def _flow(text: str) -> Markup:
    """Join the lines of a paragraph."""
    return Markup(" ".join(text.split()))


def _header(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return the name of every column, and whether it names rows."""
    names = [(name or "", True) for name in table.index.names]
    return [*names, *((str(name), False) for name in table.columns)]


def _rows(table: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield names and cells of every row."""
    for name, cells in zip(table.index, table.astype(object).to_numpy().tolist(), strict=True):
        yield (name if isinstance(name, tuple) else (name,)), cells


def _data_uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
