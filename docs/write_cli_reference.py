"""Write docs/cli.md from the commands themselves: ``make docs``. A test fails when the page is stale."""

import sys
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
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        if command is not None:
            parts.append(_section(f"spectool {name}", command))
    return "\n".join(parts)


def _section(title: str, command: click.Command) -> str:
    # The width is fixed so that the page does not depend on the terminal that it is written in.
    context = click.Context(command, info_name=title, terminal_width=100, help_option_names=["-h", "--help"])
    context.meta[EXPLAIN_ALL] = True
    return f"## {title}\n\n```\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    sys.stderr.write(f"{PAGE}\n")
