"""The command ``fairness``."""

from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import show
from spectool.commands.shared.options import Finite, Whole, command, option, out_option, target_option
from spectool.lab.options import by_name, count_option, seed_option
from spectool.measure.table import table


@command("fairness")
@target_option(metavar="MODEL", help="Target model: directory or hub id.")
@option(
    "--task",
    "tasks",
    required=True,
    multiple=True,
    metavar="[NAME=]SPEC",
    help="Text of a language or task that no model has seen: a corpus, as for build-dict. May be repeated.",
)
@option(
    "--draft",
    "--draft-model",
    "drafts",
    required=True,
    multiple=True,
    metavar="[NAME=]MODEL",
    help="Draft model; may be repeated.",
)
@option(
    "--alignment",
    "alignments",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Alignment of a draft's tokenizer with the target's, from `spectool align`; needed where they have different "
    "vocabularies, and found by fingerprint. May be repeated.",
)
@option("--gamma", type=Whole(1, 64), default=5, show_default=True, help="Draft tokens per pass.")
@option(
    "--temp",
    "--temperature",
    "temperatures",
    type=Finite(0),
    multiple=True,
    default=(0.0,),
    show_default=True,
    help="Temperature of both models to measure the acceptance at, in addition to 1; may be repeated.",
)
@option(
    "--cost",
    "costs",
    type=Finite(0),
    multiple=True,
    metavar="C",
    help="Time of a draft's pass divided by that of the target's: one value for all drafts, or one for each in their "
    "order. By default the bytes of its weights divided by the target's.",
)
@option("--rows", type=Whole(2), default=64, show_default=True, help="Passages to measure in each task.")
@count_option("--length", default=128, help="Maximum number of the target's tokens in a passage.")
@seed_option(help="Seed that draws the passages.")
@out_option
def fairness(
    target: str,
    tasks: tuple[str, ...],
    drafts: tuple[str, ...],
    alignments: tuple[Path, ...],
    gamma: int,
    temperatures: tuple[float, ...],
    costs: tuple[float, ...],
    rows: int,
    length: int,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure which languages a draft serves badly.

    For each task and draft: acceptance with its standard error, cross-entropy and KL of draft from target, expected
    speed-up with its lower bounds, fitness and unfairness. The most important figures are printed, and OUT has all of
    them as JSON. After a kill, the same command continues with the remaining tasks.

    \b
    Examples:
        spectool lab fairness --target ./Bielik-11B --draft ./Bielik-1.5B --task pl=pl.txt --task uk=uk.txt \\
            -o pl-uk.json
        spectool lab fairness --target ./Bielik-11B --draft ./Bielik-1.5B --draft ./Qwen2.5-1.5B \\
            --alignment qwen-bielik.align --task pl=pl.txt --task uk=uk.txt --cost 0.15 --cost 0.14 -o pl-uk.json
    """
    named = by_name(drafts, "--draft")
    if "target" in named:
        raise click.UsageError("target is taken; give the draft another name, as in NAME=DIR")
    if len(costs) > 1 and len(costs) != len(named):
        raise click.UsageError(f"{len(costs)} --cost for {len(named)} drafts: give one for all, or one for each")

    from spectool import require_extra

    require_extra("lab", "spectool lab fairness")
    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.lab.fairness.measuring import FairnessOptions, measure_fairness

    options = FairnessOptions(
        target=target,
        tasks=by_name(tasks, "--task"),
        drafts=named,
        alignments=alignments,
        gamma=gamma,
        temperatures=temperatures,
        costs=costs,
        rows=rows,
        length=length,
        seed=seed,
    )
    path = out or default_path(f"{slug(target)}-{digest(options)}.fairness.json")
    figures = measure_fairness(options, path)
    if as_json:
        show({"path": str(path), **figures}, as_json)
        return
    show({"path": str(path), "bytes": path.stat().st_size}, as_json)
    click.echo(f"\n{_table(figures)}")


def _table(figures: dict[str, Any]) -> str:
    """Drafts by task."""
    lines = []
    for name, draft in figures["drafts"].items():
        for task, at in draft["tasks"].items():
            cells = {
                "alpha": f"{at['acceptance']:.1%} ± {at['acceptance_error']:.1%}",
                "D": f"{at['cross_entropy']:.3f}",
                "KL": f"{at['kl']:.3f}",
                "fitness": f"{1 - at['draft_misfit']:.1%}",
                "speed-up": f"{at['speedup']:.2f}",
            }
            lines.append([f"{name}, {task}", *cells.values()])
    return table(["", *cells], lines)
