"""What commands print: texts, JSON, progress and silence, from text to figures."""

import json
import os
import select
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from spectool.artifacts.artifact import read_manifest
from spectool.commands.shared.console import show
from spectool.measure.table import table
from spectool.runtime.demo_models import demo_path
from spectool.tests.running import OTHER, TOKENIZER, process, run


@pytest.mark.nightly
def test_json_of_each_command(work: Path) -> None:
    inspected = json.loads(run("inspect", work / "uk.dict", "--json", "--lookup", "комп").stdout)
    assert inspected["format"] == "spectool-dictionary"
    assert set(inspected["proposal"][0]) == {"after", "comes", "probability", "in_all"}
    assert inspected["bytes"] == (work / "uk.dict").stat().st_size
    statistics = json.loads(run("inspect", work / "x.align", "--json").stdout)["statistics"]
    assert statistics["draft_to_target"]["different_tokens"] == statistics["target_to_draft"]["different_tokens"] == 0
    looked_at = json.loads(run("inspect", TOKENIZER, "--json").stdout)
    assert looked_at["roles"]["eos"] == [2]
    assert looked_at["limits"] == []
    emulated = json.loads(run("predict", "--dict", work / "uk.dict", "--corpus", "sample:uk", "--json").stdout)
    assert emulated["tokens"] > emulated["passes"] > 0
    accepted = sum(counts["accepted"] for counts in emulated["accepted_by_source"].values())
    assert 0 <= emulated["passes"] + accepted - emulated["tokens"] <= emulated["documents"], "a text may end in a draft"
    assert emulated["tokens_per_pass"] == round(emulated["tokens"] / emulated["passes"], 4)


@pytest.mark.nightly
def test_results_and_progress_do_not_mix(tmp_path: Path) -> None:
    build = ("build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", "--max-bytes", "14KB")
    done = process(*build, "-o", tmp_path / "x.dict")
    assert done.returncode == 0
    keys = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert keys == ["path", "bytes", "target", "documents"]
    steps = done.stderr.splitlines()
    assert steps[:2] == [f"opening {TOKENIZER}", "splitting into tokens"] and len(steps) == len(set(steps)) > 5
    assert steps[-1].startswith(f"next: spectool generate --model MODEL --dict {tmp_path / 'x.dict'}")
    emulated = process("predict", "--dict", tmp_path / "x.dict", "--corpus", "sample:pl")
    assert emulated.returncode == 0
    assert emulated.stderr == "opening the dictionary's tokenizer\n", "no progress bar where nobody looks"


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
@pytest.mark.parametrize(
    ("arguments", "bar"),
    [
        ("predict --dict uk.dict --corpus sample:uk", b"replaying: 100%"),
        (f"build-dict --tokenizer {TOKENIZER} --corpus sample:uk -o m.dict", b"reading: 100%"),
        (f"prune-draft --draft {demo_path('draft')} --corpus sample:pl -o small", b"reading: 100%"),
        (f"generate --model {demo_path('target')} -m 1 --prompt {'Most-' * 200}", b"\rreading the prompt: 0 of "),
    ],
)
def test_progress_on_a_terminal(work: Path, tmp_path: Path, arguments: str, bar: bytes) -> None:
    (tmp_path / "uk.dict").symlink_to(work / "uk.dict")
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 100))
    command = [sys.executable, "-m", "spectool.cli", *arguments.split()]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, check=True, cwd=tmp_path)
        drawn = b""
        while select.select([leader], [], [], 0.2)[0]:
            drawn += os.read(leader, 65_536)
        assert bar in drawn
    finally:
        os.close(follower)
        os.close(leader)
    assert bar not in done.stdout


