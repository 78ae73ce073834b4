"""Grids: that of the paper, one's own, and errors in a file."""

from importlib.resources import files
from pathlib import Path

import pytest

from spectool import SpectoolError
from spectool.lab.sweep.grid import DictSpecAxes, Language, read_grid
from spectool.lab.sweep.results import SCHEMA, SweepRow, key, read_runs, write_runs

SMALLEST = '[tokenizers]\nt = "dir"\n[languages.uk]\nbuild = "a"\nreplay = "b"\n'


def test_the_grid_of_the_paper_has_1350_runs_in_each_reading() -> None:
    folder = files("spectool.lab") / "experiments"
    grid = read_grid(Path(str(folder / "dictspec.toml")))
    settings = list(grid.methods["dictspec"].settings())
    assert len(settings) * len(grid.tokenizers) * len(grid.languages) == 2 * 1350
    other = read_grid(Path(str(folder / "backoff.toml")))
    assert (other.tokenizers, other.languages) == (grid.tokenizers, grid.languages)


def test_what_a_file_leaves_out_is_as_in_the_paper(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(SMALLEST)
    grid = read_grid(path)
    assert grid.tokenizers == {"t": "dir"}
    assert grid.languages == {"uk": Language(build="a", replay="b")}
    assert grid.methods == {"dictspec": DictSpecAxes()}
    assert (grid.num_draft_tokens, grid.replay_tokens) == ((8,), 0)


def test_everything_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        "num_draft_tokens = [4, 8, 4]\nreplay_tokens = 100\n"
        + SMALLEST
        + 'script = "latin"\n'
        + '[dictspec]\nreadings = ["path"]\norders = ["n1"]\nentries = [10, 5]\nmin_prob = [0, 0.5]\n'
    )
    grid = read_grid(path)
    assert grid.languages == {"uk": Language(build="a", replay="b", script="latin")}
    assert (grid.num_draft_tokens, grid.replay_tokens) == ((4, 8), 100)
    assert list(grid.methods["dictspec"].settings()) == [
        {"order": "n1", "reading": "path", "entries_asked": entries, "min_prob": min_prob}
        for entries in (5, 10)
        for min_prob in (0, 0.5)
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tokenizers", "TOML"),
        ("", "tokenizers: expected a value, got none; languages: expected a value, got none"),
        ('[tokenizers]\nt = "dir"\n', "languages: expected a value, got none"),
        (SMALLEST.replace('"dir"', "3"), r"tokenizers\.t: expected .*, got 3"),
        (SMALLEST.replace("replay", "reply"), r"languages\.uk\.reply: expected no such key"),
        (SMALLEST + 'script = "greek"\n', r"script: expected 'cyrillic' or 'latin', got greek"),
        ("num_draft_tokens = 8\n" + SMALLEST, "num_draft_tokens: expected a valid list, got 8"),
        ("num_draft_tokens = [65]\n" + SMALLEST, r"num_draft_tokens\.0: expected less than or equal to 64, got 65"),
        ("num_draft_tokens = []\n" + SMALLEST, "num_draft_tokens: expected at least 1, got none"),
        (SMALLEST + "[dictspec]\nsizes = [1]\n", r"dictspec\.sizes: expected no such key"),
        (SMALLEST + "[dictspec]\nentries = [0]\n", r"dictspec\.entries"),
        (SMALLEST + "[dictspec]\nmin_prob = [1.1]\n", r"dictspec\.min_prob"),
        (SMALLEST + '[dictspec]\norders = ["n4"]\n', r"dictspec\.orders"),
        (SMALLEST + "[dictspec]\nreadings = []\n", r"dictspec\.readings"),
    ],
)
def test_a_wrong_file_is_told_where(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(SpectoolError, match=rf"grid\.toml: .*{named}"):
        read_grid(path)
    with pytest.raises(
        SpectoolError, match=r"none\.toml: the grid cannot be read \(No such file or directory\)\. `spectool lab"
    ):
        read_grid(tmp_path / "none.toml")


# The file of runs: what is written is read, and nothing else.


def row(**columns: object) -> SweepRow:
    return {**dict.fromkeys(SCHEMA.names), **columns}


def test_runs_come_back_in_the_order_of_their_settings(tmp_path: Path) -> None:
    rows = [row(language="uk", min_prob=0.2), row(language="pl", entries_asked=10), row(language="pl"), row()]
    write_runs(tmp_path / "runs.parquet", rows)
    assert read_runs(tmp_path / "runs.parquet") == [rows[3], rows[2], rows[1], rows[0]]
    assert [path.name for path in tmp_path.iterdir()] == ["runs.parquet"]


def test_of_equal_runs_the_first_counts(tmp_path: Path) -> None:
    first, again, other = row(language="pl", tokens=1), row(language="pl", tokens=2), row(language="uk")
    assert key(first) == key(again) != key(other)
    write_runs(tmp_path / "runs.parquet", [first, again, other])
    assert read_runs(tmp_path / "runs.parquet") == [first, other]
