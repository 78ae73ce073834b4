"""``spectool bench``."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from spectool.artifacts.console import Finite, guarded, json_option, say, show, table
from spectool.runtime.commands.model_options import DraftLength
from spectool.runtime.translation.strategies import STRATEGIES

_PROMPTS = "pl, uk, en, crh: built-in prompts, one kind alone as pl:list; or a corpus, as for --corpus of build-dict"


@click.command()
@click.argument("experiment", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False)
@click.option(
    "--paths",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help='Where the models, artifacts and corpora of EXPERIMENT lie here: TOML, "name there" = "path here".',
)
@click.option("--model", metavar="M", help="Target model: directory or hub id.")
@click.option(
    "--drafter",
    "drafters",
    multiple=True,
    metavar="SPEC",
    help="What drafts, such as dict=pl.dict,history or model=./qwen,align=qwen.align,strategy=context+anchored, with "
    f"name=… before it for the tables; may be repeated. Strategies: {', '.join(STRATEGIES)}.",
)
@click.option("--prompts", multiple=True, metavar="SOURCE", help=f"Where prompts come from: {_PROMPTS}; repeatable.")
@click.option("--count", type=click.IntRange(1), help="Prompts of each kind, or of each corpus; 12 by default.")
@click.option("--window", type=click.IntRange(0), help="Tokens of a prompt from a corpus; whole documents by default.")
@click.option("--stride", type=click.IntRange(1), help="Tokens from a window to the next; half a window by default.")
@click.option(
    "--num-draft-tokens",
    type=DraftLength(1),
    multiple=True,
    metavar="K",
    help="Draft length, or auto; may be repeated; 2, 4 and auto by default.",
)
@click.option("--tokens", type=click.IntRange(1), help="To generate after each prompt, at most; 128 by default.")
@click.option("--repetitions", type=click.IntRange(1), help="Of every prompt; 1 by default.")
@click.option("--temp", "temperature", type=Finite(0), help="Temperature; 0 by default.")
@click.option("--seed", type=click.IntRange(0), help="Of the order of the ways, and of sampling; 0 by default.")
@click.option("--ignore-eos", is_flag=True, default=None, help="Go on behind the end that the model sees.")
@click.option("--tdp", "watts", type=Finite(0), help="Watts to estimate energy with, where it cannot be measured.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="RUN", help="Directory to write.")
@json_option
@guarded
def bench(
    experiment: Path | None,
    paths: Path | None,
    model: str | None,
    drafters: tuple[str, ...],
    prompts: tuple[str, ...],
    count: int | None,
    window: int | None,
    stride: int | None,
    watts: float | None,
    out: Path,
    as_json: bool,
    **changes: Any,
) -> None:
    """Measure drafters side by side: prompts in every way, every cycle recorded.

    Each prompt is decoded plainly, by mlx-lm's own loop, and with every drafter, strategy and draft length, in an
    order that changes from prompt to prompt. Killed, it goes on where it was: give the same command again.
    What EXPERIMENT (TOML) says, options change. `spectool report RUN` turns the run into tables and a page.

    \b
    Examples:
        spectool bench --model ./Bielik-11B --drafter dict=pl.dict,history --prompts pl -o bielik.bench
        spectool bench --model ./Bielik-11B --drafter model=./Qwen,align=qwen.align,strategy=context+anchored \\
            --prompts pl:question --prompts wiki-pl --window 1024 --stride 512 --count 50 -o bielik.bench
        spectool bench experiment.toml --num-draft-tokens auto -o auto.bench
    """
    from spectool import ArtifactError
    from spectool.artifacts.work import work_path
    from spectool.measure.bench.experiment import Experiment, ModelSpec, read_experiment, read_paths, with_paths
    from spectool.measure.bench.progress import Progress
    from spectool.measure.bench.running import run_experiment
    from spectool.measure.report.summary import figures_of_ways, verdicts
    from spectool.measure.report.trials import LEAST, read_trials

    keys: dict[str, Any] = {} if experiment is None else read_experiment(experiment)
    if paths is not None:
        keys = with_paths(keys, read_paths(paths))
    changes["num_draft_tokens"] = changes["num_draft_tokens"] or None
    keys |= {key: value for key, value in changes.items() if value is not None}
    if model is not None or drafters:
        if model is None:
            raise click.UsageError("--drafter needs --model")
        keys["models"] = (ModelSpec(Path(model).name, model, tuple(map(_drafter, drafters))),)
    if prompts:
        keys["prompts"] = tuple(map(_prompts, prompts))
    if "prompts" not in keys:
        raise click.UsageError(f"no prompts: give --prompts ({_PROMPTS}), or an EXPERIMENT that has some")
    keys["prompts"] = tuple(_changed(source, count, window, stride) for source in keys["prompts"])
    planned = Experiment(**{"models": (), **keys})
    with tqdm(unit=" generations", disable=None) as bar:

        def begin(done: int, total: int) -> None:
            bar.reset(total)
            bar.initial = bar.n = done  # what was measured before says nothing about the speed
            bar.refresh()
            if done:
                say(f"going on: {done} of {total} generations were measured before")

        try:
            run = run_experiment(planned, out, watts, Progress(begin, lambda: bar.update(1), _noted(bar)))
        except KeyboardInterrupt:
            if (kept := work_path(out.resolve())).exists():
                say(f"Interrupted. What was measured is kept in {kept}; the same command goes on from there.")
                sys.exit(130)
            raise
    statistics = run.manifest.statistics
    facts = {"path": str(out), **{key: statistics[key] for key in ("blocks", "generations", "different", "seconds")}}
    try:
        trials = read_trials(run)
    except ArtifactError as error:  # outputs too short to compare
        show(facts, as_json)
        say(f"{error}. Where the model sees an end early, --ignore-eos goes on behind it")
        return
    ways = figures_of_ways(trials)
    if trials.left_out:
        say(
            f"left out: {len(trials.left_out)} of {facts['blocks']} blocks, fewer than {LEAST} tokens in some way. "
            "Where the model sees an end early, --ignore-eos goes on behind it"
        )
    if as_json:
        show(facts | {"ways": ways}, as_json)
        return
    click.echo(_summary(ways) + "\n")
    show(facts | {"in words": [verdict.sentence for verdict in verdicts(trials)]}, as_json)
    say(f"tables and plots: spectool report {out}")


def _noted(bar: Any) -> Any:
    def note(phrase: str) -> None:
        if bar.disable:
            say(phrase)
        else:
            bar.set_description(phrase)

    return note


def _drafter(text: str) -> Any:
    """Read ``--drafter``."""
    from spectool.measure.bench.experiment import DrafterSpec

    named = {"name": "name", "model": "draft_model", "align": "alignment", "dict": "dictionary"}
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, given, value = part.partition("=")
        if key == "history" and not given:
            found["history"] = True
        elif key == "strategy" and value:
            found["strategies"] = tuple(value.split("+"))
        elif key in named and value:
            found[named[key]] = value
        else:
            expected = "history, strategy=…+…, " + ", ".join(f"{name}=…" for name in named)
            raise click.UsageError(f"--drafter {text}: {part!r}: expected one of {expected}")
    default = [Path(found[key]).name for key in ("draft_model", "dictionary") if key in found]
    return DrafterSpec(**{"name": "+".join([*default, *(["history"] if "history" in found else [])]), **found})


def _prompts(text: str) -> Any:
    """Read ``--prompts``."""
    from spectool.measure.bench.experiment import LANGUAGES, Prompts

    language, _, kind = text.partition(":")
    if language in LANGUAGES:
        return Prompts(language=language, kinds=(kind,) if kind else ())
    return Prompts(source=text)


def _changed(source: Any, count: int | None, window: int | None, stride: int | None) -> Any:
    """Apply ``--count`` to a source of prompts, and the other two to one that is a corpus."""
    from spectool.measure.bench.experiment import BUILT_IN

    changes = {} if count is None else {"count": count}
    if source.source != BUILT_IN and (window is not None or stride is not None):
        tokens = source.window if window is None else window
        changes |= {"window": tokens, "stride": -(-tokens // 2) if stride is None else stride}
    return replace(source, **changes)


def _summary(ways: Sequence[Mapping[str, Any]]) -> str:
    """Lay out the main figures of all ways; intervals are of 95%, over prompts."""
    several = len({way["model"] for way in ways}) > 1
    header = ["drafter", "strategy", "k", "speed-up", "95% interval", "acceptance", "tokens per pass", "prompts"]
    rows = []
    for way in ways:
        low, high = way["low"], way["high"]
        rows.append(
            [
                f"{way['model']}: {way['drafter']}" if several else way["drafter"],
                way["strategy"] or "",
                "auto" if way["num_draft_tokens"] is None else str(way["num_draft_tokens"]),
                f"{way['speedup']:.2f}",
                "" if low is None else f"{max(0.0, low):.2f} to {high:.2f}",
                "" if way["acceptance"] is None else f"{way['acceptance']:.0%}",
                f"{way['tokens_per_pass']:.2f}",
                str(way["prompts"]),
            ]
        )
    return table(header, rows)
