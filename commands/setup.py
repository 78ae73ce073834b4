"""The command ``setup``: from a model to a dictionary, a draft model, and what to type from now on."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from spectool.commands.shared.console import open_text, say, show
from spectool.commands.shared.options import Finite, command, option

if TYPE_CHECKING:
    from spectool.commands.setup_steps import SetupStep

_STOPPED = "Interrupted. What is finished is kept; the same command continues from there."


@command("setup")
@click.argument("model")
@option("--language", required=True, metavar="CODE", help="Language that the model will write, such as pl or uk.")
@option(
    "--corpus",
    "corpora",
    multiple=True,
    metavar="C",
    help="Text in the language, as for build-dict; may be repeated. By default text from the hub, for pl, uk and crh.",
)
@option("--draft-model", "--draft", "draft", metavar="D", help="Draft model to try as well: directory or hub id.")
@option("--prune/--no-prune", default=True, show_default=True, help="Remove tokens that the draft model does not need.")
@option(
    "--seconds",
    type=Finite(0.1),
    default=120.0,
    show_default=True,
    help="Time for the benchmark; slow models take longer.",
)
def setup(
    model: str,
    language: str,
    corpora: tuple[str, ...],
    draft: str | None,
    prune: bool,
    seconds: float,
    as_json: bool,
) -> None:
    """Set up drafting for a model and a language, measure it, and print the command to use.

    Fetches text, builds a dictionary and runs the doctor. If you name a draft model, it is pruned and aligned. Then all
    of this is measured against plain decoding, which is recommended if drafting does not pay. `generate`, `chat` and
    `serve` find the dictionary. The same command keeps what is made, for example after Ctrl-C, and measures again.

    \b
    Examples:
        spectool setup ./Bielik-11B --language pl
        spectool setup ./Bielik-11B --language pl --corpus texts/ --draft-model ./gemma-3-270m
    """
    from spectool import CorpusError, MissingExtra
    from spectool.artifacts.default_paths import slug
    from spectool.commands.prune_draft import model_directory
    from spectool.commands.setup_steps import Setup
    from spectool.corpora import preset_for
    from spectool.measure.bench.page import summary_table

    if len(set(map(slug, corpora))) < len(corpora):
        raise click.UsageError(
            "--corpus: expected different names, because dictionaries are named after their texts. Rename a file"
        )
    for spec in corpora:
        open_text(spec)  # says which files are left out
    for name in filter(None, (model, draft)):
        model_directory(name)  # which may have to be fetched
    say("checking the models, and what earlier runs have made")
    wanted = Setup(model, language, corpora or (preset_for(language),), draft, prune, seconds)
    try:
        _show_plan(list(wanted.steps()))
    except (CorpusError, MissingExtra) as error:
        raise error if corpora else type(error)(f"{error}. Or name text of your own: --corpus FILE") from error
    steps = [_made(step) for step in wanted.steps()]
    verdict, recommended, then = wanted.outcome()
    if as_json:
        facts: dict[str, Any] = {
            "model": model,
            "language": language,
            "steps": steps,
            "run": str(wanted.run and wanted.run.path),
        }
        facts |= {"pays": verdict.pays, "verdict": verdict.sentence, "recommended": recommended, "command": then}
        facts |= {"configurations": [one.figures() for one in verdict.results]}
        show(facts | {"looping_or_echoing": [one.figures() for one in verdict.apart]}, as_json=True)
        return
    click.echo(f"\n{summary_table(verdict)}\n\n{verdict.sentence}")
    if then is None:
        click.echo("Nothing is recommended, because too little real text was written to measure on.")
        return
    if verdict.pays is None:
        click.echo(f"A longer benchmark makes it clearer: --seconds {5 * seconds:.0f}")
    click.echo(f'Recommended: {recommended}. From now on:\n\n  {then} --prompt "…"\n')
    click.echo("`spectool chat` and `spectool serve` take the same options.")


def _show_plan(plan: Sequence["SetupStep"]) -> None:
    for step in plan:
        say(f"{step.name:<12}  {step.what}: {'there already' if step.kept else _minutes(step.seconds)}")
    say(
        f"{_minutes(sum(step.seconds for step in plan if not step.kept))} in all, longer with a slow model. Close "
        "other programs, because passes are timed. You can stop with Ctrl-C and continue later with the same command."
    )


def _made(step: "SetupStep") -> dict[str, object]:
    """Make a step unless it is kept, and say how long it took."""
    began = time.perf_counter()
    if not step.kept:
        say(f"\n{step.name}: {step.what}, {_minutes(step.seconds)}")
        try:
            step.make()
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(_STOPPED) from stop
    taken = round(time.perf_counter() - began, 1)
    return {"step": step.name, "what": step.what, "kept": step.kept, "seconds": taken}


def _minutes(seconds: float) -> str:
    return f"about {max(2, seconds):.0f} seconds" if seconds < 90 else f"about {seconds / 60:.0f} minutes"
