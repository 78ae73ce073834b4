"""The arguments of a tuning, and what of them fits together."""

from dataclasses import dataclass
from typing import Literal

import click

from spectool import SpectoolError
from spectool.artifacts.options import option
from spectool.commands.options import Finite
from spectool.lab.training.run_options import RunOptions


@dataclass(frozen=True, kw_only=True)
class TuneOptions(RunOptions):
    """Arguments of a tuning; the help of each says what it is."""

    on: Literal["text", "completions", "distribution"] = option(
        click.Choice(["text", "completions", "distribution"]),
        "What it learns: the text, the target's own continuations of it, or the target's probabilities on it.",
        "text",
    )
    objective: Literal["mean", "s-cdf"] = option(
        click.Choice(["mean", "s-cdf"]), "All tasks alike, or each by its distance to the best one.", "mean"
    )
    weigh_by: Literal["cross-entropy", "kl"] = option(
        click.Choice(["cross-entropy", "kl"]),
        "What s-cdf measures that distance in: as published, or without the target's own entropy, which "
        "differs between languages.",
        "cross-entropy",
    )
    normalize: bool = option(bool, "Scale the weights of the tasks to sum to 1.", False)
    lora: int | None = option(
        click.IntRange(1), "Train LoRA layers of this rank instead of all weights.", None, metavar="RANK"
    )
    rate: float = option(Finite(0, min_open=True), "Peak learning rate.", 1e-4)
    batch: int = option(click.IntRange(1), "Rows of each task in a step.", 8)
    length: int = option(click.IntRange(2), "Tokens in a row of text, at most.", 128)
    completions: int = option(click.IntRange(1), "Prompts of each task for the target to continue.", 512)
    prompt_tokens: int = option(click.IntRange(1), "The target's tokens in a prompt.", 32)
    max_tokens: int = option(click.IntRange(1), "Tokens of a continuation, at most.", 64)
    temperature: float = option(Finite(0), "Of the target's sampling; 0 takes the most probable token.", 1.0)
    valid_rows: int = option(click.IntRange(1), "Held-out rows of each task to measure on.", 64)


def check(draft: str, target: str, tasks: int, comparable: bool, options: TuneOptions) -> None:
    """Check that the objective has tasks to weigh, and that there is what the draft is to learn.

    ``comparable`` says whether the distributions of the two models, given by name, can be compared.

    Raises:
        SpectoolError: There is not.
    """
    if options.objective == "s-cdf" and tasks < 2:
        raise SpectoolError(
            "--objective s-cdf weighs tasks by their distance to the best one: expected two or more --corpus, got "
            f"{tasks}. Give a --corpus NAME=SPEC for each task, or --objective mean"
        )
    if options.weigh_by == "kl" and options.on != "distribution":
        raise SpectoolError(
            f"--weigh-by kl needs the target's probabilities: expected --on distribution, got --on {options.on}. Give "
            "--on distribution, or --weigh-by cross-entropy"
        )
    if options.on == "distribution" and not comparable:
        raise SpectoolError(
            f"{draft}: has other ids than {target}, so that their distributions cannot be compared. Align "
            f"them (spectool align --draft {draft} --target {target} -o X.align) and give --alignment "
            "X.align, or give --on completions"
        )
