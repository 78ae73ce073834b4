"""From names to drafters: what is made of which options, what is refused, and what a draft gets to see."""

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from transformers import PreTrainedTokenizerFast

from spectool import FingerprintMismatch, RuntimeUnsupported, SpectoolError
from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.runtime.chat_template import TemplateRefused, messages_of, rendered_text, variables_of
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import DrafterSet
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.loading import load_drafter, load_model
from spectool.tests.runtime.models import drafted, plain, tiny_model
from spectool.tokenization.opening import open_tokenizer

PROMPT = "Most w Jaworowcu zamknięty"


@pytest.fixture(scope="module")
def target() -> tuple[Any, Any]:
    return load_model(str(demo_path("target")))


@pytest.fixture(scope="module")
def other() -> tuple[Any, Any]:
    """A random draft model with another tokenizer."""
    path = demo_path("other")
    tokenizer = TokenizerWrapper(PreTrainedTokenizerFast.from_pretrained(path))
    return tiny_model(vocabulary=len(tokenizer)), tokenizer


@pytest.fixture(scope="module")
def alignment(other: tuple[Any, Any], target: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alignment") / "demo.align"
    sides = open_tokenizer(other[1]), open_tokenizer(target[1])
    build_alignment(*sides, open_corpus("sample:pl"), path, lambda step: None, sample=0)
    return path


def test_what_is_made(target: tuple[Any, Any], other: tuple[Any, Any], alignment: Path) -> None:
    tokenizer, draft = target[1], str(demo_path("draft"))
    assert load_drafter(tokenizer, history=False) is None
    assert repr(load_drafter(tokenizer)) == "<DrafterSet: history>"
    assert repr(load_drafter(tokenizer, draft_model=draft, history=False)) == "<DrafterSet: model>"
    assert isinstance(load_drafter(tokenizer, draft_model=load_model(draft)), DrafterSet)
    by_path = load_drafter(demo_path("target"), draft_model=other, alignment=alignment, history=False)
    assert isinstance(by_path, DrafterSet) and by_path.name == "model"
    assert isinstance(by_path.members[0], TranslatedDrafter)


def test_the_least_probability_ends_drafts_of_models_too(
    target: tuple[Any, Any], other: tuple[Any, Any], alignment: Path
) -> None:
    tokenizer = target[1]
    for options in ({"draft_model": str(demo_path("draft"))}, {"draft_model": other, "alignment": alignment}):
        lengths = []
        for least in (0.0, 1.0):
            drafter = load_drafter(tokenizer, **options, history=False, min_probability=least)
            assert drafter is not None
            (model,) = drafter.members
            model.start(tokenizer.encode(PROMPT))
            lengths.append(len(model.propose(12).tokens))
        assert lengths[0] >= 10 and 1 <= lengths[1] <= 4, "one draft token, in one or a few of the target's"


def test_a_draft_of_another_tokenizer_generates_what_the_target_would(
    target: tuple[Any, Any], other: tuple[Any, Any], alignment: Path
) -> None:
    model, tokenizer = target
    prompt = tokenizer.encode(PROMPT)
    statistics = DraftStatistics()
    drafter = load_drafter(tokenizer, draft_model=other, alignment=str(alignment), history=False)
    assert drafted(model, prompt, drafter, 24, statistics=statistics) == plain(model, prompt, 24)
    assert set(statistics.proposed_by) == {"model"}


def test_a_missing_alignment_is_asked_for_whatever_lies_in_the_cache_folder(
    target: tuple[Any, Any], other: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path))
    (tmp_path / "moved.align").symlink_to("nowhere")
    (tmp_path / "drafts" / "broken").mkdir(parents=True)
    (tmp_path / "drafts" / "broken" / "pruning.json").write_text("[" * 100_000)
    with pytest.raises(RuntimeUnsupported) as error:
        load_drafter(target[1], draft_model=other)
    command = f"spectool align --draft {demo_path('other')} --target {demo_path('target')}"
    assert command in str(error.value)
    with pytest.raises(RuntimeUnsupported, match="auto: no draft model is set up"):
        load_drafter(target[1], draft_model="auto")


def test_refusals(target: tuple[Any, Any], other: tuple[Any, Any], alignment: Path, tmp_path: Path) -> None:
    draft = str(demo_path("draft"))
    refused: list[tuple[Any, dict[str, Any], type[SpectoolError], str]] = [
        (other, {"draft_model": draft, "alignment": alignment}, FingerprintMismatch, "spectool align --draft"),
        (target, {"draft_model": draft, "alignment": alignment}, RuntimeUnsupported, "Leave the alignment out"),
        (target, {"draft_model": str(tmp_path / "no")}, RuntimeUnsupported, "no such directory"),
    ]
    for (_, tokenizer), options, kind, message in refused:
        with pytest.raises(kind, match=message):
            load_drafter(tokenizer, **options)


def test_a_template_that_is_given_replaces_one_of_mlx_lm_and_may_be_anything(tmp_path: Path) -> None:
    shutil.copytree(demo_path("target"), tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"chat_template_type": "deepseek_v32"}')
    for template, shown, known in (("<{{ messages[0].content }}>", "<Ala>", {"messages"}), ("{{" + "-" * 9999, "", {})):
        tokenizer = load_model(str(tmp_path / "model"), chat_template=template)[1]
        assert variables_of(tokenizer) == set(known)
        with nullcontext() if shown else pytest.raises(TemplateRefused):
            assert rendered_text(tokenizer, messages_of("Ala"), {}) == shown


def test_a_model_whose_module_ends_the_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hf_olmo", None)
    monkeypatch.delitem(sys.modules, "mlx_lm.models.olmo", raising=False)
    shutil.copytree(demo_path("target"), tmp_path / "olmo")
    (tmp_path / "olmo" / "config.json").write_text('{"model_type": "olmo"}')
    with pytest.raises(RuntimeUnsupported, match="a package that it needs is missing"):
        load_model(str(tmp_path / "olmo"))
