"""From a model to a recommendation: what is built and found again, what is said, and what a kill leaves."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from spectool.artifacts.default_paths import digest
from spectool.artifacts.pruned_draft import RECORD, honesty_of, read_record
from spectool.build.alignment import check
from spectool.build.alignment.replayed_text import Written, written
from spectool.build.packs.stage import open_pack
from spectool.commands.setup_steps import ALL, DRAFT, LOOK_UPS, PLAIN, Setup
from spectool.corpora import sample_path
from spectool.measure.bench.results import PLAIN as NO_DRAFTS
from spectool.measure.bench.results import TOO_SHORT, UNFIT, Block, Verdict, verdict_of
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter
from spectool.tests.measure.bench.runs import block, generation, run_of
from spectool.tests.running import error_of, figures, run
from spectool.tests.tiers import slow
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

TARGET, DRAFT_MODEL = demo_path("target"), demo_path("draft")
BRIEF = ("--language", "pl", "--seconds", 0.5)
STEPS = ["doctor", "build-dict", "build-dict", "prune-draft", "align", "doctor", "bench"]
DOCTOR = [f"running: doctor, {each}" for each in (TARGET, "other-draft-pl")]
SAID = [DOCTOR[0], "running: build-dict, pl-", "running: build-dict, sample-pl", "running: prune-draft, "]
SAID += ["running: align, ", DOCTOR[1], "measuring "]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nothing disturbs a measurement."""
    monkeypatch.setattr("spectool.measure.doctor.ALIKE", 1e9)
    monkeypatch.setattr("spectool.runtime.policy.costs._doubt", lambda key: None)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return Path(shutil.copy(sample_path("pl"), tmp_path / "own.txt"))


@pytest.fixture
def other_draft(tmp_path: Path) -> Path:
    """A draft model with another tokenizer than the target's, and no sign of having been pruned."""
    out = tmp_path / "other-draft"
    done = run("prune-draft", "--draft", DRAFT_MODEL, "--corpus", "sample:pl", "--ids", 1400, "-o", out)
    assert done.exit_code == 0, done.output
    (out / RECORD).unlink()
    return out


def small_pack(language: str, text: object, out: Path) -> Path:
    done = run("pack", text, "--language", language, "--min-count", 1, "-o", out)
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture
def german(tmp_path: Path) -> Path:
    """A pack of a language in which spectool has neither text nor prompts."""
    lines = ["Der Fluss fließt durch die Stadt und die Leute gehen über die Brücke nach Hause."] * 20
    (tmp_path / "de.txt").write_text("\n".join(lines), encoding="utf-8")
    return small_pack("de", tmp_path / "de.txt", tmp_path / "de.pack")


@pytest.fixture
def polish(tmp_path: Path) -> Path:
    """A small pack, which is compiled in a second."""
    return small_pack("pl", "sample:pl", tmp_path / "small.pack")


def kept(found: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(step["step"], step["kept"]) for step in found["steps"]]


