"""Write docs/cli.md from the commands themselves: ``make docs``. A test fails when the page is stale."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from spectool.cli import main
from spectool.commands.options import EXPLAIN_ALL

PAGE = Path(__file__).with_name("cli.md")


def reference() -> str:
    """Return the page: the help text of every command, 100 columns wide."""
    parts = [
        "# Command line reference\n",
        "Written from the code by `make docs`; what `spectool COMMAND --help` says, with every option.\n",
        _section("spectool", main),
    ]
    return "\n".join([*parts, *_commands("spectool", main)])


def _commands(title: str, group: click.Group) -> Iterator[str]:
    """Yield the sections of the commands of a group, and of those within a command that is a group."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if command is not None:
            yield _section(f"{title} {name}", command)
        if isinstance(command, click.Group):
            yield from _commands(f"{title} {name}", command)


def _section(title: str, command: click.Command) -> str:
    # The width is fixed so that the page does not depend on the terminal that it is written in.
    context = click.Context(command, info_name=title, terminal_width=100, help_option_names=["-h", "--help"])
    context.meta[EXPLAIN_ALL] = True
    return f"## {title}\n\n```\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    sys.stderr.write(f"{PAGE}\n")