@pytest.mark.nightly
def test_a_reader_that_goes_away(work: Path) -> None:
    """``| head -1``, and one that reads nothing: not a word on stderr."""
    for arguments in ("inspect uk.dict", "inspect uk.dict --json", "build-dict --help"):
        for reader, lines in (("head -1", 1), ("true", 0)):
            script = f"{sys.executable} -m spectool.cli {arguments} | {reader}"
            done = subprocess.run(["sh", "-c", script], cwd=work, capture_output=True, text=True, check=False)
            assert done.stderr == ""
            assert len(done.stdout.splitlines()) == lines


@pytest.mark.nightly
def test_text_that_the_locale_lacks_neither_ends_a_command_nor_is_misread(work: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "iso-8859-2", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in (["--help"], ["inspect", work / "uk.dict", "--lookup", "комп"]):
        done = process(*command, env={**environment, "LC_ALL": "C"}, encoding="iso-8859-2")
        assert done.returncode == 0, done.stderr
        assert command == ["--help"] or "комп".encode("iso-8859-2", "backslashreplace").decode() in done.stdout


def test_the_default_place_is_the_users_cache(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    build = ("build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:pl", "--max-bytes", "14KB", "--json")
    facts = json.loads(process(*build, env=environment).stdout)
    assert facts["path"].startswith(str(tmp_path))
    assert facts["target_fingerprint"][:8] in facts["path"]
    assert process("inspect", facts["path"]).returncode == 0


def test_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show({"a": 1, "long key": ["x", "y"], "none": []}, as_json=False)
    assert capsys.readouterr().out == "a         1\nlong key  x\n          y\nnone      none\n"
    show({"ż": [1]}, as_json=True)
    assert capsys.readouterr().out == '{\n "ż": [\n  1\n ]\n}\n'
    laid = table(["name", "n"], [["a", "1"], ["bcdefg", "200"]])
    assert laid == "name      n\n------  ---\na         1\nbcdefg  200"


def test_repairs_are_said(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes("добрий день,\x7f добрий вечір\n".encode() * 5)
    result = run("build-dict", "--tokenizer", TOKENIZER, "--corpus", text, "-o", tmp_path / "x.dict")
    assert result.exit_code == 0
    assert "control characters" in result.output


def test_a_pair_of_which_no_text_is_kept_gets_no_figures(tmp_path: Path) -> None:
    """A tokenizer that lower-cases: nothing of this text comes back, so nothing can be counted."""
    corpus = tmp_path / "pl.txt"
    corpus.write_text("Ala ma kota, a Kot ma Alę.\n", encoding="utf-8")
    lower = json.loads(Path(OTHER).read_text(encoding="utf-8")) | {"normalizer": {"type": "Lowercase"}}
    (draft := tmp_path / "lower.json").write_text(json.dumps(lower))
    result = run("align", "--draft", draft, "--target", TOKENIZER, "--corpus", corpus, "-o", tmp_path / "x.align")
    assert result.exit_code == 0, result.output
    _, _, verdict = " ".join(result.stdout.split()).partition(" verdict ")
    assert verdict.startswith("do not use this pair for such text") and "the draft's normalizes with Lower" in verdict
    assert "next:" not in result.stderr
    statistics = read_manifest(tmp_path / "x.align").statistics
    assert statistics["draft_to_target"]["tokens"] == 0


def test_the_same_tokenizer_twice_needs_no_alignment(tmp_path: Path) -> None:
    result = run(
        "align", "--draft", TOKENIZER, "--target", TOKENIZER, "--corpus", "sample:pl", "-o", tmp_path / "x.align"
    )
    assert result.exit_code == 2, result.output
    assert "no alignment is needed" in result.stderr
    assert not (tmp_path / "x.align").exists()


def test_a_look_up_without_a_hit_says_what_to_do(work: Path) -> None:
    found = run("inspect", work / "uk.dict", "--lookup", "qqq")
    assert found.exit_code == 0
    assert "proposes nothing after this text" in found.stderr
    assert "\nproposal  none\n" in found.stdout and "fingerprint" not in found.stdout
