"""The command ``lab``: the laboratory's commands, by what they are for."""

import click

from spectool.commands.shared.options import LazyGroup

_MODULES = {
    "sweep": "spectool.lab.sweep.command",
    "fairness": "spectool.lab.fairness.command",
    "ngrams": "spectool.lab.ngrams",
    "tables": "spectool.lab.paper_tables.command",
    "train-draft": "spectool.lab.training.command",
    "tune-draft": "spectool.lab.tuning.command",
}
_PURPOSES = {"Measure": ["sweep", "fairness", "ngrams", "tables"], "Draft models": ["train-draft", "tune-draft"]}


@click.group("lab", cls=LazyGroup, purposes=_PURPOSES, modules=_MODULES)
def lab() -> None:
    """Repeat the papers' experiments: grids of dictionaries, fairness, small draft models.

    \b
    Example:
        spectool lab sweep grid.toml -o results
    """
