"""``spectool bench``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.options import option, options_of, several
from spectool.commands.console import guarded, say, show, table
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
_FLAGS = {"history": "history", "prompt-lookup": "prompt_lookup"}
_COUNT, _FILE = click.IntRange(1), click.Path(path_type=Path, exists=True, dir_okay=False)
_one = partial(option, default=None)


@dataclass(frozen=True)
class Changes:
    """What options say in the place of an experiment's keys; None, or nothing, where they do not."""

    drafters: tuple[str, ...] = several(
        str,
        "What drafts, such as dict=pl.dict,history or model=./qwen,align=qwen.align,strategy=context+anchored; name=…, "
        "verify=… and min-prob=… are for it alone; prompt-lookup takes history's place by vLLM's rule. "
        f"May be repeated. Strategies: {', '.join(STRATEGIES)}.",
        names=("--drafter",),
        metavar="SPEC",
    )
    prompts: tuple[str, ...] = several(str, f"Where prompts come from: {_PROMPTS}; repeatable.", metavar="SOURCE")
    count: int | None = _one(
        _COUNT,
        "Number of prompts, the first ones, spread evenly over sources and kinds: --prompts pl --count 10 takes 2 of "
        "each of five kinds. By default all 60 built-in prompts of a language, and 12 of a corpus.",
        metavar="N",
    )
    sample: int | None = _one(_COUNT, "Draw this number of prompts at random, by --seed, instead.", metavar="N")
    window: int | None = _one(click.IntRange(0), "Tokens of a prompt from a corpus; whole documents by default.")
    stride: int | None = _one(_COUNT, "Tokens from a window to the next; half a window by default.")
    num_draft_tokens: tuple[int | None, ...] = several(
        DraftLength(1), "Draft length, or auto, which is the default; may be repeated.", metavar="K"
    )
    tokens: int | None = _one(_COUNT, "To generate after each prompt, at most; 128 by default.")
    repetitions: int | None = _one(_COUNT, "Of every prompt; 1 by default.")
    temperature: tuple[float, ...] = several(
        Finite(0), "May be repeated; 0 by default.", names=("--temp", "--temperature")
    )
    seed: int | None = _one(click.IntRange(0), "Of orders, sampling and prompts drawn at random; 0 by default.")
    ignore_eos: bool | None = _one(bool, "Go on after the model ends its text, so that all answers are equally long.")


