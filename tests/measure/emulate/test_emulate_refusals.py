"""``spectool emulate``: texts and options that it refuses, saying what to do."""

from pathlib import Path

import pytest

from spectool.tests.measure.emulate.emulating import OTHER, TARGET, error_of, run

pytestmark = pytest.mark.system


def test_no_draft_tokens_are_refused_with_a_draft(work: Path, aligned: list[object]) -> None:
    for length in (0, 65):
        result = run(*aligned, "--count-on", work / "pl.txt", "--num-draft-tokens", length)
        assert result.exit_code == 2
        assert "--num-draft-tokens" in result.output


def test_a_tokenizer_without_a_model(work: Path, aligned: list[object]) -> None:
    message = error_of(run(*aligned))
    assert "mlx-lm cannot load this model" in message
    assert "count n-grams over its tokens: --count-on C" in message


def test_texts_that_are_not_there(work: Path, tmp_path: Path, aligned: list[object]) -> None:
    (tmp_path / "empty.txt").write_text("")
    missing = run(*aligned, "--count-on", tmp_path / "gone.txt")
    assert "gone.txt: expected a file" in error_of(missing)
    assert "counting" not in missing.stderr
    assert "empty.txt: expected text, found none" in error_of(run(*aligned, "--count-on", tmp_path / "empty.txt"))
    replayed = [*aligned[:-1], tmp_path / "empty.txt"]
    assert "empty.txt: expected text, found none" in error_of(run(*replayed, "--count-on", work / "pl.txt"))


def test_options_for_text_hold_for_both_texts(work: Path, tmp_path: Path, aligned: list[object]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes("добрий день\n".encode() * 20 + b"\xff\xfe\n")
    arguments = [*aligned, "--count-on", bad, "--strategy", "none", "--num-draft-tokens", 2]
    assert "bad.txt" in error_of(run(*arguments))
    assert run(*arguments, "--on-error", "repair").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--draft", OTHER], "name the target's tokenizer"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--history"], "leave out --dict, --history and --min-draft-prob"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--dict", "x"], "leave out --dict, --history and --min-draft-prob"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--order", "3"], "--count-on C"),
        (["--history", "--tokenizer", TARGET, "--order", "3"], "--count-on C"),
        (["--history", "--tokenizer", TARGET, "--count-on", "x"], "need a draft"),
        (["--history", "--tokenizer", TARGET, "--alignment", "x"], "need a draft"),
        (["--history", "--tokenizer", TARGET, "--strategy", "naive"], "need a draft"),
        (["--history", "--tokenizer", TARGET, "--steps"], "need a draft"),
        (["--history", "--tokenizer", TARGET, *(["--num-draft-tokens", "2"] * 2)], "only with --draft"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--min-draft-prob", "0.2"], "leave out --dict, --history and --min"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--num-draft-tokens", "auto"], "numbers from 1 on"),
        (["--tokenizer", TARGET, "--no-history"], "give --draft D or --dict DIR, or leave out --no-history"),
        ([], "--tokenizer T"),
        (["--tokenizer", TARGET, "--history", "--prompt-lookup"], "takes the place of --history"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--strategy", "magic"], "'magic' is not one of"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--num-draft-tokens", "-1"], "-1 is not in the range"),
        (["--draft", OTHER, "--tokenizer", TARGET, "--count-on", "x", "--order", "0"], "0 is not in the range"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], says: str) -> None:
    result = run(*arguments, "--corpus", "sample:pl")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Usage: ")
    assert says in result.stderr
