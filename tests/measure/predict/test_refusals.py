"""``spectool predict``: texts and options that it refuses, saying what to do."""

from pathlib import Path

import pytest

from spectool.tests.measure.predict.predicting import TARGET, error_of, run

pytestmark = pytest.mark.nightly


def test_texts_that_are_not_there(tmp_path: Path, replaying: list[object]) -> None:
    (tmp_path / "empty.txt").write_text("")
    assert "gone.txt: expected a file" in error_of(run(*replaying[:-1], tmp_path / "gone.txt"))
    assert "empty.txt: expected text, found none" in error_of(run(*replaying[:-1], tmp_path / "empty.txt"))


def test_damaged_characters_are_refused(tmp_path: Path, replaying: list[object]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes("добрий день\n".encode() * 20 + b"\xff\xfe\n")
    assert "bad.txt:21: expected UTF-8, got the bytes ff" in error_of(run(*replaying[:-1], bad))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tokenizer", TARGET, "--no-history"], "without --dict FILE"),
        ([], "--tokenizer"),
        (["--tokenizer", TARGET, "--min-draft-prob", "2"], "2.0 is not in the range"),
        (["--here"], "--model M"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], says: str) -> None:
    result = run(*arguments, "--corpus", "sample:pl")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Usage: ")
    assert says in result.stderr


@pytest.mark.parametrize("machine", [["--on", "M3", "--bits", "8"], ["--on", "M9", "--bits", "8"]])
def test_no_figure_is_guessed(machine: list[str], replaying: list[object]) -> None:
    message = error_of(run(*replaying, *machine))
    assert f"on {machine[1]} or" in message and "with such weights: M4 Pro" in message and "spectool doctor" in message
