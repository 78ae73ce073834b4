"""``spectool emulate``: figures for every strategy and drafter."""

import re
from pathlib import Path

import pytest

from spectool.commands import console
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.emulate.emulating import OTHER, TARGET, figures, run
from spectool.tokenization import open_tokenizer

pytestmark = pytest.mark.system
STRATEGIES = ["none", "naive", "context", "intersection", "byte-aligned"]
COLUMNS = [
    "k",
    "strategy",
    "tokens",
    "tokens_per_pass",
    "acceptance",
    "without_proposal",
]


def test_every_strategy_at_two_and_four_draft_tokens(work: Path) -> None:
    """The bundled draft knows the sample; its ids are translated to the other vocabulary."""
    corpus = work / "pl.few.txt"
    facts = figures("--draft", demo_path("draft"), "--tokenizer", OTHER, "--corpus", corpus)
    assert list(facts) == ["corpus", "documents", "plain_text", "tokens", "target", "draft", "runs"]
    target = open_tokenizer(OTHER)
    lines = [line for line in corpus.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert facts["documents"] == len(lines)
    assert facts["tokens"] == sum(len(target.encode(line)) for line in lines)
    assert (facts["target"], facts["draft"]) == (OTHER, str(demo_path("draft")))
    rows = facts["runs"]
    assert [(row["k"], row["strategy"]) for row in rows] == [(k, name) for k in (2, 4) for name in STRATEGIES]
    for row in rows:
        assert list(row) == COLUMNS
        assert row["tokens_per_pass"] >= 1
        assert 0 <= row["acceptance"] <= 1
        assert 0 <= row["without_proposal"] < 1
    by_name = {(row["k"], row["strategy"]): row["tokens_per_pass"] for row in rows}
    for k in (2, 4):
        assert by_name[k, "byte-aligned"] >= by_name[k, "context"]
        assert by_name[k, "byte-aligned"] > by_name[k, "none"]


def test_the_figures_repeat(work: Path, aligned: list[object]) -> None:
    arguments = [*aligned, "--strategy", "byte-aligned", "--num-draft-tokens", 3]
    first, second = (figures(*arguments)["runs"] for _ in range(2))
    assert first == second


def test_strategies_and_lengths_are_those_asked_for(aligned: list[object]) -> None:
    asked = ["--strategy", "none", "--strategy", "byte-aligned", "--num-draft-tokens", 3, "--num-draft-tokens", 3]
    rows = figures(*aligned, *asked)["runs"]
    assert [(row["k"], row["strategy"]) for row in rows] == [(3, name) for name in ("none", "byte-aligned")]


def test_a_table_for_people(work: Path, aligned: list[object]) -> None:
    arguments = [*aligned, "--strategy", "context", "--num-draft-tokens", 2]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["corpus", "documents", "tokens", "target", "draft"]
    assert re.fullmatch(r"k +strategy +tokens +tokens per pass +acceptance +without proposal", lines[6])
    assert re.fullmatch(r"2 +context +\d+( +[01]\.\d{3}){3}", lines[8])
    (note,) = result.stderr.splitlines()
    assert note.endswith("keeps ordinary text as it is, with these exceptions: normalizes to NFC")


def test_random_weights_guess_nothing(aligned: list[object], neural: Path) -> None:
    facts = figures(*aligned, "--strategy", "byte-aligned", "--strategy", "naive", "--num-draft-tokens", 2)
    assert facts["draft"] == str(neural)
    for row in facts["runs"]:
        assert 1 <= row["tokens_per_pass"] < 1.5
        assert row["without_proposal"] < 1


def test_only_so_many_tokens_are_replayed(work: Path, aligned: list[object]) -> None:
    target = open_tokenizer(TARGET)
    lines = [target.encode(line) for line in (work / "uk.few.txt").read_text(encoding="utf-8").splitlines() if line]
    limit = len(lines[0]) + 3
    drafted = [*aligned, "--strategy", "none", "--num-draft-tokens", 2]
    for arguments in (drafted, ["--corpus", work / "uk.few.txt", "--tokenizer", TARGET]):
        facts = figures(*arguments, "--max-tokens", limit)
        assert (facts["tokens"], facts["documents"]) == (limit, 2), "the last document is cut"
        whole = figures(*arguments, "--max-tokens", 10**6)
        assert (whole["tokens"], whole["documents"]) == (sum(map(len, lines)), len(lines))


def test_what_drafts_is_what_generate_drafts_by_default(work: Path) -> None:
    arguments = ["--corpus", work / "uk.txt", "--tokenizer", TARGET]
    default, said = figures(*arguments), ["--history", "--min-draft-prob", "0.2", "--num-draft-tokens"]
    assert default == figures(*arguments, *said, "16") == figures(*arguments, *said, "auto")
    assert default["passes"] != figures(*arguments, "--min-draft-prob", "0", "--num-draft-tokens", "8")["passes"]
    assert list(default["accepted_by_source"]) == ["history"]


def test_a_line_now_and_then_where_nobody_looks(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--corpus", work / "uk.txt", "--tokenizer", TARGET]
    assert run(*arguments).stderr == "", "nothing to say within half a minute"
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.001)
    lines = run(*arguments).stderr.splitlines()
    assert len(lines) > 2
    for line in lines:
        assert re.fullmatch(r"replaying: [\d.k]+ of [\d.k]+ tokens, [\d:]+ so far, [\d:?]+ to go", line), line
