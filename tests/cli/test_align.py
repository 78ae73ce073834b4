"""What `align` prints of a pair: a dozen figures, and a verdict that follows them."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spectool.artifacts.manifest import Manifest, read_manifest
from spectool.commands.shared.align_summary import judge, summarize

from ..running import OTHER, TOKENIZER, run


@pytest.fixture
def good(work: Path) -> Manifest:
    return read_manifest(work / "x.align")


def changeable(manifest: Manifest) -> tuple[dict[str, Any], Manifest]:
    statistics = dict(deepcopy(manifest.statistics))
    return statistics, replace(manifest, statistics=statistics)


@pytest.mark.system
def test_one_screen_ends_with_a_verdict_and_the_command_that_uses_the_pair(work: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.align"
    printed = run("align", "--draft", OTHER, "--target", TOKENIZER, "--corpus", work / "few.txt", "-o", path)
    lines = printed.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("verdict "))
    assert first <= 15
    assert " ".join(" ".join(lines[first:]).split()) == f"verdict {judge(read_manifest(path)).verdict}"
    assert printed.stderr.splitlines()[-2:] == [
        f"all figures: spectool inspect --json {path}",
        f"next: spectool generate --model MODEL --draft-model DRAFT --alignment {path} --prompt …",
    ]


def test_what_the_screen_leaves_out_is_in_json_and_inspect(work: Path, good: Manifest) -> None:
    found = json.loads((work / "x.align.json").read_text())
    assert found["statistics"] == good.statistics and found["usable"] is True
    assert found["verdict"] == judge(good).verdict
    inspected = run("inspect", work / "x.align").stdout
    assert all(str(value) in inspected for name, value in summarize(good).items() if " tokenizer" not in name)
    assert "draft check" in inspected and "target limits" in inspected


def test_a_pair_whose_tokenizers_fit_is_fine(good: Manifest) -> None:
    verdict, s = judge(good), good.statistics
    assert verdict.usable and "fine to use" in verdict.verdict
    assert f"{s['draft_to_target']['string_free']:.1%} of the draft's text" in verdict.verdict
    assert f"{s['ceiling']['byte-aligned']['4']:.2f} tokens" in verdict.verdict


def test_a_side_that_goes_through_text_is_said_to_take_longer(good: Manifest) -> None:
    s, manifest = changeable(good)
    assert "again as text" not in judge(manifest).verdict
    s["target_to_draft"]["string_free"] = 0.001
    verdict = judge(manifest)
    assert verdict.usable and "0.1% of the target's" in verdict.verdict and "again as text" in verdict.verdict


@pytest.mark.parametrize(("kept", "usable", "words"), [(0.55, True, "with losses"), (0.3, False, "hardly worth using")])
def test_what_translation_loses_decides(good: Manifest, kept: float, usable: bool, words: str) -> None:
    s, manifest = changeable(good)
    at_best = 1 + 4 * s["target_to_draft"]["tokens"] / s["draft_to_target"]["tokens"]
    s["ceiling"]["byte-aligned"]["4"] = kept * at_best
    verdict = judge(manifest)
    assert verdict.usable is usable and words in verdict.verdict and f"{kept:.0%} of what" in verdict.verdict


def test_a_side_that_is_unlike_its_tokenizer_is_not_to_be_used(good: Manifest) -> None:
    s, manifest = changeable(good)
    compared = s["target"]["check"]
    compared["different"] = compared["places"] // 50
    verdict = judge(manifest)
    assert not verdict.usable and "at 2.0% of places in the target's ids" in verdict.verdict


def test_text_that_one_side_does_not_keep_tells_nothing_but_that(good: Manifest) -> None:
    s, manifest = changeable(good)
    s["draft_to_target"] |= {"texts": 1, "lossy_texts": 9, "string_free": None}
    s["draft"]["limits"] = ["lower-cases"]
    verdict, facts = judge(manifest), summarize(manifest)
    s["draft_to_target"]["texts"] = 0
    nothing = judge(manifest)
    assert verdict.usable is None and verdict.verdict.startswith("little can be said")
    assert nothing.usable is False and nothing.verdict.startswith("do not use this pair for such text")
    assert "9 of 10 texts (90.0%) were left out, because the draft's tokenizer (lower-cases)" in verdict.verdict
    assert facts["ceiling"].startswith("not counted")


def test_an_empty_text_is_not_taken_for_a_bad_pair(good: Manifest) -> None:
    s, manifest = changeable(good)
    for counts in (s["draft_to_target"], s["target_to_draft"]):
        counts |= {"texts": 0, "tokens": 0, "lossy_texts": 0, "string_free": None}
    s["ceiling"] = {name: dict.fromkeys(of, None) for name, of in s["ceiling"].items()}
    assert judge(manifest).usable is None and judge(manifest).verdict.startswith("nothing can be said")
    assert "an unknown share" in summarize(manifest)["draft to target"]
