"""``spectool emulate``: texts and options that it refuses, saying what to do."""

from pathlib import Path

import pytest

from spectool.tests.measure.emulate.emulating import OTHER, TARGET, error_of, run

pytestmark = pytest.mark.system


def test_no_draft_tokens_are_refused_with_a_draft(aligned: list[object]) -> None:
    for length in (0, 65):
        result = run(*aligned, "--num-draft-tokens", length)
        assert result.exit_code == 2
        assert "--num-draft-tokens" in result.output


def test_a_tokenizer_without_a_model(work: Path) -> None:
    message = error_of(
        run("--draft", OTHER, "--tokenizer", TARGET, "--alignment", work / "x.align", "--corpus", work / "uk.txt")
    )
    assert "mlx-lm cannot load this model" in message


def test_texts_that_are_not_there(tmp_path: Path, aligned: list[object]) -> None:
    (tmp_path / "empty.txt").write_text("")
    assert "gone.txt: expected a file" in error_of(run(*aligned[:-1], tmp_path / "gone.txt"))
    assert "empty.txt: expected text, found none" in error_of(run(*aligned[:-1], tmp_path / "empty.txt"))


def test_damaged_characters_are_refused_or_repaired(tmp_path: Path, aligned: list[object]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes("добрий день\n".encode() * 20 + b"\xff\xfe\n")
    arguments = [*aligned[:-1], bad, "--strategy", "none", "--num-draft-tokens", 2]
    assert "bad.txt" in error_of(run(*arguments))
    assert run(*arguments, "--on-error", "repair").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--draft", OTHER], "name the target's tokenizer"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--history"], "leave out --dict, --history and --min-draft-prob"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--dict", "x"], "leave out --dict, --history and --min-draft-prob"),
        (["--history", "--tokenizer", TARGET, "--alignment", "x"], "--draft D"),
        (["--history", "--tokenizer", TARGET, "--strategy", "naive"], "--draft D"),
        (["--history", "--tokenizer", TARGET, *(["--num-draft-tokens", "2"] * 2)], "only with --draft"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--min-draft-prob", "0.2"], "leave out --dict, --history and --min"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--num-draft-tokens", "auto"], "numbers from 1 on"),
        (["--tokenizer", TARGET, "--no-history"], "give --draft D or --dict DIR, or leave out --no-history"),
        ([], "--tokenizer T"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--strategy", "magic"], "'magic' is not one of"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--num-draft-tokens", "-1"], "-1 is not in the range"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], says: str) -> None:
    result = run(*arguments, "--corpus", "sample:pl")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Usage: ")
    assert says in result.stderr
