"""The documents tell the truth: what they name is there, and the README's commands run."""

import doctest
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import mlx.core as mx
import pytest
from click.testing import CliRunner

from spectool.cli import main
from spectool.corpora import sample_path
from spectool.runtime.demo_models import demo_path

ROOT = Path(__file__).resolve().parents[1]


HOW_TO = (
    "README docs/bielik docs/tutorial docs/draft-models docs/prune-draft docs/dictionaries docs/language docs/measuring"
)
QUICK = {
    "setup": ["--seconds", "2"],
    "bench": ["--count", "6", "--tokens", "16"],
    "doctor": ["--seconds", "1"],
    "predict": ["--max-tokens", "1000"],
}
RUN = """
import json, os, shlex, sys
from click.testing import CliRunner
from spectool.cli import main
for line, words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, words)
    if done.exit_code:
        sys.exit(f"{line}: {done.exit_code} {done.exception!r}\\n{done.output}")
"""


def blocks(page: Path) -> str:
    """What the page says to type, in its order."""
    found = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return "".join(found).replace("\\\n", " ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages' commands expect: text, models, and draft models with another tokenizer."""
    folder = tmp_path_factory.mktemp("pages")
    for name in (
        "pl.txt",
        "news.txt",
        "train.txt",
        "texts/a.txt",
        "part1/a.txt",
        "part2/b.txt",
        "chats/a.md",
        "wiki-pl/a.txt",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(sample_path("pl"), folder / name)
    for name in ("other.txt", "chats.txt", "uk.txt", "valid.txt", "3mb.txt"):
        shutil.copy(sample_path("uk"), folder / name)
    lines = [json.dumps({"text": line}) for line in sample_path("pl").read_text(encoding="utf-8").splitlines()[:40]]
    (folder / "held-out.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for name in ("MODEL", "Bielik-11B", "bielik-11b-4bit", "Qwen/Qwen2.5-Coder-1.5B-Instruct"):
        shutil.copytree(demo_path("target"), folder / name)
    for name in ("SIBLING", "Qwen/Qwen2.5-Coder-0.5B-Instruct"):
        shutil.copytree(demo_path("draft"), folder / name)
    for name in ("DRAFT", "gemma-3-270m", "google/gemma-3-270m-it"):
        draft_of_another_family(folder / name)
    run(
        "build-dict --tokenizer MODEL --corpus sample:pl -o pl.dict\nalign --draft DRAFT --target MODEL -o pair.align",
        folder,
    )
    return folder


def draft_of_another_family(draft: Path) -> None:
    """The bundled draft model with the tokenizer of another one, and as many rows of weights as that needs."""
    shutil.copytree(demo_path("draft"), draft)
    shutil.copy(demo_path("other") / "tokenizer.json", draft)
    ids = len(json.loads((draft / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]) + 1
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    weights = {
        name: mx.tile(weight, (2, 1))[:ids] if weight.shape[0] == config["vocab_size"] else weight
        for name, weight in mx.load(str(draft / "model.safetensors")).items()
    }
    mx.save_safetensors(str(draft / "model.safetensors"), weights)
    (draft / "config.json").write_text(json.dumps({**config, "vocab_size": ids}), encoding="utf-8")


def run(lines: str, folder: Path) -> None:
    """Run commands in one process, with what `setup` makes in a cache of their own."""
    commands = [(line, shlex.split(line, comments=True)) for line in lines.splitlines()]
    commands = [(line, [*words, *QUICK.get(words[0], ())]) for line, words in commands]
    command = [sys.executable, "-c", RUN, json.dumps(commands)]
    own = {"COLUMNS": "100", "HF_HUB_OFFLINE": "1", "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **own})
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("page", HOW_TO.split())
def test_the_commands_of_a_page_run_in_their_order(page: str, folder: Path) -> None:
    """All but those that read from a person or from clients, and `setup` with Gemma, which have tests of their own.

    `setup` refuses what stands for Gemma here, because it knows no Polish.
    """
    text = blocks(ROOT / f"{page}.md")
    for name, value in re.findall(r"^(\w+)=(\S+)$", text, re.MULTILINE):
        text = text.replace(f"${name}", value)
    lines = [line for line in text.splitlines() if re.match(r"spectool (?!chat|serve|setup.*google)", line)]
    assert lines
    run("\n".join(line.removeprefix("spectool ") for line in lines), folder)


@pytest.mark.nightly
def test_the_tables_of_draft_models_are_those_of_the_benchmark() -> None:
    command = [sys.executable, "benchmarks/draft_models_tables.py"]
    tables = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip().split("\n\n")
    page = (ROOT / "docs" / "draft-models.md").read_text(encoding="utf-8")
    assert len(tables) >= 3 and all(table in page for table in tables), "write them again: draft_models_tables.py"


@pytest.mark.nightly
def test_the_site_builds_without_a_broken_link_or_anchor(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the packages of the extra docs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "spectool serve" in (tmp_path / "cli.html").read_text(encoding="utf-8")


def test_every_link_beside_the_site_leads_to_a_file() -> None:
    """The pages of the project itself; the site's own links are checked where it is built."""
    for page in ROOT.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert link.startswith("http") or (ROOT / link).exists(), f"{page.name}: {link}"


def test_every_command_in_the_documents_has_the_options_that_it_is_given() -> None:
    seen = 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line in re.findall(r"^spectool (.*)", blocks(page), re.MULTILINE):
            found: click.Command | None = main
            words = shlex.split(line, comments=True)
            while isinstance(found, click.Group):
                found = found.get_command(click.Context(found), words.pop(0))
            assert found is not None, f"{page.name}: {line}"
            known = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
            given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert given <= known, f"{page.name}: {line}"
            seen += 1
    assert seen > 40


def test_every_named_file_is_there() -> None:
    """Paths in backticks that begin with one of our folders."""
    folders = "artifacts|benchmarks|build|commands|corpora|docs|lab|measure|runtime|tests"
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for path in re.findall(
            rf"(?<![\w/.(-])((?:{folders})/[\w/.-]+\.(?:py|toml|md|svg))", page.read_text(encoding="utf-8")
        ):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_examples_of_the_python_page_run(tmp_path: Path) -> None:
    folder = shutil.copytree(demo_path("target"), tmp_path / "model")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    dictionary = tmp_path / "pl.dict"
    command = f"build-dict --corpus sample:pl --max-bytes 14KB --tokenizer {folder} -o {dictionary}"
    built = CliRunner().invoke(main, command)
    assert built.exit_code == 0, built.output
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name, path in (("MODEL", folder), ("pl.dict", dictionary)):
        text = text.replace(f'"{name}"', repr(str(path)))
    examples = doctest.DocTestParser().get_doctest(text, {}, "python.md", "python.md", 0)
    assert len(examples.examples) > 15
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert failed == 0 and tried == len(examples.examples)


def test_examples_of_the_api_page_are_drawn_as_code() -> None:
    """Outside a section of their own they are drawn as nested quotations."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = [name.rpartition(".") for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]
    examples = 0
    for module, _, name in shown:
        found = getattr(importlib.import_module(module), name)
        members = vars(found).items() if isinstance(found, type) else ()
        drawn = (
            each for label, each in members if not label.startswith("_") and (callable(each) or type(each) is property)
        )
        for documented in (found, *drawn):
            before, arrows, _ = (getattr(documented, "__doc__", None) or "").partition(">>> ")
            assert not arrows or before.rstrip().endswith("Examples:"), f"{module}.{name}"
            examples += bool(arrows)
    assert examples >= 3
