"""Write docs/cli.md, and docs/lab/cli.md for the laboratory, from the commands themselves: ``make docs``.

A test fails when a command or an option is missing.
"""

import sys
from pathlib import Path

import click

from spectool.cli import main

DOCS = Path(__file__).parent


def pages() -> dict[Path, str]:
    """The pages by path: the help text of every command, 100 columns wide. A group of commands has its own page."""
    texts: dict[Path, str] = {}
    sections = [_section("spectool", main)]
    for name, command in _commands(main):
        sections.append(_section(f"spectool {name}", command))
        if isinstance(command, click.Group):
            inner = [_section(f"spectool {name} {each}", one) for each, one in _commands(command)]
            texts[DOCS / name / "cli.md"] = _page(f"Commands of `spectool {name}`", inner)
    texts[DOCS / "cli.md"] = _page("Command line reference", sections)
    return texts


def _commands(group: click.Group) -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [(name, command) for name, command in found if command is not None]


def _page(title: str, sections: list[str]) -> str:
    intro = "This page is what `--help` says of each command. `make docs` writes it.\n"
    return "\n".join([f"# {title}\n", intro, *sections])


def _section(title: str, command: click.Command) -> str:
    # The width is fixed so that the page does not depend on the terminal that it is written in.
    context = click.Context(command, info_name=title, terminal_width=100, help_option_names=["-h", "--help"])
    text = "\n".join(line for line in command.get_help(context).splitlines() if not line.startswith("  -h, --help"))
    return f"## {title}\n\n```\n{text.rstrip()}\n```\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        sys.stderr.write(f"{path}\n")
