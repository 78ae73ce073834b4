"""The commands ``count`` and ``build-dict --counts``, as a user runs them."""

import shlex
from pathlib import Path

import click
import pytest

from spectool.artifacts.counts import Counts
from spectool.commands.shared.options import size_in_bytes
from spectool.runtime.demo_models import demo_path
from spectool.tests.running import figures, run

TOKENIZER = demo_path("target") / "tokenizer.json"


def test_windows_of_a_tokenizer(tmp_path: Path) -> None:
    options = ("--tokenizer", TOKENIZER, "--orders", 4, "--min-count", 3, "--memory", "1GB")
    facts = figures("count", "--corpus", "sample:uk", *options, "-o", tmp_path / "x.counts")
    counts = Counts(tmp_path / "x.counts")
    assert (counts.orders, counts.min_count) == (4, 3)
    assert facts["target_fingerprint"] == counts.fingerprint
    assert counts.level(4).count.min() == 3
    assert "orders 4 (" in run("inspect", tmp_path / "x.counts").stdout


def test_one_count_serves_every_dictionary(tmp_path: Path) -> None:
    figures("count", "--corpus", "sample:pl", "--tokenizer", TOKENIZER, "--orders", 3, "-o", tmp_path / "x.counts")
    build = ("build-dict", "--tokenizer", TOKENIZER, "--counts", tmp_path / "x.counts", "-o", tmp_path / "a")
    small, large = (figures(*build, "--max-bytes", size)["statistics"] for size in ("14KB", "30KB"))
    assert small["entries"] < large["entries"] and large["max_context"] == 2, "as long as the counts allow"


def test_the_next_command_can_be_pasted(tmp_path: Path) -> None:
    done = run("count", "--corpus", "sample:pl", "--tokenizer", TOKENIZER, "--orders", 2, "-o", tmp_path / "o'ne 1")
    command = shlex.split(done.stderr.splitlines()[-1].removeprefix("next: spectool "))
    assert run(*command, "-o", tmp_path / "x.dict").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["count", "--corpus", "sample:pl", "--tokenizer", TOKENIZER, "--memory", "much"],
            "'much' is not a size. Give one such as 4GB",
        ),
        (
            ["count", "--corpus", "sample:pl", "--tokenizer", TOKENIZER, "--orders", "17"],
            "17 is not in the range 1<=x<=16",
        ),
        (
            ["count", "--corpus", "sample:pl", "--tokenizer", TOKENIZER, "--memory", "100MB"],
            "--memory is 100 MB, expected at least 284 MB",
        ),
        (["count", "--corpus", "sample:pl"], "Missing option '--tokenizer'"),
        (["build-dict", "--tokenizer", TOKENIZER], "either --corpus C or --counts FILE"),
        (["build-dict", "--tokenizer", TOKENIZER, "--counts", "x", "--corpus", "sample:pl"], "either --corpus C or"),
        (["build-dict", "--tokenizer", TOKENIZER, "--counts", "x", "--min-count", 2], "are for --corpus"),
        (["build-dict", "--tokenizer", TOKENIZER, "--counts", "x", "--encoding", "cp1250"], "are for --corpus"),
        (["build-dict", "--tokenizer", TOKENIZER, "--counts", "/nowhere/x"], "/nowhere/x: no such file"),
    ],
)
def test_what_does_not_fit_is_said(arguments: list[object], message: str, tmp_path: Path) -> None:
    done = run(*arguments, "-o", tmp_path / "out")
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert list(tmp_path.iterdir()) == []


def test_sizes() -> None:
    assert size_in_bytes("4GB") == size_in_bytes("4g") == 4 * 10**9
    assert size_in_bytes(" 1.5 MiB ") == 3 * 2**19
    assert size_in_bytes("800") == 800
    for wrong in ("", "GB", "4 apples", "-1GB", "1e9"):
        with pytest.raises(click.BadParameter):
            size_in_bytes(wrong)
