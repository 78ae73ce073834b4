"""Grids: the paper's, one's own, and what is said of a wrong one."""

from pathlib import Path

import pytest

from spectool import SpectoolError
from spectool.lab.sweep.grid import DictSpecAxes, Language, read_grid
from spectool.lab.sweep.paper import paper_grid

SMALLEST = '[tokenizers]\nt = "dir"\n[languages.uk]\nbuild = "a"\nreplay = "b"\n'


@pytest.fixture
def paper(tmp_path: Path) -> tuple[Path, Path]:
    """Folders with what the paper's grid looks for."""
    tokenizers, corpora = tmp_path / "tokenizers", tmp_path / "corpora"
    for name in ("gemma-3", "mistral-7b-v0.1", "mistral-nemo", "qwen2.5", "llama-3.2", "gpt2"):
        (tokenizers / name).mkdir(parents=True)
    corpora.mkdir()
    for name in ("uk.train.txt", "uk.valid.txt.zst", "crh.train.jsonl", "crh.valid.txt"):
        (corpora / name).touch()
    return tokenizers, corpora


def test_the_papers_grid_has_1350_runs(paper: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    grid = paper_grid(*paper)
    assert list(grid.tokenizers) == ["gemma-3", "mistral-7b-v0.1", "mistral-nemo", "qwen2.5", "llama-3.2"]
    assert list(grid.languages) == ["uk", "crh-cyrl", "crh-latn"]
    assert grid.languages["uk"].script is None
    assert grid.languages["crh-cyrl"].replay == grid.languages["crh-latn"].replay == str(paper[1] / "crh.valid.txt")
    assert (grid.languages["crh-cyrl"].script, grid.languages["crh-latn"].script) == ("cyrillic", "latin")
    settings = [tuple(one.values()) for one in grid.methods["dictspec"].settings()]
    assert len(grid.tokenizers) * len(grid.languages) * len(set(settings)) == 1350
    assert (grid.num_draft_tokens, grid.replay_tokens) == ((8,), 0)
    assert capsys.readouterr().err == "qwen2.5 stands in for Qwen 3.5, which has another vocabulary\n"


def test_both_readings_double_it(paper: tuple[Path, Path]) -> None:
    grid = paper_grid(*paper, readings=("whole", "path"))
    assert len(list(grid.methods["dictspec"].settings())) == 180


@pytest.mark.parametrize("missing", ["tokenizers/gemma-3", "corpora/crh.train.jsonl"])
def test_what_the_papers_grid_lacks_is_named(paper: tuple[Path, Path], missing: str) -> None:
    path = paper[0].parent / missing
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    with pytest.raises(SpectoolError, match=r"gemma-3|crh\.train\.\*"):
        paper_grid(*paper)


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
        + 'script = "latin"\nsplit_as = "fr"\n[languages.en]\nreplay = "e"\n'
        + '[dictspec]\nreadings = ["path"]\norders = ["n1"]\nentries = [10, 5]\nmin_prob = [0, 0.5]\n'
    )
    grid = read_grid(path)
    assert grid.languages == {
        "uk": Language(build="a", replay="b", script="latin", split_as="fr"),
        "en": Language(replay="e"),
    }
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
        (SMALLEST.replace("replay", "reply"), r"languages\.uk: expected the keys replay, .*, got reply"),
        (SMALLEST.replace('replay = "b"', ""), r"languages\.uk\.replay"),
        (SMALLEST + 'script = "greek"\n', r"script: expected 'cyrillic' or 'latin', got greek"),
        ("lengths = [8]\n" + SMALLEST, "expected the keys tokenizers, .*, got lengths"),
        ("num_draft_tokens = 8\n" + SMALLEST, "num_draft_tokens: expected a valid list, got 8"),
        ("num_draft_tokens = [65]\n" + SMALLEST, r"num_draft_tokens\.0: expected less than or equal to 64, got 65"),
        ("num_draft_tokens = []\n" + SMALLEST, "num_draft_tokens: expected at least 1, got none"),
        ("replay_tokens = -1\n" + SMALLEST, "replay_tokens"),
        (SMALLEST + "[dictspec]\nsizes = [1]\n", r"dictspec: expected the keys readings, .*, got sizes"),
        (SMALLEST + "[dictspec]\nentries = [0]\n", r"dictspec\.entries"),
        (SMALLEST + "[dictspec]\nentries = [1.5]\n", r"dictspec\.entries"),
        (SMALLEST + "[dictspec]\nentries = [true]\n", r"dictspec\.entries"),
        (SMALLEST + "[dictspec]\nmin_prob = [1.1]\n", r"dictspec\.min_prob"),
        (SMALLEST + "[dictspec]\nmin_prob = [nan]\n", r"dictspec\.min_prob"),
        (SMALLEST + '[dictspec]\norders = ["n4"]\n', r"dictspec\.orders"),
        (SMALLEST + "[dictspec]\nreadings = []\n", r"dictspec\.readings"),
    ],
)
def test_a_wrong_file_is_told_where(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(SpectoolError, match=rf"grid\.toml: .*{named}"):
        read_grid(path)
    with pytest.raises(SpectoolError, match=r"none\.toml: expected a grid"):
        read_grid(tmp_path / "none.toml")
