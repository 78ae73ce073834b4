"""The same inputs give the same bytes, whatever the hash seed, the number of threads and the locale."""

import os
from pathlib import Path

import click
import pytest

from spectool.cli import main
from spectool.runtime.demo_models import demo_path
from spectool.tests.running import OTHER, TOKENIZER, process

SETTINGS = (
    {"PYTHONHASHSEED": "0", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "LC_ALL": "C"}
    | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},  # Python takes the locale C for UTF-8 otherwise
    {"PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true", "LC_ALL": "C.UTF-8"},
)
STAGES = (
    ("build-dict", "--tokenizer", TOKENIZER),
    ("build-dict", "--tokenizer", TOKENIZER, "--pack", "crh"),
    ("align", "--draft", OTHER, "--target", TOKENIZER),
    ("prune-draft", "--draft", str(demo_path("target"))),
    ("pack", "--language", "pl"),
)


_TIMES = {"bench"}  # writes what it measured


def test_these_are_all_stages() -> None:
    """Each command that writes what it made of its inputs."""
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    writing = {name for name, command in commands.items() if command and any("-o" in p.opts for p in command.params)}
    assert writing - _TIMES == {stage[0] for stage in STAGES}


@pytest.mark.nightly
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage[0])
def test_equal_inputs_give_equal_bytes(tmp_path: Path, lines: list[str], stage: tuple[str, ...]) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, name in enumerate(("b.txt", "a.txt", "c.txt")):
        (corpus / name).write_text("\n".join(lines[number * 40 : (number + 1) * 40]), encoding="utf-8")
    written = []
    for number, settings in enumerate(SETTINGS):
        out = tmp_path / str(number) / "out"  # a pruned model records its name
        done = process(
            *stage, *([] if stage[0] == "pack" else ["--corpus"]), corpus, "-o", out, env={**os.environ, **settings}
        )
        assert done.returncode == 0, done.stderr
        files = [out] if out.is_file() else sorted(file for file in out.rglob("*") if file.is_file())
        written.append({str(file.relative_to(out)): file.read_bytes() for file in files})
    assert written[0].keys() == written[1].keys()
    assert [name for name, data in written[0].items() if data != written[1][name]] == []
