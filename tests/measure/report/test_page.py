"""Pages: nothing in a text becomes markup, everything is there, nothing is fetched."""

import base64
import doctest
import re
from html.parser import HTMLParser
from importlib import import_module

import pytest

from spectool.measure.report.page import Figure, Section, Table, html, markdown

NASTY = 'a <b>&"quoted"</b> | *star* [link](x) `code`'
SVG = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><text>1 &lt; 2</text></svg>'
SECTIONS = [
    Section("First", ["One paragraph.", NASTY], [Table("A table.", ["name", NASTY], [["x", "1.0"], [NASTY, "2.0"]])]),
    Section("Second & last", parts=[Figure(f"A figure: {NASTY}", SVG)]),
]


class Reader(HTMLParser):
    """Collects tags and text, and fails on tags that do not nest."""

    VOID = ("meta", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


def test_text_stays_text() -> None:
    reader = read(html(NASTY, SECTIONS))
    assert reader.text.count(NASTY) == 5  # title, heading, paragraph, column, row
    assert not [tag for tag, _ in reader.tags if tag in ("b", "script", "link", "iframe")]


def test_nothing_is_fetched() -> None:
    page = html("Title", SECTIONS)
    links = [value for _, attrs in read(page).tags for key, value in attrs.items() if key in ("src", "href")]
    assert links and all(link and link.startswith(("#", "data:")) for link in links)
    assert "default-src 'none'" in page and "url(" not in page and "@import" not in page


def test_figures_are_whole_and_have_a_text() -> None:
    (image,) = [attrs for tag, attrs in read(html("Title", SECTIONS)).tags if tag == "img"]
    assert image["alt"] == f"A figure: {NASTY}"
    assert base64.b64decode((image["src"] or "").partition(",")[2]).decode() == SVG


def test_contents_lead_to_sections() -> None:
    reader = read(html("Title", SECTIONS))
    links = [attrs["href"] for tag, attrs in reader.tags if tag == "a"]
    assert links == [f"#{attrs['id']}" for tag, attrs in reader.tags if tag == "section"] == ["#s1", "#s2"]


def test_markdown_tables_have_their_columns() -> None:
    page = markdown("Title", SECTIONS, lambda figure, number: f"plot {number}.svg")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    assert rows[1] == "|---|---:|"
    assert "](<plot 1.svg>)" in page and "## Second & last" in page
    assert "\\*star\\*" in page and "\\<b>" in page


def test_a_page_of_nothing() -> None:
    assert read(html("Empty", [])).text.count("Empty") == 2
    assert markdown("Empty", [], lambda figure, number: "").startswith("# Empty")


@pytest.mark.parametrize(
    "name",
    [
        "runtime.draft_length.cost_model",
        "artifacts.plot_style",
        "measure.intervals",
        "measure.page",
        *(f"measure.report.{module}" for module in ("costs", "tables", "trials")),
    ],
)
def test_examples(name: str) -> None:
    failed, tried = doctest.testmod(import_module(f"spectool.{name}"))
    assert tried and not failed
