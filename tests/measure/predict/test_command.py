"""``spectool predict``: figures of what it drafts from."""

from pathlib import Path

import pytest

from spectool.tests.measure.predict.predicting import TARGET, figures
from spectool.tokenization.opening import open_tokenizer

pytestmark = pytest.mark.nightly


def test_only_so_many_tokens_are_replayed(work: Path) -> None:
    target = open_tokenizer(TARGET)
    lines = [target.encode(line) for line in (work / "uk.few.txt").read_text(encoding="utf-8").splitlines() if line]
    limit = len(lines[0]) + 3
    arguments = ["--corpus", work / "uk.few.txt", "--tokenizer", TARGET]
    facts = figures(*arguments, "--max-tokens", limit)
    assert (facts["tokens"], facts["documents"]) == (limit, 2), "the last document is cut"
    whole = figures(*arguments, "--max-tokens", 10**6)
    assert (whole["tokens"], whole["documents"]) == (sum(map(len, lines)), len(lines))


def test_what_drafts_is_what_generate_drafts_by_default(work: Path) -> None:
    arguments = ["--corpus", work / "uk.txt", "--tokenizer", TARGET]
    default = figures(*arguments)
    assert default == figures(*arguments, "--history", "--min-draft-prob", "0.2")
    assert default["passes"] != figures(*arguments, "--min-draft-prob", "0")["passes"]
    assert list(default["accepted_by_source"]) == ["history"]
