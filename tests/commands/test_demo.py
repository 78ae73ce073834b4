"""The demo's model really corrects the texts that it is shown, and drafts from them save most of its passes."""

from spectool.commands.demo import _SLIPS, _TOKENS, _correction, _written
from spectool.corpora import sample_path
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter, load_model


def test_the_texts_are_corrected_in_a_third_of_the_passes() -> None:
    sample = sample_path("pl").read_text(encoding="utf-8")
    model, tokenizer = load_model(str(demo_path("target")))
    prompts = [_correction(tokenizer, text) for text in _SLIPS]
    plain = _written(model, tokenizer, prompts, None, _TOKENS)
    drafted = _written(model, tokenizer, prompts, load_drafter(tokenizer), _TOKENS)
    assert plain.texts == drafted.texts
    for slips, text, drafting in zip(_SLIPS, drafted.texts, drafted.drafting, strict=True):
        heading, paragraph = slips.split("\n")
        assert paragraph not in sample
        assert f"{heading}\n{paragraph.split()[0]}{text}" in sample
        assert len(text) + 3 > len(paragraph) - len(paragraph.split()[0])  # all of it
        assert drafting.passes * 3 < drafting.tokens
