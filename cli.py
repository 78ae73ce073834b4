"""The command line: which command is in which module.

Command modules are light: what they need is imported when a command runs, so that
``spectool --help`` and the offline stages never import mlx.
"""

import importlib
import io
import sys
from collections.abc import Mapping
from typing import Any

import click

from spectool import __version__
from spectool.commands.shared.console import guarded, without_colours

_PURPOSES = {
    "Use": {
        "setup": "spectool.commands.setup:setup",
        "generate": "spectool.commands.generate:generate",
        "chat": "spectool.commands.chat:chat",
        "serve": "spectool.commands.serve:serve",
        "demo": "spectool.commands.demo:demo",
    },
    "Dictionaries": {
        "build-dict": "spectool.commands.build_dict:build_dict",
        "pack": "spectool.commands.pack:pack",
    },
    "Draft models": {
        "align": "spectool.commands.align:align",
        "prune-draft": "spectool.commands.prune_draft:prune_draft",
    },
    "Measure": {
        "doctor": "spectool.commands.doctor:doctor",
        "predict": "spectool.commands.predict:predict",
        "bench": "spectool.commands.bench:bench",
    },
    "Any artifact": {"inspect": "spectool.commands.inspect:inspect"},
    "Experiments": {"lab": "spectool.cli:lab"},
}
_LAB_PURPOSES = {
    "Measure": {
        "sweep": "spectool.lab.sweep.command:sweep",
        "fairness": "spectool.lab.fairness.command:fairness",
        "ngrams": "spectool.lab.ngrams:ngrams",
        "tables": "spectool.lab.paper_tables.command:tables",
    },
    "Draft models": {
        "train-draft": "spectool.lab.training.command:train_draft",
        "tune-draft": "spectool.lab.tuning.command:tune_draft",
    },
}


class _LazyGroup(click.Group):
    """Imports the module of a command when it is needed; ``purposes`` say where each command is."""

    def __init__(self, name: str | None, *, purposes: Mapping[str, Mapping[str, str]], **others: Any) -> None:
        self.purposes = purposes
        self._places = {name: place for commands in purposes.values() for name, place in commands.items()}
        imported_later: Any = dict.fromkeys(self._places)
        super().__init__(name, imported_later, **others)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; the output loses colours that are not wanted, and escapes what its encoding lacks."""
        if without_colours():
            kwargs["color"] = False
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        for purpose, names in self.purposes.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(200)) for name, command in commands if command is not None]
            with formatter.section(purpose):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, _, name = self._places[cmd_name].partition(":")
        return _imported(module, name)


@guarded
def _imported(module: str, name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(module), name)
    return command


@click.group(
    cls=_LazyGroup,
    purposes=_PURPOSES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
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
