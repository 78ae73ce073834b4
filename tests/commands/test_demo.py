"""The demo's model really corrects the text that it is shown, and drafts from it save most of its passes."""

import re

import pytest

from spectool.commands.demo import _BEGIN, _HEADING, _PARAGRAPH, corrected
from spectool.corpora import sample_path
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter, load_model
from spectool.tests.running import run


def test_the_text_is_corrected_in_a_third_of_the_passes() -> None:
    sample = sample_path("pl").read_text(encoding="utf-8")
    model, tokenizer = load_model(str(demo_path("target")))
    plain, _ = corrected(model, tokenizer)
    text, drafting = corrected(model, tokenizer, drafter=load_drafter(tokenizer))
    assert plain == text
    assert _PARAGRAPH not in sample and _PARAGRAPH.startswith(_BEGIN)
    assert f"{_HEADING}\n{_BEGIN}{text}" in sample
    assert len(text) + 3 > len(_PARAGRAPH) - len(_BEGIN)  # all of it
    assert drafting.passes * 3 < drafting.tokens


@pytest.mark.nightly
def test_the_command_says_what_was_saved() -> None:
    said = run("demo").stdout
    assert re.search(
        r"\d+ tokens in \d\d passes [\s\S]+Without drafts, it took \d+ passes to write the same text", said
    )
