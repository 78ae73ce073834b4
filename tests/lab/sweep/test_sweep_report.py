"""Tables and plots of runs: figures where they belong, and a page that stands by itself."""

import math
import re
import xml.etree.ElementTree
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from spectool.lab.sweep.command import write_page
from spectool.lab.sweep.results import SCHEMA, SweepRow
from spectool.lab.sweep.tables import best_of, by_series, figures, pearson

LANGUAGES = {"uk": 2.0, "crh-cyrl": 3.0}
TOKENIZERS = {"gemma-3": 0.1, "bielik-11b-v2.5": 0.9, "gpt2": 2.0}


def run(language: str, tokenizer: str, **columns: object) -> SweepRow:
    texts = {"build_corpus": f"/a/{language}.train.txt", "replay_corpus": f"/a/{language}.valid.txt"}
    counts = {"build_words": 1000, "replay_words": 100, "num_draft_tokens": 8, "entries": 7, "coverage": 0.5}
    figures = {"acceptance": 0.25, "mean_accepted_length": 0.75, "tokens_per_pass": 1.0, "method": "dictspec"}
    fertility = LANGUAGES.get(language, 1.0) + TOKENIZERS[tokenizer]
    names = {"language": language, "tokenizer": tokenizer, "fertility": fertility}
    return {**dict.fromkeys(SCHEMA.names), **names, **texts, **counts, **figures, **columns}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of `runs` in Markdown."""
    folder = tmp_path_factory.mktemp("page")
    write_page(runs(), folder)
    return (folder / "report.md").read_text(encoding="utf-8")


def runs() -> list[SweepRow]:
    """A grid whose tokens per pass grow with fertility, order, size and reading, and fall with the threshold."""
    rows = []
    axes = product(LANGUAGES, TOKENIZERS, ("whole", "path"), ("n1", "n12"), (10_000, 1_000_000), (0.2, 0.9))
    for language, tokenizer, reading, order, entries, min_prob in axes:
        row = run(language, tokenizer, reading=reading, order=order, entries_asked=entries, min_prob=min_prob)
        gain = (reading == "path") + (order == "n12") + (entries > 10_000) - min_prob
        rows.append(row | {"tokens_per_pass": 1.1 + 0.01 * gain + 0.1 * row["fertility"]})
    return [*rows, run("en", "gpt2", method="plain", build_corpus=None, build_words=None, num_draft_tokens=0)]


def section(page: str, title: str, below: str = "") -> list[list[str]]:
    """The cells of the first table after a heading (after another heading)."""
    rest = page[page.index(below) :]
    lines = rest[rest.index(title) :].splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def test_series_are_methods_and_readings_the_literal_one_first() -> None:
    backoff = run("uk", "gpt2", method="backoff", max_bytes=5_000_000, min_prob=0.1)
    series = by_series([*runs(), backoff])
    assert list(series) == ["backoff", "dictspec, whole", "dictspec, path"]
    assert [len(rows) for rows in series.values()] == [1, 48, 48]
    short = run("uk", "gpt2", num_draft_tokens=4, reading="whole")
    names = list(by_series([*runs(), short]))
    assert names == [
        "dictspec, whole, 4 draft tokens",
        "dictspec, whole, 8 draft tokens",
        "dictspec, path, 8 draft tokens",
    ]


def test_the_best_of_each_pair_and_of_equals_the_smallest() -> None:
    rows = [
        run("uk", "gpt2", tokens_per_pass=1.2, entries=30),
        run("uk", "gpt2", tokens_per_pass=1.3, entries=20),
        run("uk", "gpt2", tokens_per_pass=1.3, entries=10),
        run("pl", "gpt2", tokens_per_pass=1.1, entries=5),
    ]
    (series,) = by_series(rows).values()
    assert best_of(series)["entries"].tolist() == [5, 10]


def test_pearson() -> None:
    pairs = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0), (5.0, 5.0)]
    found = pearson(pd.DataFrame(pairs))
    assert found is not None
    r, low, high = found
    assert r == pytest.approx(0.8)
    reach = 1.96 / math.sqrt(5 - 3)  # Fisher's z
    assert low == pytest.approx(math.tanh(math.atanh(0.8) - reach), abs=1e-4)
    assert high == pytest.approx(math.tanh(math.atanh(0.8) + reach), abs=1e-4)
    assert pearson(pd.DataFrame(pairs[:3])) is None
    assert pearson(pd.DataFrame([(1.0, 2.0)] * 5)) is None
    assert pearson(pd.DataFrame([(float(x), 2.0 * x) for x in range(5)])) == pytest.approx((1.0, 1.0, 1.0))


def test_fertility_with_the_papers_beside_it(page: str) -> None:
    table = section(page, "## Fertility")
    assert table[0] == ["tokenizer (paper's family)", "crh-cyrl", "en", "uk"]
    assert table[1] == ["bielik-11b-v2.5 (Mistral 7B)", "3.90 (4.20)", "— (1.42)", "2.90 (3.18)"]
    assert table[3] == ["gpt2", "5.00", "3.00", "4.00"]


def test_the_best_of_the_sweep_with_the_papers_beside_it(page: str) -> None:
    table = section(page, "Best of the sweep", below="## dictspec, path")
    assert len(table) == 7
    uk = table[5]
    assert uk[:7] == ["uk", "gemma-3", "2.10", "n12", "1M", "0.2", "7"]
    assert uk[7:] == ["1.338", "0.50", "0.75", "0.25", "1.26, 0.59, 0.44, 0.17"]
    assert table[6][-1] == "—"
    line = r"Pearson r = 1\.00 \(95% interval 1\.00 to 1\.00, n = 6\); paper: 0\.72 \(n = 15\)"
    assert re.search(line, page)


def test_orders_and_sizes(page: str) -> None:
    orders = section(page, "Orders:", below="## dictspec, whole")
    assert orders[0] == ["language", "tokenizer", "n1", "n12"]
    assert orders[3] == ["crh-cyrl", "gpt2", "1.608", "1.618"]
    sizes = section(page, "Sizes and thresholds:", below="## dictspec, whole")
    assert sizes[0] == ["size, n12", "p_min 0.2", "p_min 0.9"]
    assert [row[0] for row in sizes[1:]] == ["10k", "1M"]
    assert [float(cell) for cell in sizes[2][1:]] == [pytest.approx(1.468, abs=1e-3), pytest.approx(1.461, abs=1e-3)]


def test_files(tmp_path: Path) -> None:
    names = write_page(runs(), tmp_path)
    plots = [f"figure-{number}.svg" for number in (1, 2, 3)]
    assert names == ["report.html", "report.md", *plots]
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    for name in plots:
        drawing = xml.etree.ElementTree.parse(tmp_path / name).getroot()
        words = " ".join(drawing.itertext())
        assert "tokens per pass" in words, name
        width, height = (float(drawing.attrib[side].removesuffix("pt")) for side in ("width", "height"))
        assert width > 360 < 3 * height, name
        assert f"](<{name}>)" in page
    fertility = " ".join(xml.etree.ElementTree.parse(tmp_path / plots[0]).getroot().itertext())
    assert "fertility (tokens per word)" in fertility
    assert "r = 1.00" in fertility
    first = {name: (tmp_path / name).read_bytes() for name in names}
    write_page(runs(), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in names} == first, "the same runs give the same bytes"


def test_one_run_and_other_methods_are_enough_for_a_page(tmp_path: Path) -> None:
    backoff = [run("uk", "gpt2", method="backoff", max_bytes=size, min_prob=0.1) for size in (1_000_000, 5_000_000)]
    assert write_page(backoff[:1], tmp_path)[:2] == ["report.html", "report.md"]
    assert len(write_page([*backoff, *runs()], tmp_path)) == 5
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert section(page, "Sizes and thresholds:", below="## backoff")[1][0] == "1M"
    plain = [row for row in runs() if row["method"] == "plain"]
    assert write_page(plain, tmp_path / ".") == ["report.html", "report.md"]


def test_every_figure_of_the_paper_is_there() -> None:
    families = figures()["families"].values()
    assert sum(len(family["fertility"]) for family in families) == 20
    assert sum(len(family["best"]) for family in families) == 15
    assert {len(row) for family in families for row in family["best"].values()} == {4}
    pairs = [(family["fertility"][name], row[0]) for family in families for name, row in family["best"].items()]
    found = pearson(pd.DataFrame(pairs))
    assert found is not None
    assert found[0] == pytest.approx(figures()["pearson"], abs=0.01), "its tables are rounded"
