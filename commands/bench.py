"""The command ``bench``: drafters measured on this machine, and a page that says whether drafting pays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import guarded, progress, say, show, table
from spectool.commands.shared.model_options import DraftLength, model_option
from spectool.commands.shared.options import Finite, SectionedCommand, Whole, json_option, option, path_option

_PROMPTS = "pl, uk, en, crh, crh-cyrl: built-in prompts, pl:list for one kind of them; or a corpus, as for build-dict"
_DRAFTER = {
    **{"name": "name", "model": "draft_model", "draft": "draft_model", "dict": "dictionary"},
    **{"align": "alignment", "alignment": "alignment", "verify": "verify"},
}
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NUMBER = Whole(1)


@click.command(cls=SectionedCommand)
@click.argument("experiment", type=_FILE, required=False)
@model_option(required=False)
@option(
    "--drafter",
    "drafters",
    multiple=True,
    metavar="SPEC",
    help="What drafts, joined by commas: dict=… (one or more), history, model=…, align=…; and settings for it alone: "
    "name=…, verify=…, min-prob=…. May be repeated, to compare.",
)
@option("--prompts", multiple=True, metavar="P", help=f"{_PROMPTS}; may be repeated.")
@option(
    "--count",
    type=_NUMBER,
    help="Total number of prompts, spread evenly over sources and kinds; by default 60 per language, 12 per corpus.",
)
@option(
    "--num-draft-tokens",
    type=DraftLength(1),
    multiple=True,
    metavar="auto|N",
    help="Draft length; auto by default, may be repeated.",
)
@option("--tokens", type=_NUMBER, help="Maximum number of tokens after each prompt; 128 by default.")
@option(
    "--temp",
    "--temperature",
    "temperature",
    type=Finite(0),
    multiple=True,
    metavar="T",
    help="Temperature; 0 by default, may be repeated.",
)
@option("--ignore-eos", is_flag=True, help="Continue where the model would end its text.")
@path_option("-o", "--out", required=True, metavar="RUN", help="Directory to write.")
@option("--sample", type=_NUMBER, help="Draw this number of prompts at random, instead of --count.", rare=True)
@option("--window", type=Whole(0), help="Tokens of each prompt from a corpus; 0 for whole documents.", rare=True)
@option("--seed", type=Whole(0), help="Seed for order, sampling and --sample; 0 by default.", rare=True)
@option("--pause", type=Finite(0), default=0.0, help="Seconds of rest before each prompt.", rare=True)
@json_option
@guarded
def bench(
    experiment: Path | None,
    model: str | None,
    drafters: tuple[str, ...],
    prompts: tuple[str, ...],
    count: int | None,
    num_draft_tokens: tuple[int | None, ...],
    tokens: int | None,
    temperature: tuple[float, ...],
    ignore_eos: bool,
    out: Path,
    sample: int | None,
    window: int | None,
    seed: int | None,
    pause: float,
    as_json: bool,
) -> None:
    """Measure drafters, and say whether drafting pays on this machine.

    Each prompt is decoded by mlx-lm's own loop and with every drafter, in a random order. If a run is killed, the same
    command resumes it. A page with the verdict is written to RUN-report. Options override EXPERIMENT, a TOML file.

    \b
    Examples:
        spectool bench --model ./Bielik-11B --drafter dict=pl.dict,history --prompts pl -o bielik.bench
        spectool bench experiment.toml --num-draft-tokens auto -o auto.bench
    """
    from spectool import ArtifactError
    from spectool.measure.bench.experiment import make_experiment, read_keys
    from spectool.measure.bench.running import run_experiment
    from spectool.measure.intervals import LEAST
    from spectool.measure.report.run_page import page_folder, summary_table, write_run_page
    from spectool.measure.report.trials import read_trials
    from spectool.measure.report.verdicts import verdicts

    keys = {} if experiment is None else read_keys(experiment)
    overriding = {"num_draft_tokens": num_draft_tokens, "tokens": tokens, "temperature": temperature, "seed": seed}
    keys |= {name: value for name, value in overriding.items() if value not in (None, ())}
    if ignore_eos:
        keys["ignore_eos"] = True
    if model is not None:
        keys["models"] = [{"name": Path(model).name, "path": model, "drafters": list(map(_drafter, drafters))}]
    if drafters and model is None:
        raise click.UsageError("--drafter needs --model")
    if model is not None and not drafters:
        raise click.UsageError("--model needs --drafter, such as --drafter dict=pl.dict,history")
    if experiment is None or prompts or keys.get("prompts"):  # else the check of the keys says what is missing
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


def _put_prompts(
    keys: dict[str, Any], prompts: Sequence[str], totals: Mapping[str, int | None], window: int | None
) -> None:
    """Put what options say of prompts into the keys of an experiment.

    Args:
        keys: Those of the experiment.
        prompts: Sources that replace its own.
        totals: Number of prompts of all sources, by key.
        window: Tokens of a prompt from a corpus.
    """
    from spectool.measure.bench.experiment import split

    if prompts:
        keys["prompts"] = list(map(_prompts, prompts))
    sources: list[dict[str, Any]] = keys.get("prompts") or []
    if not sources:
        raise click.UsageError(f"no prompts: give --prompts ({_PROMPTS}), or an EXPERIMENT that has some")
    corpora = [source for source in sources if "source" in source]
    if window is not None and not corpora:
        raise click.UsageError("--window applies to prompts from a corpus, and all of these are built in")
    for source in corpora if window is not None else ():
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
        elif key == "min-prob" and value:
            found["min_draft_prob"] = Finite(0, 1).convert(value, None, None)
        elif key == "dict" and value:
            found.setdefault("dictionary", []).append(value)
        elif key in _DRAFTER and value:
            found[_DRAFTER[key]] = value
        else:
            expected = ", ".join(["history", "min-prob=…", *(f"{name}=…" for name in _DRAFTER)])
            raise click.UsageError(f"--drafter {text}: {part!r}: expected one of {expected}")
    dictionaries = found.get("dictionary", ())
    made_of = [Path(name).name for name in (*filter(None, [found.get("draft_model")]), *dictionaries)]
    if len(dictionaries) == 1:
        found["dictionary"] = dictionaries[0]
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
