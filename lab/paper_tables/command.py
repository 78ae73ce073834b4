"""The command ``tables``: a benchmark run as the tables of the paper on cross-family drafting for Polish."""

from pathlib import Path

import click

from spectool.commands.shared.options import command
from spectool.measure.table import table


@command("tables", json=False)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
def tables(runs: tuple[Path, ...]) -> None:
    """Print runs of `spectool bench` as the tables of the paper on cross-family drafting.

    These are acceptance, speed-up and break-even by kind of text, speed-up by acceptance, the published cost model
    fitted to the runs, and tokens per pass next to what independent acceptance would give.

    \b
    Example:
        spectool lab tables bielik-pl.bench bielik-wiki.bench
    """
    from spectool import require_extra

    require_extra("lab", "spectool lab tables")
    from spectool.lab.paper_tables.reading import read_run
    from spectool.lab.paper_tables.tables import (
        acceptance_by_kind,
        break_evens,
        buckets,
        cost_model,
        draft_length,
        speed_by_kind,
        tokens_per_pass,
    )
    from spectool.lab.paper_tables.trials import trial_frames

    makers = {
        "Acceptance, mean over prompts with its 95% interval (Tables 2, 4 and 11)": acceptance_by_kind,
        "Speed-up, geometric mean over prompts with its 95% interval (Tables 3, 4 and 11)": speed_by_kind,
        "What a longer draft changes (Table 4)": draft_length,
        "Acceptance from which drafting pays (Tables 5 and 11)": break_evens,
        "Speed-up by acceptance, with the number of prompts (Tables 6 and 8 to 10)": buckets,
        "The cost model fitted to every drafter, and its break-even acceptance (Table 7)": cost_model,
        "Tokens per pass as measured, and if draft tokens were accepted independently": tokens_per_pass,
    }
    frames = trial_frames(*map(read_run, runs))
    for caption, make in makers.items():
        if (frame := make(frames)) is not None:
            flat = frame.reset_index().astype(str)
            click.echo(f"{caption}:\n\n{table(list(flat), flat.to_numpy().tolist())}\n")
