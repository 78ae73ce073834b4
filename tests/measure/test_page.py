"""Pages: nothing in a text becomes markup, everything is there, nothing is fetched."""

import base64
import doctest
import re
from html.parser import HTMLParser
from importlib import import_module

import pytest
from jinja2 import ChoiceLoader, DictLoader, UndefinedError

from spectool.measure import page
from spectool.measure.page import HTML, MARKDOWN, PageTable, page_files

NASTY = 'a <b>&"quoted"</b> | *star* [link](x) `code`'
SVG = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><text>1 &lt; 2</text></svg>'
PLAIN = PageTable(["name", NASTY], [["x = 1", "1.0"], [NASTY, None]])
NESTED = PageTable(["language", "", NASTY], [["pl", "one", "1.0"], ["uk", 2, None]], names=2)
CONTENT = """
{% from skin import section, text, table, plot with context %}
{% call section("First") %}
{% call text() %}
One
paragraph.
{% endcall %}
{% call text() %}{{ nasty }}{% endcall %}
{% call table(frame) %}A table.{% endcall %}
{% call table(nested) %}Another.{% endcall %}
{% endcall %}
{% call section("Second & last") %}
{% call plot(svg) %}A figure: {{ nasty }}{% endcall %}
{% endcall %}
"""


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


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    contents = DictLoader({"content.jinja": CONTENT, "lacking.jinja": "{{ nowhere }}", "empty.jinja": ""})
    monkeypatch.setattr(page, "_TEMPLATES", ChoiceLoader([contents, page._TEMPLATES]))
    return page_files("content.jinja", NASTY, nasty=NASTY, frame=PLAIN, nested=NESTED, svg=SVG)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def test_text_stays_text(files: dict[str, str]) -> None:
    reader = read(files[HTML])
    assert reader.text.count(NASTY) == 6  # title, heading, paragraph, two columns, row
    assert "One paragraph." in reader.text and reader.text.count("x\u00a0=\u00a01") == 1
    assert not [tag for tag, _ in reader.tags if tag in ("b", "script", "link", "iframe")]


def test_nothing_is_fetched(files: dict[str, str]) -> None:
    links = [value for _, attrs in read(files[HTML]).tags for key, value in attrs.items() if key in ("src", "href")]
    assert links and all(link and link.startswith(("#", "data:")) for link in links)
    assert "default-src 'none'" in files[HTML] and "url(" not in files[HTML] and "@import" not in files[HTML]


def test_figures_are_whole_and_have_a_text(files: dict[str, str]) -> None:
    (image,) = [attrs for tag, attrs in read(files[HTML]).tags if tag == "img"]
    assert image["alt"] == f"A figure: {NASTY}"
    assert base64.b64decode((image["src"] or "").partition(",")[2]).decode() == SVG == files["figure-1.svg"]


def test_contents_lead_to_sections(files: dict[str, str]) -> None:
    reader = read(files[HTML])
    links = [attrs["href"] for tag, attrs in reader.tags if tag == "a"]
    assert links == [f"#{attrs['id']}" for tag, attrs in reader.tags if tag == "section"] == ["#s1", "#s2"]


def test_tables_have_their_columns(files: dict[str, str]) -> None:
    rows = [line for line in files[MARKDOWN].splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3] * 4 + [4] * 4
    assert (rows[1], rows[5]) == ("|---|---:|", "|---|---|---:|")
    assert rows[2] == "| x = 1 | 1.0 |" and rows[3].endswith(" | — |")
    assert rows[4].startswith("| language |  |") and rows[7] == "| uk | 2 | — |"
    assert "](<figure-1.svg>)" in files[MARKDOWN] and "\n\n## Second & last\n\n" in files[MARKDOWN]
    assert "\\*star\\*" in files[MARKDOWN] and "\\<b>" in files[MARKDOWN]
    assert "\n\n\n" not in files[MARKDOWN]


def test_a_page_of_nothing(files: dict[str, str]) -> None:
    empty = page_files("empty.jinja", "Empty")
    assert read(empty[HTML]).text.count("Empty") == 2
    assert empty.keys() == {HTML, MARKDOWN} and empty[MARKDOWN] == "# Empty\n"


def test_what_a_template_names_must_be_given(files: dict[str, str]) -> None:
    with pytest.raises(UndefinedError, match="nowhere"):
        page_files("lacking.jinja", "Lacking")


@pytest.mark.parametrize(
    "name",
    [
        "lab.paper_tables.cost_model",
        "lab.paper_tables.tables",
        *(f"measure.{module}" for module in ("intervals", "page", "report.plots", "report.run_page", "report.trials")),
    ],
)
def test_examples(name: str) -> None:
    failed, tried = doctest.testmod(import_module(f"spectool.{name}"))
    assert tried and not failed
