"""Pages from templates: one HTML file that needs nothing else, and Markdown with its plots next to it.

A page is a template of ``templates/``, such as ``report.jinja``: prose around the macros `section`, `text`, `lead`,
`table` and `plot`, which ``html.jinja`` and ``markdown.jinja`` each write in their own markup. A template is given
plain text: characters that mean something in HTML or Markdown are escaped. A plot is an SVG document.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from spectool.artifacts.atomic import explain_full_disk

HTML, MARKDOWN = "report.html", "report.md"
NO_FIGURE = "—"
_TEMPLATES = FileSystemLoader(Path(__file__).parent / "templates")
_SPACE, _MARKED = re.compile(r"\s+"), re.compile(r"([\\`*\[\]<|])")


class PageTable(NamedTuple):
    """A table of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    names: int = 1  # leading columns that name the rows


def page_files(template: str, title: str, **given: Any) -> dict[str, str]:
    """The files of a page by name: `HTML`, `MARKDOWN`, and the plots of the latter, ``figure-1.svg`` and so on.

    The HTML needs no network and runs no script. Its plots are images within it, so their identifiers cannot clash and
    nothing in them can run.

    Args:
        template: The page's content, such as ``report.jinja``.
        title: Its title.
        given: What the template names: text, numbers, SVG documents, and tables.
    """
    plots: dict[str, str] = {}

    def name_of(svg: str) -> str:
        return plots.setdefault(svg, f"figure-{len(plots) + 1}.svg")

    marked = _environment(finalize=_markdown_text).get_template(template)
    text = marked.render(given, title=title, skin="markdown.jinja", name_of=name_of)
    contents: list[str] = []
    environment = _environment(finalize=_shown)
    body = environment.get_template(template).render(given, title=title, skin="html.jinja", contents=contents)
    whole = environment.get_template("page.html").render(title=title, contents=contents, body=Markup(body))
    lines = f"# {_markdown_text(title)}\n\n{text}"
    files = {HTML: f"{whole}\n", MARKDOWN: re.sub(r"\n\s*\n", "\n\n", lines).strip() + "\n"}
    return files | {name: svg for svg, name in plots.items()}


def save_page(files: Mapping[str, str], folder: Path) -> None:
    """Write the files of a page into ``folder``, all of them or none.

    Raises:
        ArtifactError: There is no room.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(folder), TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        for name, text in files.items():
            (Path(scratch) / name).write_text(text, encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for name in files:
            (Path(scratch) / name).replace(folder / name)


def cell(value: Any, spec: str = ".2f") -> str:
    """A figure as text, or `NO_FIGURE` if there is none.

    >>> cell(1.2345), cell(0.4157, ".0%"), cell(None), cell(float("nan"))
    ('1.23', '42%', '—', '—')
    """
    return NO_FIGURE if value is None or value != value else format(value, spec)


def _environment(finalize: Callable[[Any], Any]) -> Environment:
    environment = Environment(
        loader=_TEMPLATES,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"flow": _flow, "data_uri": _data_uri}
    return environment


def _shown(value: Any) -> Any:
    return NO_FIGURE if value is None or value != value else value


def _markdown_text(value: Any) -> Markup:
    """Escape what has a meaning in Markdown."""
    if isinstance(value, Markup):
        return value
    return Markup(_MARKED.sub(r"\\\1", _SPACE.sub(" ", str(_shown(value)))))


def _flow(text: str) -> Markup:
    """Join the lines of a paragraph."""
    return Markup(" ".join(text.split()))


def _data_uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
