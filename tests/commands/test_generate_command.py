"""The command ``generate``: what it refuses, and how it reads prompts."""

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from spectool.runtime.decoding.streaming import GenerationResponse, stream_generate
from spectool.runtime.demo_models import demo_path
from spectool.tests import running as commands
from spectool.tests.commands.chatting import chat_model

TARGET = demo_path("target")
run, figures = (partial(each, "generate", "--model", TARGET) for each in (commands.run, commands.figures))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", ""], "'--prompt': expected a text, got nothing"),
        (["--prompt", "a\udcff"], "'--prompt': not UTF-8 at byte 1"),
        (["--prompt", "a", "--stop", "b", "--show-drafts"], "leave out --json and --stop"),
        (["--prompt", "a"], "no such directory"),
        (["--prompt", "a", "--draft-model", "./gone"], "./gone: no such directory"),
        (["--prompt", "a", "--stop", ""], "'--stop': expected a text, got nothing"),
        (["--prompt", "a", "--num-draft-tokens", "foo"], "'--num-draft-tokens': 'foo' is not a valid number or auto"),
        (["--prompt", "a", "--num-draft-tokens", "65"], "65 is not in the range 0<=x<=64"),
        (["--prompt", "a", "--alignment", "x.align"], "name it with --draft-model D"),
        (["--prompt", "a", "--model", TARGET, "--dict", "x" * 300], "xxx: File name too long. Check the disk"),
    ],
)
def test_generate_refuses(arguments: list[str], message: str) -> None:
    result = run("--model", "/nowhere", *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output


def test_an_interrupted_text_ends_its_line_and_has_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Iterator[GenerationResponse]:
        yield from islice(stream_generate(*arguments, **options), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr("spectool.runtime.decoding.streaming.stream_generate", interrupted)
    result = run("-p", "Most")
    assert result.exit_code == 130 and result.stdout.endswith("\n")
    *figures, last = result.stderr.splitlines()
    found = dict(re.split("  +", line, maxsplit=1) for line in figures if "  " in line)
    assert (found["tokens"], found["finish"], last) == ("3", "interrupted", "Interrupted.")


def test_a_home_directory_has_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "models").symlink_to(TARGET.parent)
    found = run("-p", "Most", "-m", 2, "--model=~/models/target")
    assert found.exit_code == 0, found.output
    draft = f"--draft={demo_path('draft')}"
    for options in (["--dict=~/no.dict"], [draft, "--alignment=~/no.align"], ["--draft-model=~/no"]):
        result = run("-p", "a", "--model=~/models/target", *options)
        assert result.exit_code == 1 and str(tmp_path / "no") in result.output, result.output


@pytest.mark.parametrize("number", ["9" * 5000, "²", "nan", "7\udcff"])
def test_what_is_no_number_is_a_usage_error(number: str) -> None:
    for option in ("seed", "num-draft-tokens", "max-tokens", "top-k"):
        result = run("--model", "/nowhere", "-p", "a", f"--{option}={number}")
        assert result.exit_code == 2 and f"--{option}'" in result.stderr, result.output


def test_a_model_without_its_tokenizer_is_told_so(tmp_path: Path) -> None:
    model = shutil.copytree(TARGET, tmp_path / "model")
    (model / "tokenizer.json").unlink()
    result = run("--model", model, "-p", "a")
    assert result.exit_code == 1 and f"{model}: mlx-lm cannot load this model (no tokenizer.json" in result.stderr


def test_a_prediction_is_followed(tmp_path: Path) -> None:
    command = ["-p", "Most w Jaworowcu", "--temp", 0, "-m", 40]
    plain = figures(*command, "--num-draft-tokens", 0)
    file = tmp_path / "prediction.txt"
    file.write_bytes(plain["text"].encode())
    for drafting in ((), ("--no-history", "--no-dict")):
        found = figures(*command, "--prediction", file, "--num-draft-tokens", 16, *drafting)
        assert found["text"] == plain["text"]
        assert found["target_passes"] <= 6 and found["sources"]["prediction"]["accepted"] >= 30
    file.write_bytes(b"\xff")
    refused = run(*command, "--prediction", file)
    assert refused.exit_code == 2 and f"{file}: not UTF-8 at byte 0" in refused.stderr


def test_the_source_of_the_gain_is_said() -> None:
    command = ["--draft-model", demo_path("draft"), "-p", "Wczoraj wieczorem w domu kultury", "-m", 40]
    command += ["--num-draft-tokens", 4, "--no-history"]
    ((name, counts),) = figures(*command)["sources"].items()
    assert name == "model" and counts["accepted"] > 0
    said = run(*command).stderr
    assert f"sources                   model (proposed {counts['proposed']}, accepted {counts['accepted']})" in said


@pytest.mark.parametrize("end", [["--stop", "codziennie"], ["-m", "17"]])
def test_figures_count_what_was_written(end: list[str]) -> None:
    options = ["--draft-model", TARGET, "--no-history", "--num-draft-tokens", 16]
    facts = figures("-p", "Most w Jaworowcu zamknięty do końca", "-m", 30, *options, *end)
    (counts,) = facts["sources"].values()
    print(facts)
    own = facts["tokens"] - counts["accepted"]  # the target's own tokens: one a pass at most
    assert facts["tokens"] < 30 and 0 <= own <= facts["target_passes"]
    assert facts["tokens_per_pass"] == round(facts["tokens"] / facts["target_passes"], 3)
    if "--stop" in end:
        assert facts["finish"] == "stop" and "codziennie" not in facts["text"]
    else:
        assert (facts["finish"], facts["tokens"]) == ("length", 17)


def test_a_number_beyond_all_tokens_means_all_of_them() -> None:
    for number in (20000, 2**31, 10**20):
        result = run("-p", "Wczoraj", "-m", 3, "--temp", 0.5, "--top-k", number)
        assert result.exit_code == 0, result.stderr


def test_a_prompt_from_a_pipe_loses_its_mark_and_one_line_end() -> None:
    texts = [
        figures("-m", 5, *given, input=piped)["text"]
        for given, piped in (
            (["--prompt", "Wczoraj"], b""),
            ([], b"Wczoraj"),
            (["-p", "-"], "\ufeffWczoraj\n".encode()),
            ([], b"Wczoraj\r\n"),
        )
    ]
    assert len(set(texts)) == 1


def test_an_answer_follows_a_json_schema(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    command = ["-p", "Tekst:", "--json-schema", schema]
    schema.write_text(json.dumps({"type": "array", "items": {"enum": ["ґ", 5]}, "minItems": 2, "maxItems": 3}))
    found = json.loads(figures(*command)["text"])
    assert len(found) in (2, 3) and set(found) <= {"ґ", 5}
    for wrong, message in (('{"type": "strin"}', "strin"), ("{", "json_schema: expected one that can be read")):
        schema.write_text(wrong)
        result = run(*command)
        assert result.exit_code == 1 and message in result.stderr, result.output


def test_an_answer_begins_without_the_space_of_the_tokenizer_unless_it_continues_a_text(tmp_path: Path) -> None:
    model = chat_model(tmp_path)

    def written(*arguments: str) -> str:
        return run("--model", model, "--no-dict", "--num-draft-tokens", 4, "-m", 6, *arguments).stdout.rstrip("\n")

    own = written("-p", "Wczoraj wieczorem w domu")
    assert own and not own.startswith(" ")
    assert written("-p", "Wczoraj wieczorem w domu", "--ignore-chat-template") == f" {own}"
    assert not written("-p", "Wczoraj wieczorem w domu", "--show-drafts").lstrip("<[{").startswith(" ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chat-template-config", "[]"], "expected a JSON object"),
        (["--system-prompt", "x"], "need a chat template"),
        (["--chat-template-config", '{"x": 1}'], "need a chat template"),
    ],
)
def test_options_that_act_on_nothing_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    for model in ((), ("--model", chat_model(tmp_path), "--ignore-chat-template")):
        result = run("-p", "a", *model, *arguments)
        assert result.exit_code in (1, 2) and message in result.output, result.output
