"""Pages that are made when the site is built: the first from README, and the reference from the commands themselves.

A hook of mkdocs (``mkdocs.yml``).
"""

import re
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from spectool.cli import main

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    for path, text in {"index.md": first_page(config.repo_url or ""), **reference()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """A page, with its links to README as they are on the site."""
    return markdown.replace("](../README.md", "](index.md")


def first_page(repository: str) -> str:
    """README, with its links as they are from the folder of the pages; other files are at the repository."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"\]\((?=[A-Z]+\.md|build/)", f"]({repository}/blob/main/", text)


def reference() -> dict[str, str]:
    """The pages of commands by path: the help text of each, 100 columns wide. A group of commands has its own page."""
    texts: dict[str, str] = {}
    sections = [_section("spectool", main)]
    for name, command in _commands(main):
        sections.append(_section(f"spectool {name}", command))
        if isinstance(command, click.Group):
            inner = [_section(f"spectool {name} {each}", one) for each, one in _commands(command)]
            texts[f"{name}/cli.md"] = _page(f"Commands of `spectool {name}`", inner)
    texts["cli.md"] = _page("Commands", sections)
    return texts


def _commands(group: click.Group) -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [(name, command) for name, command in found if command is not None]


def _page(title: str, sections: list[str]) -> str:
    return "\n".join([f"# {title}\n", "What `--help` says of each command.\n", *sections])


def _section(title: str, command: click.Command) -> str:
    # The width is fixed so that the page does not depend on the terminal that it is written in.
    context = click.Context(
        command, info_name=title, terminal_width=100, help_option_names=["-h", "--help"], show_default=True
    )
    text = "\n".join(line for line in command.get_help(context).splitlines() if not line.startswith("  -h, --help"))
    return f"## {title}\n\n```\n{text.rstrip()}\n```\n"
