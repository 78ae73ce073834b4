"""A model that is spread over the processes that ``mlx.launch`` has started, all of them with the same command."""

import sys
from functools import partial
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.shared.options import option

_CHECKED_EVERY = 16  # passes, with --debug

pipeline_option = partial(
    option,
    "--pipeline",
    is_flag=True,
    help="Under mlx.launch, give each process some of the layers, and not a part of every layer.",
)


def follow_rank_0(model: str, pipeline: bool, adapter_path: Any = None) -> None:
    """On all ranks but the first: load this rank's part of the model, repeat what rank 0 does to it, and end with it.

    Returns on rank 0, and without ``mlx.launch``.
    """
    from spectool.runtime.groups import rank_0
    from spectool.runtime.groups.meeting import joined, world

    if world().size() == 1:
        if pipeline:
            raise click.UsageError(
                "--pipeline is for a model on several processes: mlx.launch -n 2 spectool … --pipeline"
            )
        return
    watch, context = joined(), click.get_current_context()

    def tell() -> None:
        if isinstance(error := sys.exception(), Exception):
            watch.end(SpectoolError(error))

    context.call_on_close(tell)
    if context.find_root().params.get("debug"):
        rank_0.checked_every = _CHECKED_EVERY
    if world().rank() == 0:
        return

    from spectool.runtime.groups import others
    from spectool.runtime.loading import load_model

    others.follow_rank_0(load_model(model, adapter_path, pipeline=pipeline)[0])
