"""``spectool emulate --alignment``: the one that is named, one that does not fit, and one made for the run."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spectool.runtime.translation.factory
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.emulate.emulating import OTHER, TARGET, error_of, run

pytestmark = pytest.mark.system


def test_the_alignment_that_is_named_is_used(
    work: Path, aligned: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def make(strategy: str, alignment: Any, *sides: Any) -> Any:
        opened.append(alignment.path)
        return made(strategy, alignment, *sides)

    made = spectool.runtime.translation.factory.make_translator
    monkeypatch.setattr(spectool.runtime.translation.factory, "make_translator", make)
    result = run(*aligned, "--strategy", "none", "--num-draft-tokens", 1)
    assert result.exit_code == 0, result.output
    assert opened == [work / "x.align"]
    assert "aligning" not in result.stderr
    assert re.search(r"^1 +none ", result.stdout, re.MULTILINE)


def test_an_alignment_for_the_other_direction(work: Path) -> None:
    """Found before a model is loaded, with the pair meant."""
    arguments = ["--draft", TARGET, "--tokenizer", OTHER, "--corpus", work / "uk.txt"]
    message = error_of(run(*arguments, "--alignment", work / "x.align"))
    assert f"x.align: aligned in the other direction, draft {OTHER} and target {TARGET}." in message
    assert message.endswith(f"spectool align --draft {TARGET} --target {OTHER} -o NEW.align"), (
        "the one that is there is good for another pair"
    )


@pytest.mark.parametrize("role", ["draft", "target"])
def test_an_alignment_of_another_tokenizer(work: Path, tmp_path: Path, role: str) -> None:
    spec = json.loads((Path(OTHER if role == "draft" else TARGET) / "tokenizer.json").read_text(encoding="utf-8"))
    spec["added_tokens"].append({**spec["added_tokens"][0], "id": 1, "content": "<another>"})
    spec["added_tokens"][-1]["id"] = max(spec["model"]["vocab"].values()) + 1
    changed = tmp_path / "tokenizer.json"
    changed.write_text(json.dumps(spec), encoding="utf-8")
    sides = {"draft": OTHER, "target": TARGET, role: str(changed)}
    arguments = ["--draft", sides["draft"], "--tokenizer", sides["target"]]
    result = run(*arguments, "--alignment", work / "x.align", "--corpus", work / "uk.txt")
    message = error_of(result)
    assert re.search(rf"x\.align: built for tokenizer \w{{8}}…, {re.escape(str(changed))} is \w{{8}}…\.", message)
    assert message.endswith(f"spectool align --draft {sides['draft']} --target {sides['target']} -o NEW.align")


def test_swapped_tokenizers_in_the_manifest(work: Path, tmp_path: Path) -> None:
    shutil.copytree(work / "x.align", tmp_path / "x.align")
    manifest = tmp_path / "x.align" / "manifest.json"
    facts = json.loads(manifest.read_text(encoding="utf-8"))
    draft, target = facts["tokenizers"]["draft"], facts["tokenizers"]["target"]
    for name in ("fingerprint", "sources"):  # a tokenizer is known by either
        draft[name], target[name] = target[name], draft[name]
    manifest.write_text(json.dumps(facts), encoding="utf-8")
    arguments = ["--draft", OTHER, "--tokenizer", TARGET, "--corpus", work / "uk.txt"]
    message = error_of(run(*arguments, "--alignment", tmp_path / "x.align"))
    assert "aligned in the other direction" in message
    assert f"spectool align --draft {OTHER} --target {TARGET}" in message


def test_a_damaged_alignment(work: Path, tmp_path: Path, aligned: list[object]) -> None:
    shutil.copytree(work / "x.align", tmp_path / "x.align")
    file = tmp_path / "x.align" / "draft_merges.arrow"
    file.write_bytes(file.read_bytes()[:100])
    rest = ["--draft", OTHER, "--tokenizer", TARGET, "--corpus", work / "uk.txt"]
    assert "draft_merges.arrow" in error_of(run(*rest, "--alignment", tmp_path / "x.align"))
    assert "no such artifact" in error_of(run(*rest, "--alignment", tmp_path / "gone"))


def test_interrupted_while_aligning(work: Path, neural: Path, tmp_path: Path, scratch: Path) -> None:
    """The alignment of a run without --alignment lies in a temporary folder, which goes with the run."""
    command = [sys.executable, "-m", "spectool.cli", "emulate", "--draft", str(neural), "--tokenizer", TARGET]
    command += ["--corpus", str(work / "uk.txt")]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(scratch)},
    )
    assert running.stderr is not None
    said = [running.stderr.readline() for _ in range(2)]
    assert said[-1].startswith("aligning the two tokenizers"), said
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert output == ""
    assert errors == "Interrupted. Nothing was left half-written.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]


def test_without_an_alignment_one_is_made_and_taken_away(
    work: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundled draft knows the sample; its ids are translated to the other vocabulary."""
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    arguments = ["--draft", demo_path("draft"), "--tokenizer", OTHER, "--corpus", work / "pl.few.txt"]
    result = run(*arguments, "--strategy", "context", "--strategy", "byte-aligned", "--num-draft-tokens", 4, "--json")
    assert result.exit_code == 0, result.output
    assert "aligning the two tokenizers; `spectool align` keeps the result for later runs" in result.stderr
    context, byte_aligned = (row["tokens_per_pass"] for row in json.loads(result.stdout)["runs"])
    assert byte_aligned > context + 0.2
