"""Draft models and alignments in the user's cache, as `generate` finds them."""

import json
import shutil
from pathlib import Path

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.tests.running import error_of, figures, run

TARGET, DRAFT = demo_path("target"), demo_path("draft")
GENERATE = ("generate", "--model", TARGET, "--prompt", "Most w", "--max-tokens", 8, "--no-history")
GENERATE += ("--num-draft-tokens", 2)


@pytest.mark.nightly
def test_a_draft_in_the_cache_is_found_by_its_name_and_its_alignment_by_the_tokenizers(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no draft model is set up" in error_of(run(*GENERATE, "--draft-model", "auto"))
    made = run("prune-draft", "--draft", DRAFT, "--corpus", "sample:pl", "--ids", 400)
    assert "next: spectool align --draft draft-sample-pl " in made.stderr
    assert "align --draft draft-sample-pl" in error_of(run(*GENERATE, "--draft-model", "draft-sample-pl"))
    assert "no draft model is set up" in error_of(run(*GENERATE, "--draft-model", "auto"))

    assert run("align", "--draft", "draft-sample-pl", "--target", TARGET).exit_code == 0
    (alignment,) = cache.glob("*.align")
    named = figures(*GENERATE, "--draft-model", "draft-sample-pl")
    given = ("--draft-model", cache / "drafts" / "draft-sample-pl", "--alignment", alignment)
    for each in (named, figures(*GENERATE, "--draft-model", "auto"), figures(*GENERATE, *given)):
        assert (each["text"], each["sources"]) == (named["text"], named["sources"])
        assert "model" in str(each["sources"])
    assert "drafting with draft-sample-pl" in run(*GENERATE, "--draft-model", "auto").stderr

    other = tmp_path / "draft-sample-pl"  # what is named in the current directory goes first
    shutil.copytree(TARGET, other)
    assert figures(*GENERATE, "--draft-model", "draft-sample-pl")["text"] == named["text"]
    shutil.rmtree(other)

    record = cache / "drafts" / "draft-sample-pl" / "pruning.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"tokenizers": {}}))
    assert "no draft model is set up" in error_of(run(*GENERATE, "--draft-model", "auto"))
    alignment.write_bytes(alignment.read_bytes()[:100])
    assert "align --draft draft-sample-pl" in error_of(run(*GENERATE, "--draft-model", "draft-sample-pl"))


def test_nothing_says_what_to_keep() -> None:
    refused = run("prune-draft", "--draft", DRAFT)
    assert refused.exit_code == 2 and "--pack NAME" in refused.stderr
