"""The command ``tune-draft``."""

from pathlib import Path
from typing import Any

import click

from spectool.artifacts.options import options_of
from spectool.commands.console import guarded, reading, say, show
from spectool.commands.options import corpora_option, draft_option, json_option, out_option, target_option, text_options
from spectool.lab.training.run_options import named
from spectool.lab.tuning.options import TuneOptions


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
    help="Of draft and target, to compare the ids that both have where they have different ones.",
)
@options_of(TuneOptions)
@text_options
@json_option
@guarded
def tune_draft(
    draft: str,
    target: str,
    corpora: tuple[str, ...],
    out: Path | None,
    alignment: Path | None,
    reads: dict[str, Any],
    as_json: bool,
    **others: Any,
) -> None:
    """Fine-tune a draft model towards a target, for mlx-lm to load from OUT.

    With several tasks, s-CDF moves the draft where the target's speed-up is least. Each task's gradient weighs as much
    as its divergence from the target exceeds that of the best one. Beside the model lie training.json and the loss of
    every step as curve.parquet. Divergence, KL, acceptance proxy and unfairness of every task lie there as
    tasks.parquet and, with spectool[report], as a plot. steps.parquet says which task was the reference in each step. A
    corpus named twice weighs twice as much. Checkpoints lie beside OUT until all is done; after a kill or Ctrl-C, the
    same command resumes.

    \b
    Examples:
        spectool tune-draft --draft ./small --target ./large --corpus pl.txt.zst --on completions --steps 500 -o D
        spectool tune-draft --draft ./small --target ./large --corpus pl=pl.txt --corpus uk=uk.txt \\
            --on distribution --objective s-cdf --steps 500 -o D
    """
    specs = named(corpora)

    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.corpora import open_corpus
    from spectool.lab.tuning.stage import tune_draft as run
    from spectool.lab.tuning.task_curve import before_and_after
    from spectool.lab.tuning.tuned_model import open_model

    options = TuneOptions(**others)
    sources = {name: open_corpus(spec, **reads) for name, spec in specs.items()}
    opened, towards = open_model(draft), open_model(target)
    path = out or default_path(f"{slug(draft)}-{digest(options, target, corpora, alignment)}.tuned")
    for model in (opened, towards):
        for line in model.tokenizer.notes:
            say(f"{model.name}: {line}")
    record = run(opened, towards, sources, path, options, say, alignment, reading, reads)
    if "tasks.svg" not in record["files"]:
        say("there is no plot, which needs: pip install 'spectool[report]'")
    if as_json:
        show({"path": str(path), **record}, as_json)
        return
    click.echo(before_and_after(record))
    click.echo()
    trained = f"{record['tokens']:,} tokens in {record['steps']:,} steps, {record['seconds']:,} s"
    show({"path": str(path), "trained": trained, "files": list(record["files"])}, as_json)