@pytest.mark.nightly
def test_what_is_built_is_found_by_the_command_that_is_recommended(
    cache: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundled language needs neither text nor network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert kept(figures("setup", TARGET, *BRIEF)) == [("doctor", False), ("build-dict", False)]
    assert kept(figures("setup", TARGET, *BRIEF)) == [("doctor", True), ("build-dict", True)]
    found = figures("setup", TARGET, *BRIEF, "--corpus", text)
    assert kept(found) == [("doctor", True), ("build-dict", True), ("build-dict", False)]
    dictionaries = sorted(cache.glob("*.dict"))
    assert len(dictionaries) == 2
    done = run("generate", "--model", TARGET, "--prompt", "Most w", "--max-tokens", 2, "--no-history")
    assert all(dictionary.name in done.stderr for dictionary in dictionaries)
    recommended = shlex.split(found["command"])
    assert recommended[0] == "spectool"
    assert run(*recommended[1:], "--prompt", "Most w", "--max-tokens", 2).exit_code == 0

    before = {path: path.stat().st_mtime_ns for path in dictionaries}
    again = figures("setup", TARGET, *BRIEF, "--corpus", text)
    assert kept(again) == [("doctor", True), ("build-dict", True), ("build-dict", True)]
    assert {path: path.stat().st_mtime_ns for path in dictionaries} == before
    assert again["run"] == found["run"] and len(list((cache / "setup").iterdir())) == 1

    with text.open("a", encoding="utf-8") as stream:
        stream.write("Jeszcze jeden wiersz.\n")
    changed = figures("setup", TARGET, *BRIEF, "--corpus", text)
    assert kept(changed) == [("doctor", True), ("build-dict", True), ("build-dict", False)]
    assert sorted(cache.glob("*.dict")) == dictionaries  # replaced, so that only the new one is found


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("no/where", "--language", "pl"), "no/where"),
        (("model.gguf", "--language", "pl"), "GGUF files cannot be read"),
        (("models/model.gguf", "--language", "pl"), "GGUF files cannot be read"),  # no hub id
        (("gone/model.gguf", "--language", "pl"), "GGUF files cannot be read"),
        ((TARGET, "--language", "cs"), "--corpus FILE"),
        ((TARGET, "--language", "cs"), "spectool pack TEXT --language cs -o cs.pack"),
        (("owner/model", "--language", "cs"), "cs: no pack"),  # before the model is fetched
        (("owner/model", "--language", "pl", "--pack", "typo"), "typo: no such pack"),
        (("owner/model", "--language", "pl", "--draft-model", "./gone"), "./gone: no such directory"),
        (("owner/model", "--language", "pl"), "owner/model"),
        ((TARGET, "--language", "pl", "--corpus", "cp1250.txt"), "cp1250.txt:1: expected UTF-8"),
        ((TARGET, "--language", "pl", "--corpus", "nothing.txt"), "nothing.txt"),
        ((TARGET, "--language", "pl", "--corpus", "sample:pl", "--draft-model", "nowhere"), "nowhere"),
    ],
)
def test_what_is_not_there_is_named_before_anything_is_made(
    cache: Path, arguments: Sequence[object], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("model.gguf", "models/model.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    (tmp_path / "cp1250.txt").write_bytes("Zażółć gęślą jaźń, mówi ktoś.\n".encode("cp1250") * 9)
    assert named in error_of(run("setup", *arguments))
    assert not list(cache.rglob("*"))


def test_a_folder_with_the_name_of_the_language_is_no_pack(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts may lie there. The dictionary is found again from other places."""
    (tmp_path / "pl").mkdir()
    monkeypatch.chdir(tmp_path)
    made, steps = Setup(str(TARGET), "pl", [], [], None, 1.0), list[Any]()
    packs = made._sources()
    assert packs["pl"].path == open_pack("pl").path
    made.target = open_tokenizer(TARGET)
    monkeypatch.setattr(Setup, "_step", lambda self, *step: steps.append(step[1]))
    made._dictionary("pl", [packs["pl"]], None)
    assert steps[0].startswith(f"pl-{digest(5_000_000, 'pl')}.")


@pytest.mark.nightly
def test_a_draft_model_needs_no_text_and_the_command_no_paths(
    cache: Path, other_draft: Path, polish: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = ("setup", TARGET, *BRIEF, "--pack", polish, "--draft-model", other_draft)
    found = figures(*asked)
    assert kept(found) == [(step, False) for step in [*STEPS[:2], *STEPS[3:-1]]]
    made = ["spectool", "generate", "--model", str(TARGET), "--draft-model", "other-draft-pl"]
    record = read_record(cache / "drafts" / "other-draft-pl")
    assert record is not None and record.inputs["packs"][0]["name"] == polish.name and "bits" not in record.statistics
    drafter = load_drafter(TARGET, draft_model=made[-1], history=False)
    assert drafter is not None and drafter.members[0].honesty == honesty_of(cache / "drafts" / made[-1]) is not None
    for draft in (made[-1], "auto"):
        written = figures(*made[1:-1], draft, "--no-history", "--num-draft-tokens", 2, "--prompt", "Most w", "-m", 4)
        assert "model" in written["sources"]
    again = figures(*asked)
    assert [(step, was or step == "doctor") for step, was in kept(again)] == [(step, True) for step, _ in kept(found)]
    os.utime(other_draft / "model.safetensors", times=(2**32, 2**32))  # trained again
    with monkeypatch.context() as patch:
        patch.setattr("spectool.commands.setup_steps.guesses_of", interrupt)
        assert run(*asked).exit_code == 130
    assert read_record(cache / "drafts" / made[-1]) == record, "it is used until there is a new one"
    assert dict(kept(figures(*asked)))["prune-draft"] is False
    before = read_record(cache / "drafts" / made[-1])
    pruned = figures("setup", TARGET, *BRIEF, "--pack", polish, "--draft-model", made[-1])
    assert "prune-draft" not in dict(kept(pruned)), "it has been pruned before"

    (other_draft.parent / "b").mkdir()
    namesake = shutil.copytree(other_draft, other_draft.parent / "b" / other_draft.name)
    other = shlex.split(figures("setup", TARGET, *BRIEF, "--pack", polish, "--draft-model", namesake)["command"])
    another = small_pack("pl", "sample:pl", tmp_path / "another.pack")
    figures("setup", TARGET, *BRIEF, "--pack", another, "--draft-model", other_draft)
    assert made[-1] in {each["made"] for each in figures(*asked)["steps"]}
    assert read_record(cache / "drafts" / made[-1]) == before, "another model may be aligned with it"
    drafts = {path.name: read_record(path) for path in cache.glob("drafts/[!.]*")}
    assert len(drafts) == 3 and all(each and each.tokenizers["pruned"]["name"] == name for name, each in drafts.items())
    assert "--draft-model" not in other or other[-1] in drafts.keys() - {made[-1]}


def interrupt(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


def random_model(out: Path, tokenizer: Path, ids: int) -> Path:
    """A model of the demo draft's shape with a tokenizer, which guesses at random."""
    config = json.loads((DRAFT_MODEL / "config.json").read_text())
    config = {key: value for key, value in config.items() if "quantization" not in key} | {"vocab_size": ids}
    out.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, out)
    (out / "config.json").write_text(json.dumps(config))
    model = llama.Model(llama.ModelArgs.from_dict(config))
    mx.save_safetensors(str(out / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    return out


@pytest.mark.nightly
def test_a_draft_model_that_cannot_help_is_refused_before_anything_is_made(
    cache: Path, tmp_path: Path, other_draft: Path, polish: Path
) -> None:
    asked = ("--language", "pl", "--pack", polish, "--seconds", 0.5, "--draft-model")
    assert "more than half of the" in error_of(run("setup", DRAFT_MODEL, *asked, TARGET))
    (tmp_path / "bytes").mkdir()
    alphabet = {char: place for place, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Backend(models.BPE(alphabet, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.save(str(tmp_path / "bytes" / "tokenizer.json"))
    (tmp_path / "bytes" / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    of_bytes = random_model(tmp_path / "of-bytes", tmp_path / "bytes", 256)
    assert "longer tokens" in error_of(run("setup", TARGET, *asked, of_bytes))
    assert not [path for kind in ("*.dict", "doctor/*", "drafts/*") for path in cache.glob(kind)]

    ids = len(json.loads((other_draft / "tokenizer.json").read_text())["model"]["vocab"])
    ignorant = random_model(tmp_path / "ignorant", other_draft, ids + 64)
    message = error_of(run("setup", TARGET, *asked, ignorant))
    assert "its first guesses are right in " in message
    assert not list(cache.glob("drafts/*")) and not list(cache.glob("*.align"))


def test_a_pack_needs_no_text_and_a_draft_model_of_the_same_tokenizer_neither_text_nor_stages(
    cache: Path, german: Path
) -> None:
    asked = ("setup", TARGET, "--language", "DE", "--pack", german, "--seconds", 0.5)
    found = figures(*asked, "--draft-model", DRAFT_MODEL)
    assert kept(found) == [("doctor", False), ("build-dict", False), ("doctor", False)] and list(cache.glob("*.dict"))
    assert (found["pays"], found["recommended"], found["run"]) == (None, None, None)
    used = ["spectool", "generate", "--model", str(TARGET), "--draft-model", str(DRAFT_MODEL)]
    assert shlex.split(found["command"]) == used
    said = run(*asked).stdout
    assert "Not measured" in said and "--corpus FILE" in said and "Every model with this tokenizer" in said


@pytest.mark.nightly
def test_an_alignment_that_failed_its_check_is_not_used_by_the_next_run(
    cache: Path, german: Path, other_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_ids(tokenizer: Tokenizer, texts: list[str]) -> object:
        return (Written(ids[::-1], ends) for ids, ends in written(tokenizer, texts))

    asked = ["setup", TARGET, "--language", "de", "--pack", german, "--corpus", german.with_suffix(".txt")]
    asked += ["--draft-model", other_draft]
    with monkeypatch.context() as patch:
        patch.setattr(check, "written", other_ids)
        first = run(*asked)
    again = run(*asked)
    assert "there already: align" in again.stderr
    for done in (first, again):
        assert done.exit_code == 1 and "drafts are lost" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("given", ["polish", "../pl", ""])
@pytest.mark.parametrize("command", ["setup", "pack"])
def test_a_language_is_a_code(command: str, given: str) -> None:
    refused = run(command, TARGET, "--language", given, *(["-o", "x.pack"] if command == "pack" else []))
    assert refused.exit_code == 2 and "'--language': expected the code of a language" in refused.stderr


def test_a_text_with_nothing_to_count_is_an_error(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.txt").write_text("a\n", encoding="utf-8")
    arguments = ("--language", "en", "--seconds", 0.5, "--corpus", tmp_path / "tiny.txt")
    assert "Give more text" in error_of(run("setup", TARGET, *arguments))
    assert not list(cache.glob("*.dict"))


@pytest.mark.parametrize(
    ("speeds", "pays", "best", "options"),
    [
        ((1.5, 1.2, 1.3), True, LOOK_UPS, []),
        ((1.2, 1.5, 1.3), True, DRAFT, ["--no-dict", "--no-history", "--draft-model", "D-pl"]),
        ((1.2, 1.3, 1.5), True, ALL, ["--draft-model", "D-pl"]),
        ((0.9, 0.8, 0.7), False, PLAIN, ["--num-draft-tokens", "0"]),
    ],
)
def test_the_fastest_is_recommended_and_plain_decoding_where_none_is(
    speeds: Sequence[float], pays: bool, best: str, options: list[str]
) -> None:
    verdict, recommended, command = outcome([timed(number, speeds) for number in range(12)])
    assert command and (verdict.pays, recommended) == (pays, best)
    assert shlex.split(command) == ["spectool", "generate", "--model", "M", *options]


def test_a_bench_that_cannot_tell_recommends_no_draft_model() -> None:
    verdict, recommended, _ = outcome([timed(number, (0.99, 3.0 if number % 2 else 0.5)) for number in range(12)])
    assert (verdict.pays, recommended) == (None, PLAIN)


def test_nothing_is_recommended_on_text_that_loops() -> None:
    for real, said in ((0, UNFIT), (1, UNFIT), (5, TOO_SHORT)):
        verdict, *then = outcome([timed(number, (1.9,), loops=number >= real) for number in range(8)])
        assert (verdict.pays, then) == (None, [None, None])
        assert verdict.sentence.startswith(said) and f"{8 - real} of 8 prompts led" in verdict.sentence


def outcome(blocks: Sequence[Block]) -> tuple[Verdict, str | None, str | None]:
    verdict = verdict_of(run_of(blocks))
    made = Setup("M", "pl", [], [], "D", 1.0, ["--draft-model", "D-pl"])
    return verdict, *made.recommended(verdict)


def timed(number: int, speeds: Sequence[float], loops: bool = False) -> Block:
    """A block in which drafters are as fast as that, compared with plain decoding."""
    seconds, output = 1 + number % 3 / 100, {"output": (1,) * 64} if loops else {}
    drafted = [
        generation(name, None, seconds / speed, **output)
        for name, speed in zip((LOOK_UPS, DRAFT, ALL), speeds, strict=False)
    ]
    return block(f"p{number}", [generation(NO_DRAFTS, 0, seconds, **output), *drafted])


@pytest.mark.nightly
@pytest.mark.parametrize("sent", [signal.SIGINT, *slow(signal.SIGKILL)])
def test_a_run_that_is_stopped_in_every_step_goes_on_and_leaves_nothing_half_written(
    tmp_path: Path, other_draft: Path, sent: signal.Signals
) -> None:
    command = [sys.executable, "-m", "spectool.cli", "setup", str(TARGET), *map(str, BRIEF)]
    command += ["--corpus", "sample:pl", "--draft-model", str(other_draft), "--json"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    for number, step in enumerate(STEPS):
        with subprocess.Popen(command, **pipes) as process:
            assert process.stderr is not None
            begun = next(line for line in process.stderr if line.startswith(SAID[number]))
            process.stderr.readline()  # what the step says first: it is in the middle of it
            for _ in range(20):  # on Linux MLX starts a compiler through system(), which ignores Ctrl-C meanwhile
                process.send_signal(sent)
                with suppress(subprocess.TimeoutExpired):
                    _, rest = process.communicate(timeout=3)
                    break
        assert process.returncode in (-sent, 130), step + begun + rest
        assert process.returncode != 130 or "Interrupted" in rest
    finished = subprocess.run(command, check=True, **pipes)
    found = json.loads(finished.stdout)
    # A measurement of passes that other programs disturbed is made again.
    assert [(step, was or step == "doctor") for step, was in kept(found)] == [(step, True) for step in STEPS[:-1]]
    assert not [path for path in tmp_path.rglob(".*") if path.name.endswith((".partial", ".work", ".previous"))]
