"""The command ``tune-draft``."""

from pathlib import Path
from typing import Any

import click

from spectool.commands.console import guarded, reading, say, show
from spectool.commands.options import corpora_option, draft_option, json_option, out_option, target_option, text_options
from spectool.lab.options import count_option, named, rate_option, run_options
from spectool.lab.tuning.options import OBJECTIVES, SUPERVISIONS, WEIGHTS


@click.command("tune-draft")
@draft_option(metavar="MODEL", help="Model to tune: directory or hub id.")
@target_option(metavar="MODEL", help="Model to tune it towards; it is never changed.")
@corpora_option(
    help="Text of a task, such as a language: file, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl. "
    "May be repeated.",
)
@out_option
@click.option(
    "--alignment",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Alignment of draft and target, needed where they have different vocabularies.",
)
@run_options
@click.option(
    "--on",
    type=click.Choice(SUPERVISIONS),
    default="text",
    show_default=True,
    help="What it learns: the text, or the target's probabilities on it.",
)
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    default="mean",
    show_default=True,
    help="Weigh all tasks alike, or each by its distance to the best one.",
)
@click.option(
    "--weigh-by",
    type=click.Choice(WEIGHTS),
    default="cross-entropy",
    show_default=True,
    help="What s-cdf measures that distance in: as published, or without the target's own entropy, which differs "
    "between languages.",
)
@rate_option(default=1e-4, help="Peak learning rate.")
@count_option("--batch", default=8, help="Rows of each task in a step.")
@count_option("--length", default=128, help="Maximum tokens in a row of text.")
@count_option("--valid-rows", default=64, help="Held-out rows of each task to measure.")
@text_options
@json_option
@guarded
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
    on: Any,
    objective: Any,
    weigh_by: Any,
    rate: float,
    batch: int,
    length: int,
    valid_rows: int,
    reads: dict[str, Any],
    as_json: bool,
) -> None:
    """Fine-tune a draft model towards a target, for mlx-lm to load from OUT.

    With several tasks, s-CDF improves the draft where the target gains least from it: each task's gradient weighs as
    much as its divergence from the target exceeds that of the best task. In addition to the model, OUT has
    training.json; the loss of every step as curve.parquet; divergence, KL, acceptance proxy and unfairness of every
    task as tasks.parquet and, with spectool[lab], as a plot; and steps.parquet, which says which task was the reference
    in each step. A corpus named twice weighs twice as much. Checkpoints are kept next to OUT until the model is
    written, so after a kill or Ctrl-C the same command resumes.

    \b
    Examples:
        spectool lab tune-draft --draft ./small --target ./large --corpus pl.txt.zst --on distribution --steps 500 -o D
        spectool lab tune-draft --draft ./small --target ./large --corpus pl=pl.txt --corpus uk=uk.txt \\
            --on distribution --objective s-cdf --steps 500 -o D
    """
    specs = named(corpora, "--corpus")

    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.corpora import open_corpus
    from spectool.lab.tuning.options import TuneOptions
    from spectool.lab.tuning.stage import tune
    from spectool.lab.tuning.task_curve import before_and_after
    from spectool.lab.tuning.tuned_model import OpenedModel

    options = TuneOptions(
        steps=steps,
        measure_every=measure_every,
        checkpoint_every=checkpoint_every,
        seed=seed,
        on=on,
        objective=objective,
        weigh_by=weigh_by,
        rate=rate,
        batch=batch,
        length=length,
        valid_rows=valid_rows,
    )
    sources = {name: open_corpus(spec, **reads) for name, spec in specs.items()}
    opened, towards = OpenedModel.load(draft), OpenedModel.load(target)
    path = out or default_path(f"{slug(draft)}-{digest(options, target, corpora, alignment)}.tuned")
    for model in (opened, towards):
        for line in model.tokenizer.notes:
            say(f"{model.name}: {line}")
    record = tune(opened, towards, sources, path, options, say, alignment, reading, reads)
    if "tasks.svg" not in record["files"]:
        say("there is no plot, which needs: pip install 'spectool[lab]'")
    if as_json:
        show({"path": str(path), **record}, as_json)
        return
    click.echo(before_and_after(record) + "\n")
    trained = f"{record['tokens']:,} tokens in {record['steps']:,} steps, {record['seconds']:,} s"
    show({"path": str(path), "trained": trained, "files": list(record["files"])}, as_json)
