"""The command ``setup``: from a model to a dictionary, a draft model, and what to type from now on."""

from textwrap import fill
from typing import Any

import click

from spectool.commands.shared.console import open_text, say, show
from spectool.commands.shared.options import Finite, command, option


@command("setup")
@click.argument("model")
@option("--language", required=True, metavar="CODE", help="Language that the model will write, such as pl or uk.")
@option("--corpus", "corpora", multiple=True, metavar="C", help="Text of your own, as for build-dict; may be repeated.")
@option(
    "--pack",
    "packs",
    multiple=True,
    metavar="FILE",
    help="Counts of the language; may be repeated. By default the bundled ones for pl, uk and crh.",
)
@option("--draft-model", "--draft", "draft", metavar="D", help="Draft model to try as well: directory or hub id.")
@option("--prune/--no-prune", default=True, help="Remove tokens that the draft model does not need.")
@option(
    "--seconds",
    type=Finite(0.1),
    default=120.0,
    help="Time for the benchmark, which takes longer if a few short answers do.",
)
def setup(
    model: str,
    language: str,
    corpora: tuple[str, ...],
    packs: tuple[str, ...],
    draft: str | None,
    prune: bool,
    seconds: float,
    as_json: bool,
) -> None:
    """Set up drafting for a model and a language, measure it, and print the command to use.

    Makes a dictionary of the counts that come with spectool for pl, uk and crh, and of your own text, and runs the
    doctor. If you name a draft model, it is pruned and aligned. Then all of this is measured against plain decoding,
    which is recommended if drafting does not pay. `generate`, `chat` and `serve` find the dictionary. The same command
    keeps what is made, for example after Ctrl-C, and measures again.

    \b
    Examples:
        spectool setup ./Bielik-11B --language pl
        spectool setup ./Bielik-11B --language pl --corpus texts/ --draft-model ./gemma-3-270m
    """
    from spectool import CorpusError, MissingExtra
    from spectool.artifacts.default_paths import slug
    from spectool.build.packs.stage import bundled_packs, open_pack
    from spectool.commands.prune_draft import model_directory
    from spectool.commands.setup_steps import Setup
    from spectool.corpora import preset_for
    from spectool.measure.bench.page import summary_table
    from spectool.measure.bench.prompts import LANGUAGES

    if len(set(map(slug, corpora))) < len(corpora):
        raise click.UsageError(
            "--corpus: expected different names, because dictionaries are named after their texts. Rename a file"
        )
    for spec in corpora:
        open_text(spec)  # says which files are left out
    for name in filter(None, (model, draft)):
        model_directory(name)  # which may have to be fetched
    say("This takes some minutes, longer with a slow model. Close other programs, because passes are timed.")
    say("You can stop with Ctrl-C and continue later with the same command.")
    counted = [open_pack(name) for name in packs or bundled_packs().keys() & {language.partition("-")[0]}]
    needs_text = draft is not None or not counted or language not in LANGUAGES
    named = corpora or ((preset_for(language),) if needs_text else ())
    wanted = Setup(model, language, counted, draft, prune, seconds)
    try:
        texts = list(map(wanted.text, named))
    except (CorpusError, MissingExtra) as error:
        raise error if corpora else type(error)(f"{error}. Or name text of your own: --corpus FILE") from error
    wanted.make(texts)
    verdict, recommended, then = wanted.outcome()
    if as_json:
        facts: dict[str, Any] = {"steps": wanted.steps, "verdict": verdict.sentence, "pays": verdict.pays}
        facts |= {"other_forms": wanted.advice, "recommended": recommended, "command": then}
        facts |= {"run": str(wanted.run and wanted.run.path)}
        facts |= {"configurations": [one.figures() for one in verdict.results]}
        show(facts | {"looping_or_echoing": [one.figures() for one in verdict.apart]}, as_json=True)
        return
    click.echo(f"\n{summary_table(verdict)}\n\n{verdict.sentence}")
    if then is None:
        click.echo("Nothing is recommended, because too little real text was written to measure on.")
        return
    if verdict.pays is None:
        click.echo(f"A longer benchmark makes it clearer: --seconds {5 * seconds:.0f}")
    for note in wanted.advice:
        click.echo(fill(note, 100))
    click.echo(f'Recommended: {recommended}. From now on:\n\n  {then} --prompt "…"\n')
    click.echo("`spectool chat` and `spectool serve` take the same options.")
