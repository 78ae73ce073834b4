"""The command ``fairness``."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.console import (
    Finite,
    guarded,
    json_option,
    out_option,
    progress,
    reading,
    say,
    show,
    table,
    text_options,
)
from spectool.artifacts.options import option, options_of
from spectool.build.training.run_options import named

_several = partial(option, default=(), multiple=True)


@dataclass(frozen=True, kw_only=True)
class FairnessOptions:
    """What is measured; the help of each says what it is."""

    target: str = option(str, "Target model: directory or hub id.", names=("--target", "--model"), metavar="MODEL")
    tasks: tuple[str, ...] = option(
        str,
        "Text of a language or task that no model has seen: file, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or "
        "sample:pl. May be repeated.",
        names=("--task",),
        multiple=True,
        metavar="[NAME=]SPEC",
    )
    drafts: tuple[str, ...] = option(
        str,
        "Draft model; may be repeated. The gap is that of the first; the others are what may close it.",
        names=("--draft", "--draft-model"),
        multiple=True,
        metavar="[NAME=]MODEL",
    )
    alignments: tuple[Path, ...] = _several(
        click.Path(path_type=Path),
        "Alignment of a draft's tokenizer with the target's, from `spectool align`; found by fingerprint. "
        "May be repeated. Without one, a draft with another tokenizer is compared on text alone.",
        names=("--alignment",),
        metavar="DIR",
    )
    dictionaries: tuple[str, ...] = _several(
        str,
        "Dictionary that may help the slow language; may be repeated.",
        names=("--dict",),
        metavar="[NAME=]DIR",
    )
    gamma: int = option(click.IntRange(1, 64), "Draft tokens a pass.", 5)
    temperatures: tuple[float, ...] = _several(
        Finite(0),
        "Temperature of both models to know the acceptance at, beside that at 1; may be repeated.",
        default=(0.0,),
        names=("--temp", "--temperature"),
    )
    costs: tuple[float, ...] = _several(
        Finite(0),
        "Seconds of a draft's pass over those of the target's: one for all drafts, or one for each in their order. By "
        "default the bytes of its weights over the target's.",
        names=("--cost",),
        metavar="C",
    )
    rows: int = option(click.IntRange(2), "Passages of each task to measure on.", 64)
    length: int = option(click.IntRange(2), "The target's tokens in a passage, at most.", 128)
    seed: int = option(click.IntRange(0), "Another seed, other passages.", 0)
    reference: str | None = option(
        str,
        "Task whose tokenization tax is 1; by default the one that each tokenizer serves best.",
        None,
        metavar="NAME",
    )
    parallel: bool = option(
        bool,
        "The texts are translations of each other, document by document: the tax is in tokens for the same content.",
        False,
    )


@click.command()
@options_of(FairnessOptions)
@out_option
@text_options
@json_option
@guarded
def fairness(out: Path | None, as_json: bool, on_error: Any, text_field: str | None, **given: Any) -> None:
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
    options = FairnessOptions(**given)
    specs, sources = named(options.tasks, "--task"), named(options.drafts, "--draft")
    folders, costs = named(options.dictionaries, "--dict"), options.costs
    if both := sorted(set(sources) & set(folders)):
        raise click.UsageError(f"a draft and a dictionary are both called {both[0]}; give them names, as in NAME=DIR")
    if reserved := sorted({"target", "no drafting"} & {*sources, *folders}):
        raise click.UsageError(f"{reserved[0]} is taken; give another name, as in NAME=DIR")
    if len(costs) > 1 and len(costs) != len(sources):
        raise click.UsageError(f"{len(costs)} --cost for {len(sources)} drafts: give one for all, or one for each")
    if options.reference not in (None, *specs):
        raise click.UsageError(f"--reference: expected one of {', '.join(specs)}, got {options.reference}")

    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.artifacts.formats.alignment import alignments_of
    from spectool.artifacts.formats.fairness import FORMAT
    from spectool.artifacts.replacing import check_replaceable
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.artifacts.work import working
    from spectool.build.training.tuning.tuned_model import open_model
    from spectool.corpora import open_corpus
    from spectool.measure.bench.running import contents
    from spectool.measure.fairness.measuring import MeasuredDraft, Measurement
    from spectool.measure.fairness.page import write
    from spectool.measure.fairness.texts import fertility, read_text
    from spectool.runtime.loading import open_dictionary

    target = options.target
    path = out or default_path(f"{slug(target)}-{digest(*click.get_current_context().params.values())}.fairness")
    check_replaceable(path, FORMAT)
    reads: dict[str, Any] = {"on_error": on_error, "text_field": text_field}
    corpora = {name: open_corpus(spec, **reads) for name, spec in specs.items()}
    tokenizers = {"target": open_tokenizer(target), **{name: open_tokenizer(s) for name, s in sources.items()}}
    for name, tokenizer in tokenizers.items():
        for line in tokenizer.notes:
            say(f"{name}: {line}")
    of_target, of_drafts = tokenizers["target"], {name: tokenizers[name] for name in sources}
    aligned = alignments_of(of_drafts, of_target, options.alignments)
    opened = {name: open_dictionary(Path(folder), of_target) for name, folder in folders.items()}
    choices = {
        name: MeasuredDraft(sources[name], tokenizer, aligned[name], cost)
        for (name, tokenizer), cost in zip(of_drafts.items(), cycle(costs or [None]), strict=False)
    }
    others, drawn = list(of_drafts.values()), (options.rows, options.length, options.seed)
    texts = {name: read_text(corpus, of_target, others, reading, *drawn) for name, corpus in corpora.items()}
    different = dict(reversed({t.fingerprint: (name, t) for name, t in reversed(tokenizers.items())}.values()))
    known = fertility(different, texts, options.reference, options.parallel)
    temperatures = tuple(dict.fromkeys(options.temperatures))
    found = {"drafts": sources, "alignments": {n: p and str(p) for n, p in aligned.items()}, "dictionaries": folders}
    arguments = asdict(options) | {"tasks": specs} | found | reads
    passages = hashlib.sha256(repr([text.passages for text in texts.values()]).encode()).hexdigest()
    key = {"asked": arguments, "passages": passages, **contents((target, *sources.values()), options.alignments)}
    with working(path, json.loads(json.dumps(key)), what="measurement", begin_anew=False) as kept:
        rows = sum(len(text.passages) for text in texts.values()) * (1 + 2 * len(choices) + len(opened))
        with progress("measuring", rows, "rows") as done:
            asked = Measurement(open_model(target), texts, options.gamma, temperatures, kept, done)
            figures = asked.figures(choices, opened)
        figures["fertility"] = known
        manifest = write(path, figures, arguments, {name: t.identity for name, t in tokenizers.items()}, texts)
    if as_json:
        show({"path": str(path), **figures}, as_json)
        return
    show({"path": str(path), "page": str(path / "report.html"), "bytes": f"{manifest.total_bytes:,}"}, as_json)
    if not any(name.endswith(".svg") for name in manifest.files):
        say("no plots: none to draw, or no matplotlib (pip install 'spectool[report]')")
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
