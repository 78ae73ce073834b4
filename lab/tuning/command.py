"""The command ``tune-draft``."""

from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import show
from spectool.commands.shared.options import (
    command,
    draft_option,
    option,
    out_option,
    target_option,
)
from spectool.lab.options import by_name, corpora_option, count_option, rate_option, run_options
from spectool.lab.training.options import OBJECTIVES, TuneOptions
from spectool.measure.table import table


@command("tune-draft")
@draft_option(metavar="MODEL", help="Model to tune: directory or hub id.")
@target_option(metavar="MODEL", help="Model to tune it towards; it is never changed.")
@corpora_option(
    help="Text of a task, such as a language: a corpus, as for build-dict. May be repeated.",
)
@out_option
@option(
    "--alignment",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FILE",
    help="Alignment of draft and target, needed where they have different vocabularies.",
)
@run_options
@option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    default="mean",
    show_default=True,
    help="Weigh all tasks alike, or each by its distance to the best one.",
)
@rate_option(default=1e-4, help="Peak learning rate.")
@count_option("--batch", default=8, help="Rows of each task in a step.")
@count_option("--length", default=128, help="Maximum tokens in a row of text.")
@count_option("--valid-rows", default=64, help="Held-out rows of each task to measure.")
def tune_draft(
    draft: str,
    target: str,
    corpora: tuple[str, ...],
    out: Path | None,
    alignment: Path | None,
    steps: int,
    measure_every: int | None,
    checkpoint_every: int | None,
    seed: int,
    objective: Any,
    rate: float,
    batch: int,
    length: int,
    valid_rows: int,
    as_json: bool,
) -> None:
    """Fine-tune a draft model towards a target's probabilities on text, for mlx-lm to load from OUT.

    With several tasks, s-CDF improves the draft where the target gains least from it: each task's gradient weighs as
    much as its divergence from the target exceeds that of the best task. In addition to the model, OUT has
    training.json; the loss of every step as curve.parquet; divergence, KL, acceptance and unfairness of every task as
    tasks.parquet; and steps.parquet, which says which task was the reference in each step. A corpus named twice weighs
    twice as much. Checkpoints are kept next to OUT until the model is written, so after a kill or Ctrl-C the same
    command resumes.

    \b
    Examples:
        spectool lab tune-draft --draft ./small --target ./large --corpus pl.txt.zst --steps 500 -o D
        spectool lab tune-draft --draft ./small --target ./large --corpus pl=pl.txt --corpus uk=uk.txt \\
            --objective s-cdf --steps 500 -o D
    """
    specs = by_name(corpora, "--corpus")

    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.corpora import open_corpus
    from spectool.lab.tuning.stage import tune
    from spectool.lab.tuning.tuned_model import OpenedModel

    options = TuneOptions(
        steps=steps,
        measure_every=measure_every,
        checkpoint_every=checkpoint_every,
        seed=seed,
        objective=objective,
        rate=rate,
        batch=batch,
        length=length,
        valid_rows=valid_rows,
    )
    sources = {name: open_corpus(spec) for name, spec in specs.items()}
    opened, towards = OpenedModel.load(draft), OpenedModel.load(target)
    path = out or default_path(f"{slug(draft)}-{digest(options, target, corpora, alignment)}.tuned")
    record = tune(opened, towards, sources, path, options, alignment)
    if as_json:
        show({"path": str(path), **record}, as_json)
        return
    click.echo(_before_and_after(record) + "\n")
    trained = f"{record['tokens']:,} tokens in {record['steps']:,} steps, {record['seconds']:,} s"
    show({"path": str(path), "trained": trained, "files": list(record["files"])}, as_json)


def _before_and_after(record: dict[str, Any]) -> str:
    """A table of both measurements in the record of a tuning, and how often each task was the reference."""
    header = ["", "D_T before", "after", "KL before", "after", "acceptance before", "after", "reference"]
    formats = {"divergence": ".4f", "kl": ".4f", "acceptance": ".1%"}
    pairs = list(zip(*record["measured"].values(), strict=True))
    rows = []
    for pair in pairs:
        figures = [format(point[name], form) for name, form in formats.items() for point in pair]
        task = pair[0]["task"]
        rows.append([task, *figures, f"{record['references'][task]:.1%}"])
    of_all = {"unfairness U": "unfairness", "U of KL": "unfairness_kl", "acceptance variance": "acceptance_variance"}
    lines = [table(header, rows)]
    for label, name in of_all.items() if len(rows) > 1 else ():
        lines.append(f"{label:<21}" + " → ".join(f"{point[name]:.5g}" for point in pairs[0]))
    return "\n".join(lines)
