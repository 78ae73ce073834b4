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


@pytest.mark.parametrize(("group", "page"), [((), "cli.md"), (("lab",), "lab/cli.md")])
def test_the_reference_has_every_command_and_option(group: tuple[str, ...], page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    commands: click.Command | None = main
    for name in group:
        commands = commands.get_command(click.Context(commands), name) if isinstance(commands, click.Group) else None
    assert isinstance(commands, click.Group)
    context = click.Context(commands)
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        _, found, section = text.partition(f"## {' '.join(['spectool', *group, name])}\n")
        assert found, f"{name}; write the page again: make docs"
        section = section.partition("\n## ")[0]
        missing = [
            each.opts[0] for each in command.params if isinstance(each, click.Option) and each.opts[0] not in section
        ]
        assert not missing, f"{name}: {missing}; write the page again: make docs"


def blocks(language: str) -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", readme, flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what README's commands expect: text, a model, and a draft model with another tokenizer."""
    folder = tmp_path_factory.mktemp("readme")
    for name, sample in (("pl.txt", "pl"), ("other.txt", "uk")):
        shutil.copy(sample_path(sample), folder / name)
    shutil.copytree(demo_path("target"), folder / "MODEL")
    draft = Path(shutil.copytree(demo_path("draft"), folder / "DRAFT"))
    shutil.copy(demo_path("other") / "tokenizer.json", draft)
    ids = len(json.loads((draft / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]) + 1
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    weights = {
        name: mx.tile(weight, (2, 1))[:ids] if weight.shape[0] == config["vocab_size"] else weight
        for name, weight in mx.load(str(draft / "model.safetensors")).items()
    }
    mx.save_safetensors(str(draft / "model.safetensors"), weights)
    (draft / "config.json").write_text(json.dumps({**config, "vocab_size": ids}), encoding="utf-8")
    return folder


@pytest.mark.nightly
def test_readme_commands_run_in_their_order(folder: Path) -> None:
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("spectool ")]
    cache = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}  # what `setup` makes
    waiting = ("chat", "serve")  # they read from a person or from clients, and have tests of their own
    lines = [line for line in lines if line.split()[1] not in waiting]
    assert len(lines) >= 8
    for line in lines:
        command = [sys.executable, "-m", "spectool.cli", *shlex.split(line, comments=True)[1:]]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100", **cache}
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.nightly
def test_readme_python_runs(folder: Path) -> None:
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tokens in" in done.stdout


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site write them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_leads_to_a_document_and_a_heading_that_is_there() -> None:
    with_anchor = 0
    for page in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]:
        for link, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            if not link.startswith("http"):
                there = (page.parent / link) if link else page
                assert there.exists(), f"{page.name}: {link}"
                assert not anchor or anchor in anchors(there), f"{page.name}: {link}#{anchor}"
                with_anchor += bool(anchor)
    assert with_anchor > 30


def test_every_command_in_the_documents_has_the_options_that_it_is_given() -> None:
    seen = 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^spectool (.*)", block.replace("\\\n", " "), re.MULTILINE):
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
    command = [
        "build-dict",
        "--tokenizer",
        str(folder),
        "--corpus",
        "sample:pl",
        "--max-bytes",
        "14KB",
        "-o",
        str(dictionary),
    ]
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
