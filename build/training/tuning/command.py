"""The command ``tune-draft``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.console import Finite, guarded, json_option, out_option, reading, say, show, text_options
from spectool.build.training.run_options import named, run_options


@click.command("tune-draft")
@click.option(
    "--draft", "--draft-model", "draft", required=True, metavar="MODEL", help="Model to tune: directory or hub id."
)
@click.option(
    "--target",
    "--model",
    "target",
    required=True,
    metavar="MODEL",
    help="Model to tune it towards; it is never changed.",
)
@click.option(
    "--corpus",
    "corpora",
    required=True,
    multiple=True,
    metavar="[NAME=]SPEC",
    help="Text of a task, such as a language: file, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl. "
    "May be repeated.",
)
@click.option("--steps", type=click.IntRange(1), required=True, metavar="N", help="Steps to train for.")
@out_option
@click.option(
    "--on",
    type=click.Choice(["text", "completions", "distribution"]),
    default="text",
    show_default=True,
    help="What it learns: the text, the target's own continuations of it, or the target's probabilities on it.",
)
@click.option(
    "--objective",
    type=click.Choice(["mean", "s-cdf"]),
    default="mean",
    show_default=True,
    help="All tasks alike, or each by its distance to the best one.",
)
@click.option(
    "--weigh-by",
    type=click.Choice(["cross-entropy", "kl"]),
    default="cross-entropy",
    show_default=True,
    help="What s-cdf measures that distance in: as published, or without the target's own entropy, which "
    "differs between languages.",
)
@click.option("--normalize", is_flag=True, help="Scale the weights of the tasks to sum to 1.")
@click.option(
    "--alignment",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Of draft and target, to compare the ids that both have where they have different ones.",
)
@click.option(
    "--lora", type=click.IntRange(1), metavar="RANK", help="Train LoRA layers of this rank instead of all weights."
)
@click.option("--rate", type=Finite(0, min_open=True), default=1e-4, show_default=True, help="Peak learning rate.")
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Rows of each task in a step.")
@click.option(
    "--length", type=click.IntRange(2), default=128, show_default=True, help="Tokens in a row of text, at most."
)
@click.option(
    "--completions",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Prompts of each task for the target to go on from.",
)
@click.option(
    "--prompt-tokens", type=click.IntRange(1), default=32, show_default=True, help="The target's tokens in a prompt."
)
@click.option("--max-tokens", type=click.IntRange(1), default=64, show_default=True, help="Tokens it goes on for.")
@click.option(
    "--temperature",
    type=Finite(0),
    default=1.0,
    show_default=True,
    help="Of the target's sampling; 0 takes the most probable token.",
)
@click.option(
    "--valid-rows",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Held-out rows of each task to measure on.",
)
@run_options
@text_options
@json_option
@guarded
def tune_draft(
    draft: str,
    target: str,
    corpora: tuple[str, ...],
    steps: int,
    out: Path | None,
    alignment: Path | None,
    text_field: str | None,
    on_error: Any,
    as_json: bool,
    **others: Any,
) -> None:
    """Fine-tune a draft model towards a target, for mlx-lm to load from OUT.

    With several tasks, s-CDF moves the draft where the target's speed-up is least: each task's gradient
    weighs as much as its divergence from the target exceeds that of the best one. Beside the model lie
    training.json, the loss of every step as curve.parquet, and divergence, KL, acceptance proxy and
    unfairness of every task as tasks.parquet and, with spectool[report], as a plot. Checkpoints lie beside
    OUT until all is done; after a kill or Ctrl-C, the same command goes on from there.

    \b
    Examples:
        spectool tune-draft --draft ./small --target ./large --corpus pl.txt.zst --on completions --steps 500 -o D
        spectool tune-draft --draft ./small --target ./large --corpus pl=pl.txt --corpus uk=uk.txt \\
            --on distribution --objective s-cdf --steps 500 -o D
    """
    specs = named(corpora)

    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.build.training.curve import Point
    from spectool.build.training.display import Display
    from spectool.build.training.tuning.options import TuneOptions
    from spectool.build.training.tuning.stage import tune_draft as run
    from spectool.build.training.tuning.task_curve import TaskPoint, before_and_after
    from spectool.build.training.tuning.tuned_model import open_model
    from spectool.corpora import open_corpus

    options = TuneOptions(steps, **others)
    sources = {name: open_corpus(spec, on_error=on_error, text_field=text_field) for name, spec in specs.items()}
    opened, towards = open_model(draft), open_model(target)
    path = out or default_path(f"{slug(draft)}-{digest(options, target, corpora, alignment)}.tuned")
    for model in (opened, towards):
        for line in model.tokenizer.notes:
            say(f"{model.name}: {line}")
    how = {"on_error": on_error, "text_field": text_field}

    def shown(point: Point, measured: Sequence[TaskPoint]) -> None:
        tasks = ", ".join(f"{task.task} {task.divergence:.3f}" for task in measured)
        display.show(point, f"held out {tasks}" if measured else "")

    with Display(steps, "tuning") as display:
        try:
            record = run(opened, towards, sources, path, options, say, alignment, shown, reading, how)
        except KeyboardInterrupt:
            if display.last is None:
                raise
            display.close()
            say(f"Interrupted after step {display.last.step:,}; the same command goes on from the last checkpoint.")
            sys.exit(130)
    if "tasks.svg" not in record["files"]:
        say("no plot without matplotlib: pip install 'spectool[report]'")
    facts = {"path": str(path), **record}
    if as_json:
        show(facts, as_json)
        return
    before, after = ([TaskPoint(**row) for row in record["measured"][when]] for when in ("before", "after"))
    click.echo(before_and_after(before, after))
    click.echo()
    trained = f"{record['tokens']:,} tokens in {record['steps']:,} steps, {record['seconds']:,} s"
    show({"path": str(path), "trained": trained, "files": record["files"]}, as_json)
