"""The command ``fairness``."""

from pathlib import Path
from typing import Any

import click

from spectool.artifacts.options import options_of
from spectool.commands.console import guarded, show, table
from spectool.commands.options import json_option, out_option, text_options
from spectool.lab.fairness.options import FairnessOptions
from spectool.lab.training.run_options import named


@click.command()
@options_of(FairnessOptions)
@out_option
@text_options
@json_option
@guarded
def fairness(out: Path | None, as_json: bool, reads: dict[str, Any], **given: Any) -> None:
    """Measure whom a draft serves and whom it does not, and what would help the slow ones.

    For every task and draft: acceptance, cross-entropy and KL of draft from target, expected speed-up with its lower
    bounds, fitness and unfairness. For every tokenizer: fertility and tokenization tax. For the slow language: what
    dictionaries and other drafts would give it. OUT has all figures as fairness.json, and a page: report.html,
    report.md. Killed, it goes on with the tasks that are left: give the same command again.

    \b
    Examples:
        spectool fairness --target ./Bielik-11B --draft ./Bielik-1.5B --task pl=pl.txt --task uk=uk.txt \\
            --dict uk.dict -o pl-uk
        spectool fairness --target ./Bielik-11B --draft ./Bielik-1.5B --draft ./Qwen2.5-1.5B \\
            --alignment qwen-bielik.align --task pl=pl.txt --task uk=uk.txt --cost 0.15 --cost 0.14 -o pl-uk
    """
    names = {"tasks": "--task", "drafts": "--draft", "dictionaries": "--dict"}
    asked = FairnessOptions(**given | {field: named(given[field], name) for field, name in names.items()})

    from spectool import require_extra

    require_extra("report", "spectool fairness")
    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.lab.fairness.measuring import measure

    path = out or default_path(f"{slug(asked.target)}-{digest(*click.get_current_context().params.values())}.fairness")
    figures, manifest = measure(asked, path, **reads)
    if as_json:
        show({"path": str(path), **figures}, as_json)
        return
    show({"path": str(path), "page": str(path / "report.html"), "bytes": f"{manifest.total_bytes:,}"}, as_json)
    click.echo()
    click.echo(_table(figures))
    click.echo()
    click.echo(figures["verdict"]["sentence"])


def _table(figures: dict[str, Any]) -> str:
    """Lay out drafts and dictionaries by task."""
    from spectool.measure.page import cell

    lines = []
    for name, found in {**figures["drafts"], **figures["dictionaries"]}.items():
        for task, at in found["tasks"].items():
            misfit = at.get("draft_misfit")
            cells = {
                "alpha": cell(at["acceptance"] if "draft_misfit" in at else None, ".1%"),
                "D": cell(at.get("cross_entropy"), ".3f"),
                "KL": cell(at.get("kl"), ".3f"),
                "fitness": cell(None if misfit is None else 1 - misfit, ".1%"),
                "speed-up": cell(at["speedup"] if "speedup" in at else at["tokens_per_pass"]),
                "bits/byte": cell(at.get("bits_per_byte"), ".3f"),
                "fertility": cell(figures["fertility"]["tokenizers"]["target"][task]["fertility"]),
            }
            lines.append([f"{name}, {task}", *cells.values()])
    return table(["", *cells], lines)