@click.command()
@click.argument("experiment", type=_FILE, required=False)
@click.option("--paths", type=_FILE, help='Local paths for names used in EXPERIMENT: TOML, "name there" = "path here".')
@model_option(required=False)
@options_of(Changes)
@min_draft_prob_option(default=None, show_default=False)
@verify_option(default=None, show_default=False)
@click.option("--tdp", "watts", type=Finite(0), help="Watts to estimate energy with, where it cannot be measured.")
@click.option("--pause", type=Finite(0), default=0.0, help="Seconds of rest before each prompt.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="RUN", help="Directory to write.")
@json_option
@guarded
def bench(
    experiment: Path | None,
    paths: Path | None,
    watts: float | None,
    pause: float,
    out: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure drafters side by side: prompts in every configuration, every cycle recorded.

    Each prompt is decoded plainly, by mlx-lm's own loop, and with every drafter, strategy and draft length. The order
    changes from prompt to prompt. Killed, it goes on where it was: give the same command again. What EXPERIMENT (TOML)
    says, options change. `spectool report RUN` turns the run into tables and a page.

    \b
    Examples:
        spectool bench --model ./Bielik-11B --drafter dict=pl.dict,history --prompts pl -o bielik.bench
        spectool bench --model ./Bielik-11B --drafter model=./Qwen,align=qwen.align,strategy=context+anchored \\
            --prompts wiki-pl --window 1024 --sample 50 --temp 0 --temp 0.7 -o bielik.bench
        spectool bench experiment.toml --num-draft-tokens auto -o auto.bench
    """
    from spectool import ArtifactError, has_extra
    from spectool.measure.bench.experiment import make_experiment, read_keys
    from spectool.measure.bench.running import run_experiment
    from spectool.measure.sample_size import LEAST, too_short

    keys = {} if experiment is None else read_keys(experiment, paths)
    planned = make_experiment(_changed(keys, options), experiment)
    run = run_experiment(planned, out, watts, pause)
    statistics = run.manifest.statistics
    facts = {"path": str(out), **{key: statistics[key] for key in ("blocks", "generations", "different", "seconds")}}
    if as_json:
        facts |= {key: statistics[key] for key in ("compared", "first_difference", "largest_gap")}
    elif statistics["different"] is not None:
        facts["different"] = differences(statistics)
    if not has_extra("report"):
        from spectool.measure.bench.totals import totals, totals_table

        if as_json:
            show(facts | {"totals": totals(run)}, as_json)
            return
        click.echo(totals_table(run) + "\n")
        show(facts, as_json)
        if short := too_short(min(each["prompts"] for each in totals(run))):
            say(short)
        say(f"for intervals, a verdict and plots: pip install 'spectool[report]', then: spectool report {out}")
        return

    from spectool.measure.report.summary import main_figures, verdicts
    from spectool.measure.report.trials import read_trials

    try:
        trials = read_trials(run)
    except ArtifactError as error:  # outputs too short to compare
        show(facts, as_json)
        say(f"{error}. Where the model sees an end early, --ignore-eos goes on behind it")
        return
    figures = main_figures(trials)
    if trials.left_out:
        say(
            f"left out: {trials.left_out} of {statistics['prompts']} prompts, with fewer than {LEAST} tokens in some "
            "output. Where the model sees an end early, --ignore-eos goes on behind it"
        )
    if as_json:
        show(facts | {"configurations": figures}, as_json)
        return
    click.echo(figures_table(figures) + "\n")
    show(facts | {"in words": [verdict.sentence for verdict in verdicts(trials)]}, as_json)
    say(f"tables and plots: spectool report {out}")


def _changed(keys: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Put what options say in the place of an experiment's keys."""
    given = {key: value for key, value in options.items() if value not in (None, ())}
    own = {key: given.pop(key) for key in ("min_draft_prob", "verify") if key in given}
    drawn: dict[str, Any] = {key: given.pop(key) for key in ("count", "sample", "window", "stride") if key in given}
    model, drafters, prompts = (given.pop(key, None) for key in ("model", "drafters", "prompts"))
    from spectool.measure.bench.experiment import split

    keys = keys | given
    if model is not None or drafters:
        if model is None:
            raise click.UsageError("--drafter needs --model")
        keys["models"] = [{"name": Path(model).name, "path": model, "drafters": list(map(_drafter, drafters or ()))}]
    for drafter in [drafter for each in keys.get("models", ()) for drafter in each.get("drafters", ())]:
        drafter |= {key: value for key, value in own.items() if key != "verify" or "draft_model" in drafter}
    if prompts:
        keys["prompts"] = list(map(_prompts, prompts))
    if not keys.get("prompts"):
        raise click.UsageError(f"no prompts: give --prompts ({_PROMPTS}), or an EXPERIMENT that has some")
    if ("window" in drawn or "stride" in drawn) and not any("source" in source for source in keys["prompts"]):
        raise click.UsageError("--window and --stride cut prompts from a corpus, and all of these are built-in ones")
    for source in keys["prompts"]:
        if "source" in source:
            source |= {key: value for key, value in drawn.items() if key in ("window", "stride")}
    for limit in [key for key in ("count", "sample") if key in drawn]:
        for source, share in zip(keys["prompts"], split(drawn[limit], len(keys["prompts"])), strict=True):
            if not share:
                asked = f"{drawn[limit]} for {len(keys['prompts'])} sources"
                raise click.UsageError(f"--{limit}: expected one prompt of each source at least, got {asked}")
            source[limit] = share
    return keys


def _drafter(text: str) -> dict[str, Any]:
    """Read ``--drafter``."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, given, value = part.partition("=")
        if key in _FLAGS and not given:
            found[_FLAGS[key]] = True
        elif key == "strategy" and value:
            found["strategies"] = value.split("+")
        elif key == "min-prob" and value:
            found["min_draft_prob"] = Finite(0, 1).convert(value, None, None)
        elif key in _DRAFTER and value:
            found[_DRAFTER[key]] = value
        else:
            expected = "history, prompt-lookup, strategy=…+…, min-prob=…, " + ", ".join(
                f"{name}=…" for name in _DRAFTER
            )
            raise click.UsageError(f"--drafter {text}: {part!r}: expected one of {expected}")
    made_of = [Path(found[key]).name for key in ("draft_model", "dictionary") if key in found]
    made_of += [flag for flag, key in _FLAGS.items() if key in found]
    said = [str(found[key]) for key in ("verify", "min_draft_prob") if key in found]
    return {"name": " ".join(["+".join(made_of) or text, *said]), **found}


def _prompts(text: str) -> dict[str, Any]:
    """Read ``--prompts``."""
    from spectool.measure.bench.experiment import LANGUAGES

    language, _, kind = text.partition(":")
    if language in LANGUAGES:
        return {"language": language, "kinds": [kind] if kind else []}
    return {"source": text}


def differences(counts: Mapping[str, Any]) -> str:
    """Say how many outputs leave plain decoding's, and where."""
    number, compared = counts["different"], counts["compared"]
    if not number:
        return f"0 of {compared['outputs']:,} outputs, {compared['tokens']:,} tokens"
    return (
        f"{number:,} of {compared['outputs']:,} outputs, one in {compared['tokens'] / number:,.0f} tokens, the first "
        f"after {counts['first_difference']:,}; the two best logits there are {counts['largest_gap']:.3g} apart at most"
    )


def figures_table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Lay out the main figures of all configurations; intervals are of 95%, over prompts."""
    several, drawn = len({each["model"] for each in figures}) > 1, any(each["temperature"] for each in figures)
    translated = any(each["strategy"] for each in figures)
    rows: list[dict[str, str]] = []
    for each in figures:
        row = {"drafter": f"{each['model']}: {each['drafter']}" if several else each["drafter"]}
        if translated:
            row["strategy"] = each["strategy"] or ""
        if drawn:
            row["temperature"] = f"{each['temperature']:g}"
        row["k"] = "auto" if each["num_draft_tokens"] is None else str(each["num_draft_tokens"])
        row["speed-up"] = "—" if each["low"] is None else f"{each['speedup']:.2f}"  # one that means nothing misleads
        row["95% interval"] = "" if each["low"] is None else f"{each['low']:.2f} to {each['high']:.2f}"
        row["acceptance"] = "" if each["acceptance"] is None else f"{each['acceptance']:.0%}"
        row["tokens per pass"] = f"{each['tokens_per_pass']:.2f}"
        row["prompts"] = str(each["prompts"])
        rows.append(row)
    return table(list(rows[0]), [list(row.values()) for row in rows])
