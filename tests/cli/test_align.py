"""What `align` and `inspect` say of a pair: a dozen figures, and a verdict that follows them."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.manifest import Manifest
from spectool.commands.align import judgement

from ..running import OTHER, TOKENIZER, run


@pytest.fixture
def good(work: Path) -> Manifest:
    return read_manifest(work / "x.align")


def changeable(manifest: Manifest) -> tuple[dict[str, Any], Manifest]:
    statistics = dict(deepcopy(manifest.statistics))
    return statistics, replace(manifest, statistics=statistics)


@pytest.mark.nightly
def test_one_screen_ends_with_a_verdict_and_the_command_that_uses_the_pair(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("-x.align")
    printed = run("align", "--draft", OTHER, "--target", TOKENIZER, "--corpus", work / "few.txt", "-o", path)
    lines = printed.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("verdict "))
    assert first <= 20
    assert " ".join(" ".join(lines[first:]).split()) == f"verdict {judgement(read_manifest(path))['verdict']}"
    used = f"--model MODEL --draft-model DRAFT --alignment {path}"
    assert printed.stderr.splitlines()[-1] == f"next: spectool generate {used} --prompt …"


def test_the_judgement_is_in_json_and_inspect(work: Path, good: Manifest) -> None:
    found = json.loads((work / "x.align.json").read_text())
    assert found["statistics"] == good.statistics and found["usable"] is True
    assert found["verdict"] == judgement(good)["verdict"]
    inspected = json.loads(run("inspect", work / "x.align", "--json").stdout)
    judged = {name.replace(" ", "_"): value for name, value in judgement(good).items()}
    assert judged.items() <= inspected.items() and judged.items() <= found.items()
    assert inspected["statistics"] == good.statistics
    shown = run("inspect", work / "x.align").stdout
    assert "verdict " in shown and "lossy texts " in shown


def test_a_report_that_lacks_figures_gets_no_verdict(good: Manifest) -> None:
    for statistics in ({}, {"draft_to_target": 3}, {**good.statistics, "target": []}):
        assert judgement(replace(good, statistics=statistics))["usable"] is None


def test_a_pair_whose_tokenizers_fit_is_fine_and_one_whose_joins_are_lost_is_not(good: Manifest) -> None:
    s, manifest = changeable(good)
    found, length = judgement(good), s["target_to_draft"]["tokens"] / s["draft_to_target"]["tokens"]
    assert found["usable"] and f"as {length:.2f} target" in found["verdict"]
    compared = s["target"]["check"]
    compared["different"] = compared["places"] // 50
    assert judgement(manifest)["usable"] is False


def test_text_that_a_side_does_not_keep_tells_nothing_but_that(good: Manifest) -> None:
    s, manifest = changeable(good)
    s["draft_to_target"] |= {"texts": 1, "lossy_texts": 9}
    s["draft"]["limits"] = ["lower-cases"]
    found = judgement(manifest)
    s["draft_to_target"]["texts"] = 0
    assert found["usable"] is None and judgement(manifest)["usable"] is False
    assert "the draft's lower-cases" in found["verdict"]
    for counts in (s["draft_to_target"], s["target_to_draft"]):
        counts |= {"texts": 0, "tokens": 0, "lossy_texts": 0}
    found = judgement(manifest)
    assert found["usable"] is None and found["verdict"].startswith("nothing can be said"), "an empty text"
