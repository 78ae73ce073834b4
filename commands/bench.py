"""The command ``bench``: drafters measured on this machine, and a page that says whether drafting pays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from spectool.commands.console import guarded, progress, say, show, table
from spectool.commands.model_options import DraftLength, min_draft_prob_option, model_option, verify_option
from spectool.commands.options import Finite, json_option
from spectool.runtime.translation.factory import STRATEGIES

_PROMPTS = (
    "pl, uk, en, crh, crh-cyrl: built-in prompts, one kind alone as pl:list; or a corpus, as for --corpus of build-dict"
)
_DRAFTER = {
    **{"name": "name", "model": "draft_model", "draft": "draft_model", "dict": "dictionary"},
    **{"align": "alignment", "alignment": "alignment", "verify": "verify"},
}
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NUMBER = click.IntRange(1)


@click.command()
@click.argument("experiment", type=_FILE, required=False)
@model_option(required=False)
@click.option(
    "--drafter",
    "drafters",
    multiple=True,
    metavar="SPEC",
    help="What drafts, such as dict=pl.dict,history or model=./qwen,align=qwen.align,strategy=context+anchored; "
    f"name=…, verify=… and min-prob=… apply to it alone. May be repeated. Strategies: {', '.join(STRATEGIES)}.",
)
@click.option(
    "--prompts", multiple=True, metavar="SOURCE", help=f"Where prompts come from: {_PROMPTS}; may be repeated."
)
@click.option(
    "--count",
    type=_NUMBER,
    metavar="N",
    help="Total number of prompts, spread evenly over sources and kinds: --prompts pl --count 10 takes the first 2 of "
    "each of five kinds. By default all 60 built-in prompts of a language, and 12 of a corpus.",
)
@click.option("--sample", type=_NUMBER, metavar="N", help="Draw this number of prompts at random, by --seed, instead.")
@click.option("--window", type=click.IntRange(0), help="Tokens of a prompt from a corpus; whole documents by default.")
@click.option(
    "--num-draft-tokens",
    type=DraftLength(1),
    multiple=True,
    metavar="K",
    help="Draft length, or auto, the default; may be repeated.",
)
@click.option("--tokens", type=_NUMBER, help="Maximum number of tokens generated after each prompt; 128 by default.")
@click.option("--repetitions", type=_NUMBER, help="Repetitions of every prompt; 1 by default.")
@click.option(
    "--temp", "--temperature", "temperature", type=Finite(0), multiple=True, help="May be repeated; 0 by default."
)
@click.option("--seed", type=click.IntRange(0), help="For orders, sampling and prompts drawn at random; 0 by default.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the model ends its text: all answers are equally long.")
@min_draft_prob_option(default=None, show_default=False)
@verify_option(default=None, show_default=False)
@click.option("--pause", type=Finite(0), default=0.0, help="Seconds of rest before each prompt.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="RUN", help="Directory to write.")
@json_option
@guarded
def bench(
    experiment: Path | None,
    model: str | None,
    drafters: tuple[str, ...],
    prompts: tuple[str, ...],
    count: int | None,
    sample: int | None,
    window: int | None,
    num_draft_tokens: tuple[int | None, ...],
    tokens: int | None,
    repetitions: int | None,
    temperature: tuple[float, ...],
    seed: int | None,
    ignore_eos: bool,
    min_draft_prob: float | None,
    verify: str | None,
    pause: float,
    out: Path,
    as_json: bool,
) -> None:
    """Measure drafters, and say whether drafting pays on this machine.

    Each prompt is decoded plainly, by mlx-lm's own loop, and with every drafter, strategy and draft length, in an order
    that changes from prompt to prompt. If the run is killed, the same command goes on where it was. Options override
    what EXPERIMENT (TOML) says. A page with the verdict is written to RUN-report at the end.

    \b
    Examples:
        spectool bench --model ./Bielik-11B --drafter dict=pl.dict,history --prompts pl -o bielik.bench
        spectool bench --model ./Bielik-11B --drafter model=./Qwen,align=qwen.align,strategy=context+anchored \\
            --prompts wiki-pl --window 1024 --sample 50 --temp 0 --temp 0.7 -o bielik.bench
        spectool bench experiment.toml --num-draft-tokens auto -o auto.bench
    """
    from spectool import ArtifactError
    from spectool.measure.bench.experiment import make_experiment, read_keys
    from spectool.measure.bench.running import run_experiment
    from spectool.measure.intervals import LEAST
    from spectool.measure.report.run_page import page_folder, write_run_page
    from spectool.measure.report.trials import read_trials
    from spectool.measure.report.verdicts import summary_table, verdicts

    keys = {} if experiment is None else read_keys(experiment)
    overriding = {
        **{"num_draft_tokens": num_draft_tokens, "tokens": tokens, "repetitions": repetitions},
        **{"temperature": temperature, "seed": seed, "ignore_eos": ignore_eos or None},
    }
    keys |= {name: value for name, value in overriding.items() if value not in (None, ())}
    _put_drafters(keys, model, drafters, min_draft_prob, verify)
    _put_prompts(keys, prompts, {"count": count, "sample": sample}, window)
    planned = make_experiment(keys, experiment)
    folder = page_folder(out)
    run = run_experiment(planned, out, pause, say, progress)

    statistics = run.manifest.statistics
    facts = {"path": str(out), **{key: statistics[key] for key in ("blocks", "generations", "different", "seconds")}}
    if as_json:
        facts |= {key: statistics[key] for key in ("compared", "first_difference", "largest_gap")}
    elif statistics["different"] is not None:
        facts["different"] = describe_differences(statistics)
    try:
        trials = read_trials(run)
    except ArtifactError as error:  # too short to compare anything
        show(facts, as_json)
        say(str(error))
        return
    if trials.left_out:
        say(
            f"left out: {trials.left_out} of {statistics['prompts']} prompts, because some output has fewer than "
            f"{LEAST} tokens. --ignore-eos goes on after the model ends its text"
        )
    write_run_page(trials, folder)
    facts["page"] = str(folder)
    if as_json:
        show(facts | {"configurations": [one.figures() for one in trials.results]}, as_json)
        return
    found = verdicts(trials)
    summary = summary_table(found)
    click.echo(table(list(summary.header), [list(row) for row in summary.rows]) + "\n")
    show(facts | {"verdict": [verdict.sentence for verdict in found]}, as_json)


def _put_drafters(
    keys: dict[str, Any], model: str | None, drafters: Sequence[str], min_draft_prob: float | None, verify: str | None
) -> None:
    """Put what options say of model and drafters into the keys of an experiment."""
    if model is None and drafters:
        raise click.UsageError("--drafter needs --model")
    if model is not None:
        keys["models"] = [{"name": Path(model).name, "path": model, "drafters": list(map(_drafter, drafters))}]
    for drafter in [drafter for each in keys.get("models", ()) for drafter in each.get("drafters", ())]:
        if min_draft_prob is not None:
            drafter["min_draft_prob"] = min_draft_prob
        if verify is not None and "draft_model" in drafter:
            drafter["verify"] = verify


def _put_prompts(
    keys: dict[str, Any], prompts: Sequence[str], totals: Mapping[str, int | None], window: int | None
) -> None:
    """Put what options say of prompts into the keys of an experiment; ``totals`` are of all sources together."""
    from spectool.measure.bench.experiment import split

    if prompts:
        keys["prompts"] = list(map(_prompts, prompts))
    sources: list[dict[str, Any]] = keys.get("prompts") or []
    if not sources:
        raise click.UsageError(f"no prompts: give --prompts ({_PROMPTS}), or an EXPERIMENT that has some")
    if window is not None:
        corpora = [source for source in sources if "source" in source]
        if not corpora:
            raise click.UsageError("--window cuts prompts from a corpus, and all of these are built-in ones")
        for source in corpora:
            source["window"] = window
    for key, total in totals.items():
        if total is None:
            continue
        if total < len(sources):
            raise click.UsageError(
                f"--{key}: expected at least one prompt of each source, got {total} for {len(sources)} sources"
            )
        for source, share in zip(sources, split(total, len(sources)), strict=True):
            source[key] = share


def _drafter(text: str) -> dict[str, Any]:
    """Read ``--drafter``."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if part == "history":
            found["history"] = True
        elif key == "strategy" and value:
            found["strategies"] = value.split("+")
        elif key == "min-prob" and value:
            found["min_draft_prob"] = Finite(0, 1).convert(value, None, None)
        elif key in _DRAFTER and value:
            found[_DRAFTER[key]] = value
        else:
            expected = "history, strategy=…+…, min-prob=…, " + ", ".join(f"{name}=…" for name in _DRAFTER)
            raise click.UsageError(f"--drafter {text}: {part!r}: expected one of {expected}")
    made_of = [Path(found[key]).name for key in ("draft_model", "dictionary") if key in found]
    made_of += ["history"] if "history" in found else []
    settings = [str(found[key]) for key in ("verify", "min_draft_prob") if key in found]
    return {"name": " ".join(["+".join(made_of) or text, *settings]), **found}


def _prompts(text: str) -> dict[str, Any]:
    """Read ``--prompts``."""
    from spectool.measure.bench.experiment import LANGUAGES

    language, _, kind = text.partition(":")
    if language in LANGUAGES:
        return {"language": language, "kinds": [kind] if kind else []}
    return {"source": text}


def describe_differences(counts: Mapping[str, Any]) -> str:
    """How many outputs leave plain decoding's, and where."""
    number, compared = counts["different"], counts["compared"]
    if not number:
        return f"0 of {compared['outputs']:,} outputs, {compared['tokens']:,} tokens"
    return (
        f"{number:,} of {compared['outputs']:,} outputs, one in {compared['tokens'] / number:,.0f} tokens, the first "
        f"after {counts['first_difference']:,}; the two best logits there are {counts['largest_gap']:.3g} apart at most"
    )
