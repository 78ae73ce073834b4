"""The command line: which command is in which module.

Command modules import what they need when they run, so ``spectool --help`` and the offline stages never import mlx.
"""

import io
import sys
from collections.abc import Mapping
from itertools import chain
from pkgutil import resolve_name
from typing import Any

import click

from spectool import __version__
from spectool.commands.shared.console import guarded

_PURPOSES = {
    "Use": ["setup", "generate", "chat", "serve", "demo"],
    "Dictionaries": ["build-dict", "pack"],
    "Draft models": ["align", "prune-draft"],
    "Measure": ["doctor", "predict", "bench"],
    "Any artifact": ["inspect"],
    "Experiments": ["lab"],
}
_LAB_PURPOSES = {"Measure": ["sweep", "fairness", "ngrams", "tables"], "Draft models": ["train-draft", "tune-draft"]}
_MODULES = {  # of commands that have no module of their name in `spectool.commands`
    "lab": "spectool.cli",
    "sweep": "spectool.lab.sweep.command",
    "fairness": "spectool.lab.fairness.command",
    "ngrams": "spectool.lab.ngrams",
    "tables": "spectool.lab.paper_tables.command",
    "train-draft": "spectool.lab.training.command",
    "tune-draft": "spectool.lab.tuning.command",
}


class _LazyGroup(click.Group):
    """Imports the module of a command when it is needed; ``purposes`` are headings with the commands under them."""

    def __init__(self, name: str | None, *, purposes: Mapping[str, list[str]], **others: Any) -> None:
        imported_later: Any = dict.fromkeys(chain.from_iterable(purposes.values()))
        super().__init__(name, imported_later, **others)
        self.purposes = purposes

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line, whose output has escapes for what its encoding lacks."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        for purpose, names in self.purposes.items():
            with formatter.section(purpose):
                formatter.write_dl([(name, _imported(name).get_short_help_str(200)) for name in names])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _imported(cmd_name) if cmd_name in self.commands else None


@guarded()
def _imported(name: str) -> click.Command:
    function = name.replace("-", "_")
    command: click.Command = resolve_name(f"{_MODULES.get(name, f'spectool.commands.{function}')}:{function}")
    return command


@click.group(
    cls=_LazyGroup,
    purposes=_PURPOSES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(__version__, prog_name="spectool")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Run mlx-lm models faster in languages whose words take many tokens, by speculative decoding.

    \b
    Once:        spectool setup ./model --language pl --corpus texts/
    Every time:  spectool generate --model ./model --prompt "…"

    The output is what the model alone would write, in fewer passes.
    """


@click.group("lab", cls=_LazyGroup, purposes=_LAB_PURPOSES)
def lab() -> None:
    """Repeat the papers' experiments: grids of dictionaries, fairness, small draft models.

    \b
    Example:
        spectool lab sweep grid.toml -o results
    """


if __name__ == "__main__":
    main()
