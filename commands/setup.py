"""The command ``setup``: from a model to a dictionary, a draft model, and what to type from now on."""

import shlex
import time
from typing import TYPE_CHECKING, Any

import click

from spectool.commands.console import guarded, say, show, table
from spectool.commands.options import Finite, SectionedCommand, json_option, option, size_in_bytes

if TYPE_CHECKING:
    from spectool.commands.setup_steps import Setup


@click.command(cls=SectionedCommand)
@click.argument("model")
@option("--language", required=True, metavar="CODE", help="Language that the model is to write, such as pl or uk.")
@option(
    "--corpus",
    "corpora",
    multiple=True,
    metavar="C",
    help="Text in the language, as for build-dict; may be repeated. By default text from the hub, which pl, uk and "
    "crh have.",
)
@option("--draft-model", "--draft", "draft", metavar="D", help="Draft model to try as well: directory or hub id.")
@option("--prune/--no-prune", default=True, show_default=True, help="Leave out tokens that the draft does not need.")
@option(
    "--hub-text",
    type=size_in_bytes,
    default="20MB",
    show_default=True,
    metavar="SIZE",
    help="Amount of each text to fetch from the hub.",
)
@option("--seconds", type=Finite(1), default=120.0, show_default=True, help="Time for the benchmark, roughly.")
@json_option
@guarded
def setup(
    model: str,
    language: str,
    corpora: tuple[str, ...],
    draft: str | None,
    prune: bool,
    hub_text: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Build what drafts for a model in a language, measure it here, and say what to type from now on.

    Fetches text, builds a dictionary where `generate`, `chat` and `serve` find it, runs the doctor, prunes and aligns a
    draft model if one is named, and measures all of it against plain decoding. Where drafting does not pay, plain
    decoding is recommended. Everything is kept in the user's cache, so the same command goes on after Ctrl-C.

    \b
    Examples:
        spectool setup ./Bielik-11B --language pl
        spectool setup ./Bielik-11B --language pl --corpus texts/ --draft-model ./gemma-3-270m
    """
    from spectool.commands.blas import blas_hint
    from spectool.commands.setup_steps import Setup, is_here
    from spectool.corpora import preset_for
    from spectool.runtime.loading import load_model

    wanted = Setup(model, language, corpora or (preset_for(language),), draft, prune, hub_text, seconds)
    plan = list(wanted.steps())
    missing = [step for step in plan if not step.kept]
    for step in plan:
        say(f"{step.name:<12}  {step.what}: {'there already' if step.kept else _minutes(step.seconds)}")
    say(f"{_minutes(sum(step.seconds for step in missing))} in all. After Ctrl-C the same command goes on.")
    if missing and is_here(model) and (hint := blas_hint(load_model(model, lazy=True)[0])):
        say(hint)
    done = []
    try:
        for step in wanted.steps():
            began = time.perf_counter()
            if not step.kept:
                say(f"\n{step.name}: {step.what}")
                step.make()
            taken = round(time.perf_counter() - began, 1)
            done.append({"step": step.name, "what": step.what, "kept": step.kept, "seconds": taken})
    except KeyboardInterrupt as stop:
        stop.args = ("Interrupted. Finished steps are kept; the same command goes on from there.",)
        raise
    found = {"model": model, "language": language, "steps": done, **_outcome(wanted)}
    if as_json:
        show(found, as_json=True)
        return
    if found["configurations"]:
        rows = [
            [each["drafter"], f"{each['speedup']:.2f}", f"{each['tokens_per_pass']:.2f}"]
            for each in found["configurations"]
        ]
        click.echo("\n" + table(["drafter", "speed-up", "tokens per pass"], rows) + "\n")
    click.echo(found["verdict"])
    if wanted.unusable:
        click.echo(f"The draft model is left out: {wanted.unusable}")
    click.echo(f'\nFrom now on:\n  {found["command"]} --prompt "…"')


def _outcome(wanted: "Setup") -> dict[str, Any]:
    """What the benchmark says, and the command to use."""
    from spectool import ArtifactError
    from spectool.artifacts.benchmark import Benchmark
    from spectool.commands.setup_steps import LOOK_UPS
    from spectool.measure.report.trials import read_trials
    from spectool.measure.report.verdicts import verdicts

    assert wanted.run is not None
    found: dict[str, Any] = {"run": str(wanted.run), "pays": None, "configurations": []}
    best = None  # plain decoding
    try:
        verdict, *_ = verdicts(read_trials(Benchmark(wanted.run)))
    except ArtifactError as error:  # too short to compare anything
        found["verdict"] = str(error)
    else:
        speedups = {one.drafter: one.speedup.value for one in verdict.results}
        found |= {"pays": verdict.pays, "configurations": [one.figures() for one in verdict.results]}
        found["verdict"] = verdict.sentence
        if verdict.pays:
            best = verdict.fastest.drafter
        elif verdict.pays is None and speedups[LOOK_UPS] > 1:
            best = LOOK_UPS
            found["verdict"] += " Look-ups cost next to nothing, and `generate` stops drafting where it does not pay."
    found["recommended"] = best or "plain decoding"
    found["command"] = shlex.join(["spectool", "generate", "--model", wanted.model, *_options(wanted, best)])
    return found


def _options(wanted: "Setup", name: str | None) -> list[str]:
    """The options of `generate` for what was measured under a name; None for plain decoding."""
    if name is None:
        return ["--num-draft-tokens", "0"]
    drafter = wanted.drafters[name]
    found = [] if "dictionary" in drafter else ["--no-dict", "--no-history"]  # it finds the dictionary itself
    for key, option_name in (("draft_model", "--draft-model"), ("alignment", "--alignment")):
        found += [option_name, drafter[key]] if key in drafter else []
    return found


def _minutes(seconds: float) -> str:
    return f"about {seconds:.0f} seconds" if seconds < 90 else f"about {seconds / 60:.0f} minutes"
